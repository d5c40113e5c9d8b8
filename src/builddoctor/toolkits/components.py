"""Which packages a toolkit is made of: NVIDIA's ``cuda-toolkit`` names them, pinned, for each of its extras. Pure.

cuDNN, NCCL, NVSHMEM and cuSPARSELt have packages, and versions, of their own.
Does *not* cover: fetching them (``toolkits.wheels``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from email.parser import HeaderParser

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from builddoctor.core.errors import PackageDamagedError, PackageUnavailableError, UsageError

TOOLKIT = "cuda-toolkit"
ALWAYS = ("cccl", "cudart", "nvcc")
"""What every toolkit has: to compile, and to link the runtime."""

FIRST_WITH_NVCC = 13
APART = {"cudnn": "cudnn", "cusparselt": "cusparselt", "nccl": "nccl", "nvshmem": "nvshmem"}
"""Component to the middle of its package's name: ``nvidia-cudnn-cu13``."""

NEEDS = {"cudnn": ("cublas",)}
"""What the packages of APART ask for themselves: known before they are fetched, so that sizes are."""

SIZES_MIB = {
    "cuda-toolkit": (1, 0),
    "nvidia-cublas": (404, 570),
    "nvidia-cuda-cccl": (3, 20),
    "nvidia-cuda-crt": (1, 1),
    "nvidia-cuda-culibos": (1, 1),
    "nvidia-cuda-cupti": (11, 43),
    "nvidia-cuda-nvcc": (36, 110),
    "nvidia-cuda-nvrtc": (87, 217),
    "nvidia-cuda-profiler-api": (1, 1),
    "nvidia-cuda-runtime": (3, 7),
    "nvidia-cudnn-cu13": (528, 925),
    "nvidia-cufft": (205, 278),
    "nvidia-cufile": (2, 4),
    "nvidia-curand": (57, 129),
    "nvidia-cusolver": (192, 235),
    "nvidia-cusparse": (140, 165),
    "nvidia-cusparselt-cu13": (163, 230),
    "nvidia-nccl-cu13": (206, 290),
    "nvidia-nvjitlink": (41, 99),
    "nvidia-nvml-dev": (1, 1),
    "nvidia-nvshmem-cu13": (58, 150),
    "nvidia-nvtx": (1, 1),
    "nvidia-nvvm": (59, 134),
}
"""Package to MiB of the wheel and of what is in it, rounded up (13.0, x86_64). Others are taken for large ones."""
UNKNOWN_MIB = (200, 400)

_RELEASE = re.compile(r"\A\d+(\.\d+){0,3}\Z", re.ASCII)
_COMPONENT = re.compile(r"\A(?P<name>[a-z][a-z0-9_-]*)(?:==(?P<version>\d+(?:\.\d+)*))?\Z", re.ASCII)


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """One release of the toolkit: what its package says."""

    version: str
    extras: tuple[str, ...]
    requires: tuple[str, ...]

    @property
    def major(self) -> str:
        return self.version.split(".", maxsplit=1)[0]


def release_requirement(version: str) -> str:
    """``13.0`` as pip wants it. Raises UsageError, PackageUnavailableError for a CUDA without nvcc in packages."""
    if not _RELEASE.match(version):
        raise UsageError(f"{version} is no version of CUDA", hint="such as 13.0: builddoctor toolkit install 13.0")
    if int(version.split(".")[0]) < FIRST_WITH_NVCC:
        named = version if "." in version else f"{version}.8"
        raise PackageUnavailableError(
            f"CUDA {version}'s packages for python hold ptxas, but no nvcc and no cudafe++; those of 13 and later do",
            hint=f"conda create -y -p ~/cuda-{named} -c conda-forge cuda-nvcc={named} cuda-cudart-dev={named}   (then: "
            f"--toolkit ~/cuda-{named}); or NVIDIA's installer, without root: sh cuda_{named}*_linux.run --silent "
            f"--toolkit --toolkitpath=$HOME/cuda-{named}; or, if the source allows: builddoctor toolkit install 13.0",
        )
    return f"{TOOLKIT}=={version}.*"


def parse_components(texts: Iterable[str]) -> dict[str, str]:
    """``cublas,cudnn==9.13`` as component to version (empty: as the release says). Raises UsageError."""
    found: dict[str, str] = {}
    for text in texts:
        for word in filter(None, (part.strip() for part in text.split(","))):
            match = _COMPONENT.match(word.lower())
            if match is None or (match["version"] and match["name"] not in APART):
                versions = " (of these only can a version be named: " + ", ".join(APART) + ")" if match else ""
                raise UsageError(f"--with {word}: no such component{versions}", hint="--with cublas,cudnn,nccl")
            found[match["name"]] = match["version"] or ""
    return found


def read_release(version: str, metadata: str) -> Release:
    """What the metadata of a ``cuda-toolkit`` wheel says. Raises PackageDamagedError."""
    headers = HeaderParser().parsestr(metadata)
    extras = tuple(sorted({str(name) for name in headers.get_all("Provides-Extra", [])}))
    if "nvcc" not in extras:
        raise PackageDamagedError(f"{TOOLKIT} {version} names no packages for nvcc")
    return Release(version=version, extras=extras, requires=requires_of(metadata))


def requires_of(metadata: str) -> tuple[str, ...]:
    return tuple(str(text) for text in HeaderParser().parsestr(metadata).get_all("Requires-Dist", []))


def requirements(release: Release, components: Mapping[str, str], arch: str) -> dict[str, str]:
    """Package to requirement (``nvidia-cublas==13.1.1.3.*``) for these components. Raises UsageError."""
    if unknown := sorted(set(components) - set(release.extras) - set(APART)):
        known = ", ".join(sorted(({*release.extras} | set(APART)) - set(ALWAYS)))
        raise UsageError(f"CUDA {release.version} has no component {', '.join(unknown)}", hint=f"there are {known}")
    extras = [*ALWAYS, *(name for name in components if name not in APART)]
    extras += [need for name in components for need in NEEDS.get(name, ())]
    found = pinned(release.requires, extras, arch)
    for name, version in components.items():
        if name in APART:
            package = f"nvidia-{APART[name]}-cu{release.major}"
            found[package] = f"{package}=={version}.*" if version else package
    return found


def pinned(requires: Sequence[str], extras: Sequence[str], arch: str) -> dict[str, str]:
    """Package to requirement, for those that one of ``extras`` (or none, with ``""``) asks for on Linux on ``arch``."""
    found: dict[str, SpecifierSet] = {}
    for text in requires:
        try:
            need = Requirement(text)
        except InvalidRequirement:
            continue
        name = canonicalize_name(need.name)
        if need.url is None and any(_applies(need, extra, arch) for extra in extras):
            found[name] = found.get(name, SpecifierSet()) & need.specifier
    return {name: f"{name}{specifier}" for name, specifier in found.items()}


def depends_on(release: Release, metadata: str, arch: str) -> dict[str, str]:
    """What a package needs itself, in the versions that the release pins where it knows them."""
    needs = pinned(requires_of(metadata), ("",), arch)
    all_pins = pinned(release.requires, release.extras, arch)
    return {name: all_pins.get(name, need) for name, need in needs.items() if name.startswith("nvidia-")}


def size_mib(package: str) -> tuple[int, int]:
    """MiB of the wheel, and of what is in it: an estimate."""
    return SIZES_MIB.get(re.sub(r"-cu\d+\Z", "-cu13", package), UNKNOWN_MIB)


def _applies(need: Requirement, extra: str, arch: str) -> bool:
    if need.marker is None:
        return extra == ""
    here = {"extra": extra, "platform_machine": arch, "sys_platform": "linux", "platform_system": "Linux"}
    return bool(need.marker.evaluate({**here, "os_name": "posix"}))
