"""Files of a project's source tree: read with bounds, and never an exception.

Covers: the text of one file; finding a project's build files (setup.py, pyproject.toml, CMakeLists.txt, ``*.cmake``,
``build_tools/``), at most 200 of them. Does *not* cover: what they say (``sensors.build_files``).
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

import msgspec

MOST_FILES = 200
MOST_FOLDERS = 2000
MOST_BYTES = 1024 * 1024
MOST_BYTES_TOGETHER = 8 * 1024 * 1024
DEEPEST = 5

_PASSED_OVER = frozenset(
    (
        "test",
        "tests",
        "testing",
        "doc",
        "docs",
        "example",
        "examples",
        "benchmark",
        "benchmarks",
        "sample",
        "samples",
        "tutorial",
        "tutorials",
        "node_modules",
        "__pycache__",
        "build",
        "dist",
        "_skbuild",
        "venv",
        "site-packages",
        "CMakeFiles",
        "_deps",
    )
)
"""Folders whose build files say nothing of the build of the project."""

_PYTHON_FOLDERS = frozenset(("build_tools", "tools", "cmake", "build_helpers"))
"""Folders whose Python files take part in a build."""


class FoundFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Build files, outermost first, as paths from the project's folder."""

    paths: tuple[str, ...]
    truncated: bool


def text_of(file: Path, most_bytes: int = MOST_BYTES) -> str | None:
    """The first ``most_bytes`` of a plain file as text; None when it is missing, no plain file, or unreadable."""
    try:
        # A pipe or a device would block or never end.
        if not file.is_file():
            return None
        with file.open("rb") as stream:
            return stream.read(most_bytes).decode(errors="replace")
    except (OSError, ValueError):
        return None


def exists(path: Path) -> bool:
    """Something is there. False also where it cannot be told."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def build_files(folder: Path, passed_over: Collection[str]) -> FoundFiles:
    """The project's own build files. ``passed_over``: paths from ``folder`` not to enter (its submodules)."""
    found: list[str] = []
    level, seen, truncated = [""], 0, False
    for depth in range(DEEPEST + 1):
        below: list[str] = []
        for place in level:
            seen += 1
            if seen > MOST_FOLDERS or len(found) >= MOST_FILES:
                return FoundFiles(paths=tuple(found[:MOST_FILES]), truncated=True)
            files, folders = _listed(folder / place)
            found += [_join(place, name) for name in files if _is_build_file(place, name, depth)]
            below += [
                path
                for name in folders
                if name not in _PASSED_OVER
                and not name.startswith(".")
                and (path := _join(place, name)) not in passed_over
            ]
        level = below
    return FoundFiles(paths=tuple(found[:MOST_FILES]), truncated=truncated or len(found) > MOST_FILES)


def _is_build_file(place: str, name: str, depth: int) -> bool:
    if name in ("CMakeLists.txt", "setup.py") or name.endswith(".cmake"):
        return name != "setup.py" or depth <= 1
    if depth == 0:
        return name in ("pyproject.toml", "setup.cfg")
    return name.endswith(".py") and place.split("/")[0] in _PYTHON_FOLDERS


def _listed(folder: Path) -> tuple[list[str], list[str]]:
    """(files, folders) in it by name, sorted; links to folders are not followed: they may lead anywhere."""
    files: list[str] = []
    folders: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                (folders if entry.is_dir(follow_symlinks=False) else files).append(entry.name)
    except OSError:
        pass
    return sorted(files), sorted(folders)


def _join(place: str, name: str) -> str:
    return f"{place}/{name}" if place else name
