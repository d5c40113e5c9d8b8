"""Object files for comparison: whole, but for the one name in which two plain builds of nvcc differ too."""

from __future__ import annotations

import re
from pathlib import Path

_TMPXFT = re.compile(rb"tmpxft_[0-9a-f]{8}_[0-9a-f]{8}")


def objects_of(build: Path) -> dict[str, bytes]:
    """Name to content of all objects and libraries of the project, without CMake's own trials."""
    files = [file for suffix in ("*.o", "*.so") for file in build.rglob(suffix)]
    return {
        str(file.relative_to(build)): _TMPXFT.sub(b"tmpxft", file.read_bytes())
        for file in files
        if "CompilerId" not in str(file) and "CMakeScratch" not in str(file)
    }


def only_objects(objects: dict[str, bytes]) -> dict[str, bytes]:
    """By their names alone: each generator of CMake has its own folders."""
    return {Path(name).name: content for name, content in objects.items() if name.endswith(".o")}


def files_naming(folder: Path, word: str) -> list[str]:
    """Files that hold ``word`` anywhere, of those that a build passes on: objects, libraries, dependencies."""
    found = [file for suffix in ("*.o", "*.so", "*.d") for file in folder.rglob(suffix)]
    return [str(file) for file in found if word.encode() in file.read_bytes()]
