"""CUDA's headers and libraries: where every copy lies, and what it says of itself.

Looks in the toolkit's own folders, the system's, conda's, what CPATH, LIBRARY_PATH and their like name, the variables
of single libraries (CUDNN_PATH, NCCL_HOME …), and python packages (``nvidia/cudnn``, ``nvidia/cu13``).
Reads versions, the host compilers that a toolkit accepts, and functions that clash with a C library. Shapes seen:
crt/host_config.h and crt/math_functions.h of 12.8.93, 13.0.88 and 13.2.86, older ones from issues that quote them.
Anything else gives None or an empty version, never a guess.
Does *not* cover: modules of build systems that look elsewhere, and libraries below a CMAKE_PREFIX_PATH's subfolders.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from builddoctor.core.toolchain import LIBRARIES, WHEEL_NAMES, HostLimits, LibraryCopy, Toolkit
from builddoctor.system.root import SystemRoot

HEADERS = {
    "cudart": ("cuda_runtime_api.h",),
    "cublas": ("cublas_api.h",),
    "cudnn": ("cudnn_version.h", "cudnn.h"),
    "nccl": ("nccl.h",),
    "nvrtc": ("nvrtc.h",),
    "cufft": ("cufft.h",),
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

MACROS = {
    "cudart": ("CUDART_VERSION",),
    "cublas": ("CUBLAS_VER_MAJOR", "CUBLAS_VER_MINOR", "CUBLAS_VER_PATCH"),
    "cudnn": ("CUDNN_MAJOR", "CUDNN_MINOR", "CUDNN_PATCHLEVEL"),
    "nccl": ("NCCL_MAJOR", "NCCL_MINOR", "NCCL_PATCH"),
    "cufft": ("CUFFT_VER_MAJOR", "CUFFT_VER_MINOR", "CUFFT_VER_PATCH"),
    "curand": ("CURAND_VER_MAJOR", "CURAND_VER_MINOR", "CURAND_VER_PATCH"),
    "cusparse": ("CUSPARSE_VER_MAJOR", "CUSPARSE_VER_MINOR", "CUSPARSE_VER_PATCH"),
    "cusolver": ("CUSOLVER_VER_MAJOR", "CUSOLVER_VER_MINOR", "CUSOLVER_VER_PATCH"),
}
"""Library to the macros that give its version. nvrtc and nvml have none."""

CLASHES = {"cospi": (2, 41), "sinpi": (2, 41), "rsqrt": (2, 42)}
"""Function to the first glibc that declares it too, with ``noexcept``: nvcc then refuses every source. CUDA declares
the first two right since 13.0 (cuda-samples#378), the last since 13.2 (llama.cpp#19100, llvm-project#185701)."""

_ERROR = re.compile(r"^#\s*error -- unsupported (?P<kind>GNU|clang) version!", re.MULTILINE)
_CONDITION = re.compile(r"^#\s*if\b(?P<text>.*)$", re.MULTILINE)
_GNU_ABOVE = re.compile(r"__GNUC__ > (\d{1,3})")
_CLANG_FROM = re.compile(r"__clang_major__ (>=|>) (\d{1,3})")
_CLANG_BELOW = re.compile(r"__clang_major__ < (\d{1,3})")


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


class LibraryFiles(msgspec.Struct, frozen=True):
    """What a folder holds of one library."""

    file: str
    """name of the one that says most of its version"""
    version: str
    linkable: bool


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
        limits=host_limits(config),
        bare_functions=bare_functions(math),
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


def machine_name() -> str:
    """``x86_64`` or ``aarch64``, as uname says it."""
    return os.uname().machine


def library_version(name: str, text: str) -> str:
    """``13.0`` or ``9.13.0`` from the header of ``name``; empty when it does not say."""
    parts = [macro_value(macro, text) for macro in MACROS.get(name, ())]
    if not parts or parts[0] is None:
        return ""
    if name == "cudart":
        # 12080 is 12.8.
        return f"{parts[0] // 1000}.{parts[0] % 1000 // 10}"
    return ".".join(str(part) for part in parts if part is not None)


def host_limits(text: str) -> HostLimits:
    """The host compilers that a ``crt/host_config.h`` accepts."""
    gnu_newest = clang_newest = clang_oldest = None
    for error in _ERROR.finditer(text):
        conditions = list(_CONDITION.finditer(text, max(0, error.start() - 2000), error.start()))
        if not conditions:
            continue
        condition = conditions[-1]["text"]
        if error["kind"] == "GNU":
            above = _GNU_ABOVE.search(condition)
            gnu_newest = int(above[1]) if above else gnu_newest
        else:
            first = _CLANG_FROM.search(condition)
            if first is not None:
                clang_newest = int(first[2]) - (1 if first[1] == ">=" else 0)
            below = _CLANG_BELOW.search(condition)
            clang_oldest = int(below[1]) if below else clang_oldest
    return HostLimits(gnu_newest=gnu_newest, clang_newest=clang_newest, clang_oldest=clang_oldest)


def bare_functions(text: str) -> tuple[str, ...] | None:
    """Functions of CLASHES that a ``crt/math_functions.h`` declares bare; None when it declares none of them at all.

    The declaration itself is read: a patched header is told apart from an original one.
    """
    bare: list[str] = []
    seen = False
    for name in CLASHES:
        declared = re.search(
            rf"^extern\b[^;\n]*\bdouble\s+{name}\s*\(\s*double\s+\w+\s*\)([^;\n]*);", text, re.MULTILINE
        )
        if declared is None:
            continue
        seen = True
        if not declared[1].strip():
            bare.append(name)
    return tuple(bare) if seen else None


def macro_value(name: str, text: str) -> int | None:
    """The number that a header defines a macro as; None when it does not."""
    match = re.search(rf"^[ \t]*#[ \t]*define[ \t]+{re.escape(name)}[ \t]+(\d{{1,9}})\b", text, re.MULTILINE | re.ASCII)
    return int(match[1]) if match else None


def library_files(name: str, names: Iterable[str]) -> LibraryFiles | None:
    """``lib<name>`` among the names of a folder's files; None when it is not there."""
    pattern = re.compile(rf"\Alib{re.escape(name)}(?:\.so(?:\.(?P<version>\d{{1,6}}(?:\.\d{{1,6}})*))?|_static\.a)\Z")
    found = [(match["version"] or "", file) for file in names if (match := pattern.match(file))]
    if not found:
        return None
    version, file = max(found, key=lambda one: (_numbers(one[0]), one[1].endswith(".so")))
    return LibraryFiles(file, version, any(not version for version, _ in found))


def agree(one: str, other: str) -> bool:
    """The two versions say the same as far as both say anything: ``9`` and ``9.13.0`` do."""
    return all(left == right for left, right in zip(_numbers(one), _numbers(other), strict=False))


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
            header, version = path, library_version(name, text)
            break
    file = file_version = ""
    linkable = False
    for folder in place.lib:
        files = library_files(stem, _listing(root, folder, listings))
        if files is not None:
            file, linkable = f"{folder}/{files.file}", files.linkable
            # A link's target often says more: libcudnn.so.9 -> libcudnn.so.9.13.0.
            target = library_files(stem, [os.path.basename(os.path.realpath(root.at(file)))])
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


def _matching(root: SystemRoot, folder: str, pattern: str) -> tuple[str, ...]:
    try:
        names = sorted(os.listdir(root.at(folder)))
    except (OSError, ValueError):
        return ()
    return tuple(f"{folder}/{name}" for name in names if re.fullmatch(pattern, name))


def _split(path: str) -> list[str]:
    return [folder for folder in path.split(":") if folder.startswith("/")]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
