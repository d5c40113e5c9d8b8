"""Folders of a project that were configured or built in before: CMakeCache.txt, build.ninja, .ninja_log.

Covers: the project's folder and its usual build folders, at most 24. Does *not* cover: build folders elsewhere, beyond
those that NVTE_CMAKE_BUILD_DIR and SKBUILD_BUILD_DIR name, and judging what is found (``doctor.source_checks``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from builddoctor.core.project import BuildFolder
from builddoctor.system.source_files import exists, text_of
from builddoctor.toolchain.discover import is_overlay

MOST_FOLDERS = 24
MOST_CACHE_BYTES = 4 * 1024 * 1024
_PATTERNS = ("build", "build/*", "_skbuild/*/*", "out/build/*", "cmake-build-*", "build-*", "build_*")
_VARIABLES = ("NVTE_CMAKE_BUILD_DIR", "SKBUILD_BUILD_DIR")

_ENTRY = re.compile(r"^(?P<name>CMAKE_\w+):[A-Z]{1,20}=(?P<value>[^\n]*)$", re.MULTILINE)
_CUDA_VERSION = re.compile(r'set\(CMAKE_CUDA_COMPILER_VERSION "(?P<version>[\d.]+)"\)')
_LOG_HEAD = re.compile(r"\A# ninja log v(?P<version>\d{1,4})\r?\n[^\n]")
_NINJA_TOOLS = re.compile(r"^(?P<name>nvcc|cxx) = (?P<path>/\S+)\s*$", re.MULTILINE)
_HOST_FLAG = re.compile(r"-ccbin|--compiler-bindir|-allow-unsupported-compiler")
_GATE = re.compile(r"/overlays/(?:cuda-[^/]+|host-[0-9a-f]{8})/")
"""a program of an overlay, by its path: the overlay itself may be gone"""


def build_folders(folder: Path, env: Mapping[str, str]) -> list[BuildFolder]:
    """All that hold a CMakeCache.txt, or a build.ninja with a log."""
    found: list[BuildFolder] = []
    for place in _places(folder, env):
        facts = _examine(place, folder)
        if facts is not None:
            found.append(facts)
            if len(found) >= MOST_FOLDERS:
                break
    return found


def _places(folder: Path, env: Mapping[str, str]) -> Iterator[Path]:
    yield folder
    for variable in _VARIABLES:
        if env.get(variable):
            yield folder / env[variable]
    for pattern in _PATTERNS:
        try:
            yield from [place for place in sorted(folder.glob(pattern))[:200] if place.is_dir()]
        except (OSError, ValueError):
            continue


def _examine(folder: Path, project: Path) -> BuildFolder | None:
    cache = text_of(folder / "CMakeCache.txt", MOST_CACHE_BYTES)
    log = _LOG_HEAD.match(text_of(folder / ".ninja_log", 4096) or "")
    version = int(log["version"]) if log else None
    if cache is None:
        if version is None:
            return None
        tools = dict(_NINJA_TOOLS.findall(text_of(folder / "build.ninja") or ""))
        nvcc, cxx = tools.get("nvcc", ""), tools.get("cxx", "")
        return BuildFolder(
            path=str(folder),
            cuda_compiler=nvcc,
            cxx_compiler=cxx,
            ninja_log=version,
            gone=_gone(nvcc, cxx),
            overlays=_overlays(nvcc, cxx),
        )
    entries = {match["name"]: match["value"].strip() for match in _ENTRY.finditer(cache)}
    launchers = tuple(
        (name, value) for name, value in sorted(entries.items()) if name.endswith("_COMPILER_LAUNCHER") and value
    )
    programs = [entries.get(f"CMAKE_{name}", "") for name in ("CUDA_COMPILER", "CXX_COMPILER", "MAKE_PROGRAM")]
    return BuildFolder(
        path=str(folder),
        configured=True,
        archs=entries.get("CMAKE_CUDA_ARCHITECTURES", ""),
        cuda_compiler=programs[0],
        cuda_version=_cuda_version(folder) if programs[0] else "",
        cxx_compiler=programs[1],
        host_compiler=_host_compiler(entries),
        policy_minimum=entries.get("CMAKE_POLICY_VERSION_MINIMUM", ""),
        make_program=programs[2],
        generator=entries.get("CMAKE_GENERATOR", ""),
        home=entries.get("CMAKE_HOME_DIRECTORY", ""),
        moved_from=_moved_from(folder, entries.get("CMAKE_CACHEFILE_DIR", ""), entries.get("CMAKE_HOME_DIRECTORY", "")),
        other_source=_other_source(project, entries.get("CMAKE_HOME_DIRECTORY", "")),
        launchers=launchers,
        ninja_log=version,
        gone=_gone(*programs, *(value.partition(";")[0] for _, value in launchers)),
        overlays=_overlays(*programs),
    )


def _moved_from(folder: Path, made_in: str, home: str) -> str:
    if os.path.isabs(made_in) and os.path.realpath(made_in) != os.path.realpath(folder):
        return made_in
    return home if os.path.isabs(home) and not exists(Path(home)) else ""


def _other_source(project: Path, home: str) -> str:
    # CMake compares the files, not their names: a link, or another mount, is the same.
    try:
        lists = (Path(home, "CMakeLists.txt"), project / "CMakeLists.txt")
        return home if os.path.isabs(home) and lists[0].exists() and not os.path.samefile(*lists) else ""
    except (OSError, ValueError):
        return ""


def _host_compiler(entries: Mapping[str, str]) -> str:
    for name in ("CMAKE_CUDA_HOST_COMPILER", "CMAKE_TOOLCHAIN_FILE"):
        if entries.get(name):
            return entries[name]
    flags = (value for name, value in entries.items() if name.startswith("CMAKE_CUDA_FLAGS"))
    return next((value for value in flags if _HOST_FLAG.search(value)), "")


def _cuda_version(folder: Path) -> str:
    """CMake keeps it in a folder named after its own version."""
    try:
        places = sorted(folder.glob("CMakeFiles/*/CMakeCUDACompiler.cmake"))[:8]
        newest = max(places, key=lambda place: place.stat().st_mtime_ns, default=None)
    except (OSError, ValueError):
        return ""
    match = _CUDA_VERSION.search(text_of(newest) or "") if newest is not None else None
    return match["version"] if match else ""


def _gone(*programs: str) -> tuple[str, ...]:
    """Of absolute paths only: CMake writes NAME-NOTFOUND, and a launcher may be a bare name."""
    return tuple(program for program in dict.fromkeys(programs) if os.path.isabs(program) and not exists(Path(program)))


def _overlays(*programs: str) -> tuple[str, ...]:
    return tuple(
        program
        for program in dict.fromkeys(programs)
        if os.path.isabs(program) and (_GATE.search(program) or is_overlay(Path(program)))
    )
