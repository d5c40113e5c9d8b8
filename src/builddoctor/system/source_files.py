"""Files of a project's source tree: read with bounds, and never an exception.

Covers: the text of one file; finding a project's build files (setup.py, pyproject.toml, CMakeLists.txt, ``*.cmake``,
``build_tools/``, a Makefile at the top), at most 200 of them, and whether there is CUDA code; a digest of one source
file. Does *not* cover: what they say (``projects.source_tree``).
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Collection
from pathlib import Path

import msgspec

MOST_FILES = 200
MOST_FOLDERS = 2000
MOST_BYTES = 1024 * 1024
MOST_BYTES_TOGETHER = 3 * 1024 * 1024
"""All of PyTorch's build files have 2 MB; so much is looked through in a third of a second."""
DEEPEST = 5

MOST_DIGEST_BYTES = 8 * 1024 * 1024
"""More is generated, and changes from build to build; and this is read before the compiler starts."""
DIGEST_DIGITS = 16

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
    cuda_source: str = ""
    """the first ``*.cu`` that was seen on the way"""


def text_of(file: Path, most_bytes: int = MOST_BYTES) -> str | None:
    """The first ``most_bytes`` of a plain file as text; None when it is missing, no plain file, or unreadable.

    A pipe, a socket or a device is not opened: that would block, or never end, or do something.
    """
    try:
        if not stat.S_ISREG(os.stat(file).st_mode):
            return None
        # Not blocking: by now it may be a pipe after all.
        with open(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                return None
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
    level, seen, truncated, cuda_source = [""], 0, False, ""
    for depth in range(DEEPEST + 1):
        below: list[str] = []
        for place in level:
            seen += 1
            truncated = seen > MOST_FOLDERS or len(found) >= MOST_FILES
            if truncated:
                break
            files, folders = _listed(folder / place)
            found += [_join(place, name) for name in files if _is_build_file(place, name, depth)]
            cuda_source = cuda_source or next((_join(place, name) for name in files if name.endswith(".cu")), "")
            below += [
                path
                for name in folders
                if name not in _PASSED_OVER
                and not name.startswith(".")
                and (path := _join(place, name)) not in passed_over
            ]
        if truncated:
            break
        level = below
    return FoundFiles(
        paths=tuple(found[:MOST_FILES]), truncated=truncated or len(found) > MOST_FILES, cuda_source=cuda_source
    )


def _is_build_file(place: str, name: str, depth: int) -> bool:
    if name in ("CMakeLists.txt", "setup.py") or name.endswith(".cmake"):
        return name != "setup.py" or depth <= 1
    if depth == 0:
        return name in ("pyproject.toml", "setup.cfg", "Makefile", "makefile", "GNUmakefile")
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


def source_digest(path: Path) -> str:
    """The first 16 hexadecimal digits of the file's sha256, the same in any folder; what it includes does not count.

    Empty for what is no file, too large or not readable.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            return ""
        with open(fd, "rb") as file:
            content = file.read(MOST_DIGEST_BYTES + 1)
    except (OSError, ValueError):
        return ""
    return hashlib.sha256(content).hexdigest()[:DIGEST_DIGITS] if len(content) <= MOST_DIGEST_BYTES else ""
