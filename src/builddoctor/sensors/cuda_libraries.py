"""Where CUDA's headers and libraries lie: every copy, with the version that each says it has.

Looks in the toolkit's own folders, the system's, conda's, what CPATH, LIBRARY_PATH and their like name, the variables
of single libraries (CUDNN_PATH, NCCL_HOME …), and python packages (``nvidia/cudnn``, ``nvidia/cu13``).
Does *not* cover: modules of build systems that look elsewhere, and libraries below a CMAKE_PREFIX_PATH's subfolders.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from builddoctor.model.toolchain import LIBRARIES, WHEEL_NAMES, HostLimits, LibraryCopy
from builddoctor.model.toolkit import Toolkit
from builddoctor.sensors import cuda_headers
from builddoctor.sensors.root import SystemRoot

HEADERS = {
    "cudart": ("cuda_runtime_api.h",),
    "cublas": ("cublas_api.h",),
    "cudnn": ("cudnn_version.h", "cudnn.h"),
    "nccl": ("nccl.h",),
    "nvrtc": ("nvrtc.h",),
    "curand": ("curand.h",),
    "cusparse": ("cusparse.h",),
    "cusolver": ("cusolver_common.h",),
    "nvml": ("nvml.h",),
    "nvtx": ("nvtx3/nvToolsExt.h",),
    "profiler": ("cuda_profiler_api.h",),
}
VARIABLES = {"cudnn": ("CUDNN_HOME", "CUDNN_PATH", "CUDNN_ROOT"), "nccl": ("NCCL_HOME", "NCCL_ROOT")}
_FILE_NAMES = {"nvml": "nvidia-ml"}
_INCLUDE_VARIABLES = ("CPATH", "CPLUS_INCLUDE_PATH")
_LIBRARY_VARIABLES = ("LIBRARY_PATH", "LD_LIBRARY_PATH")


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Folders that belong together."""

    name: str
    kind: Literal["toolkit", "system", "conda", "variable", "python"]
    include: tuple[str, ...]
    lib: tuple[str, ...]
    only: str = ""
    """the one library that is looked for there; all when empty"""


class CrtFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a toolkit's own headers and library folders say."""

    limits: HostLimits
    bare_functions: tuple[str, ...] | None
    links: bool | None
    library_folder: str


def library_copies(
    root: SystemRoot, env: Mapping[str, str], *, toolkit: Toolkit | None, site_folders: Sequence[Path], machine: str
) -> tuple[LibraryCopy, ...]:
    """Every copy found, in the order of LIBRARIES. ``machine`` as uname says it: ``x86_64``."""
    places = list(_places(root, env, toolkit, site_folders, machine))
    listings: dict[str, list[str]] = {}
    found: list[LibraryCopy] = []
    for name in LIBRARIES:
        seen: set[str] = set()
        for place in places:
            if place.only and place.only != name:
                continue
            copy = _copy(root, name, place, listings)
            if copy is None:
                continue
            identity = os.path.realpath(root.at(copy.header or copy.library))
            if identity not in seen:
                seen.add(identity)
                found.append(copy)
    return tuple(found)


def toolkit_facts(root: SystemRoot, env: Mapping[str, str], *, toolkit: Toolkit, machine: str) -> CrtFacts:
    """What the toolkit accepts, what its headers clash with, and whether its nvcc finds its runtime."""
    config = math = ""
    for folder in (*_include_folders(root, toolkit), "/usr/include"):
        config = config or root.text(f"{folder}/crt/host_config.h") or ""
        math = math or root.text(f"{folder}/crt/math_functions.h") or ""
    folders = tuple(flag[2:] for flag in toolkit.library_flags if flag.startswith("-L"))
    links = _has_runtime(root, folders) if folders else None
    elsewhere = ""
    if links is False:
        # Debian's nvcc names no folder that has them: they are in the linker's own.
        links = _has_runtime(root, (*_split(env.get("LIBRARY_PATH", "")), *_system_lib(machine)))
        elsewhere = next((at for part in ("lib", "lib64") if _has_runtime(root, (at := f"{toolkit.home}/{part}",))), "")
    return CrtFacts(
        limits=cuda_headers.host_limits(config),
        bare_functions=cuda_headers.bare_functions(math),
        links=links,
        library_folder=elsewhere,
    )


def wheels_without_nvcc(root: SystemRoot, site_folders: Sequence[Path]) -> str:
    """A ``nvidia/cuda_nvcc`` of CUDA 12's python packages: it has ptxas, and neither nvcc nor cudafe++."""
    for site in site_folders:
        folder = f"{site}/nvidia/cuda_nvcc"
        if os.path.isfile(root.at(f"{folder}/bin/ptxas")) and not os.path.exists(root.at(f"{folder}/bin/nvcc")):
            return folder
    return ""


def _places(
    root: SystemRoot, env: Mapping[str, str], toolkit: Toolkit | None, site_folders: Sequence[Path], machine: str
) -> Iterator[Place]:
    for name, variables in VARIABLES.items():
        for variable in variables:
            folder = env.get(variable, "").rstrip("/")
            if folder.startswith("/"):
                yield _prefix(root, f"{variable}={folder}", "variable", folder, only=name)
    if toolkit is not None:
        yield Place(
            name=toolkit.home,
            kind="toolkit",
            include=_include_folders(root, toolkit),
            lib=_lib_folders(root, toolkit),
        )
    include = tuple(folder for variable in _INCLUDE_VARIABLES for folder in _split(env.get(variable, "")))
    lib = tuple(folder for variable in _LIBRARY_VARIABLES for folder in _split(env.get(variable, "")))
    if include or lib:
        named = ", ".join(name for name in (*_INCLUDE_VARIABLES, *_LIBRARY_VARIABLES) if env.get(name))
        yield Place(name=named, kind="variable", include=include, lib=lib)
    prefix = env.get("CONDA_PREFIX", "").rstrip("/")
    if prefix.startswith("/"):
        yield _prefix(root, f"{prefix} (conda)", "conda", prefix)
    for folder in _split(env.get("CMAKE_PREFIX_PATH", "").replace(";", ":")):
        yield _prefix(root, f"{folder} (CMAKE_PREFIX_PATH)", "variable", folder.rstrip("/"))
    triplet = f"{machine}-linux-gnu"
    yield Place(
        name="/usr", kind="system", include=("/usr/include", f"/usr/include/{triplet}"), lib=_system_lib(machine)
    )
    yield _prefix(root, "/usr/local", "system", "/usr/local")
    for site in site_folders:
        for library in LIBRARIES:
            folder = f"{site}/nvidia/{WHEEL_NAMES.get(library, library)}"
            yield _prefix(root, folder, "python", folder, only=library)
        for folder in _matching(root, f"{site}/nvidia", r"cu\d+"):
            yield _prefix(root, folder, "python", folder)


def _prefix(
    root: SystemRoot,
    name: str,
    kind: Literal["system", "conda", "variable", "python"],
    folder: str,
    only: str = "",
) -> Place:
    targets = _matching(root, f"{folder}/targets", r".*-linux") if kind == "conda" else ()
    return Place(
        name=name,
        kind=kind,
        include=(f"{folder}/include", *(f"{target}/include" for target in targets)),
        lib=(f"{folder}/lib64", f"{folder}/lib", *(f"{target}/lib" for target in targets)),
        only=only,
    )


def _copy(root: SystemRoot, name: str, place: Place, listings: dict[str, list[str]]) -> LibraryCopy | None:
    stem = _FILE_NAMES.get(name, name)
    header = version = ""
    for path in (f"{folder}/{file}" for folder in place.include for file in HEADERS[name]):
        text = root.text(path)
        if text is not None:
            header, version = path, cuda_headers.library_version(name, text)
            break
    file = file_version = ""
    linkable = False
    for folder in place.lib:
        files = cuda_headers.library_files(stem, _listing(root, folder, listings))
        if files is not None:
            file, linkable = f"{folder}/{files.file}", files.linkable
            # A link's target often says more: libcudnn.so.9 -> libcudnn.so.9.13.0.
            target = cuda_headers.library_files(stem, [os.path.basename(os.path.realpath(root.at(file)))])
            file_version = max(files.version, target.version if target else "", key=len)
            break
    if not header and not file:
        return None
    return LibraryCopy(
        name=name,
        place=place.name,
        kind=place.kind,
        header=header,
        header_version=version,
        library=file,
        library_version=file_version,
        linkable=linkable,
    )


def _listing(root: SystemRoot, folder: str, listings: dict[str, list[str]]) -> list[str]:
    if folder not in listings:
        try:
            listings[folder] = os.listdir(root.at(folder))
        except (OSError, ValueError):
            listings[folder] = []
    return listings[folder]


def _include_folders(root: SystemRoot, toolkit: Toolkit) -> tuple[str, ...]:
    named = [flag[2:] for flag in toolkit.include_flags if flag.startswith("-I") and len(flag) > 2]
    targets = _matching(root, f"{toolkit.home}/targets", r".*-linux")
    folders = [*named, f"{toolkit.home}/include", *(f"{target}/include" for target in targets)]
    return tuple(dict.fromkeys(os.path.normpath(folder) for folder in folders))


def _lib_folders(root: SystemRoot, toolkit: Toolkit) -> tuple[str, ...]:
    named = [flag[2:] for flag in toolkit.library_flags if flag.startswith("-L") and not flag.endswith("/stubs")]
    targets = _matching(root, f"{toolkit.home}/targets", r".*-linux")
    folders = [*named, f"{toolkit.home}/lib64", f"{toolkit.home}/lib", *(f"{target}/lib" for target in targets)]
    return tuple(dict.fromkeys(os.path.normpath(folder) for folder in folders if folder))


def _has_runtime(root: SystemRoot, folders: Sequence[str]) -> bool:
    """What every link by nvcc asks for: ``-lcudadevrt -lcudart_static``."""
    return all(
        any(os.path.exists(root.at(f"{folder}/{file}")) for folder in folders)
        for file in ("libcudadevrt.a", "libcudart_static.a")
    )


def _system_lib(machine: str) -> tuple[str, ...]:
    return (f"/usr/lib/{machine}-linux-gnu", "/usr/lib64", "/usr/lib")


def machine_name() -> str:
    """``x86_64`` or ``aarch64``, as uname says it."""
    return os.uname().machine


def _matching(root: SystemRoot, folder: str, pattern: str) -> tuple[str, ...]:
    try:
        names = sorted(os.listdir(root.at(folder)))
    except (OSError, ValueError):
        return ()
    return tuple(f"{folder}/{name}" for name in names if re.fullmatch(pattern, name))


def _split(path: str) -> list[str]:
    return [folder for folder in path.split(":") if folder.startswith("/")]
