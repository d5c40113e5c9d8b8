"""What a project calls itself, so that it has the same name in whatever folder it is built.

Covers, in this order: ``PKG-INFO``, pyproject.toml, setup.cfg, setup.py (as far as it says so for certain), the last
part of git's remote ``origin``, CMake's ``project()``. Files are read with bounds; nothing is run, nothing raises.
Does *not* cover: what to call it where none of them says anything.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from builddoctor.sensors.build_system import project_table_name
from builddoctor.sensors.cmake_text import without_comments
from builddoctor.sensors.setup_py import read_setup
from builddoctor.sensors.source_files import text_of

MOST_BYTES = 256 * 1024
MOST_CHARACTERS = 100

_INFO = re.compile(r"^Name:[ \t]*(\S+)", re.MULTILINE)
_CONFIG = re.compile(r"^\[metadata\][^\[]*?^name[ \t]*=[ \t]*(\S+)[ \t]*$", re.MULTILINE)
_CMAKE = re.compile(r"\bproject\s*\(\s*\"?([\w.+-]+)", re.IGNORECASE)
_ORIGIN = re.compile(r"^\[remote \"origin\"\][^\[]*?^[ \t]*url[ \t]*=[ \t]*(\S+)[ \t]*$", re.MULTILINE)
_LAST = re.compile(r"([^/:\\]+?)(?:\.git)?/*\Z")


def project_name(folder: Path) -> str:
    """Its name in small letters and dashes, as package indexes write it; empty when nothing says it."""
    info = _INFO.search(_text(folder, "PKG-INFO"))
    config = _CONFIG.search(_text(folder, "setup.cfg"))
    cmake = _CMAKE.search(without_comments(_text(folder, "CMakeLists.txt")))
    found = (
        (info[1] if info else "")
        or project_table_name(_text(folder, "pyproject.toml"))
        or (config[1] if config else "")
        or next(iter(read_setup(_text(folder, "setup.py")).names), "")
        or _origin(folder)
        or (cmake[1] if cmake else "")
    )
    return re.sub(r"[-_.\s]+", "-", found).strip("-").lower()[:MOST_CHARACTERS]


def _origin(folder: Path) -> str:
    """``builddoctor`` of ``https://host/owner/builddoctor.git``, also in a worktree."""
    git = folder / ".git"
    named = _text(folder, ".git").strip()
    if named.startswith("gitdir:") and "\0" not in named:
        git = Path(os.path.normpath(folder / named.removeprefix("gitdir:").strip()))
        shared = _text(git, "commondir").strip()
        git = Path(os.path.normpath(git / shared)) if shared and "\0" not in shared else git
    url = _ORIGIN.search(_text(git, "config"))
    last = _LAST.search(url[1]) if url else None
    return last[1] if last else ""


def _text(folder: Path, name: str) -> str:
    return text_of(folder / name, MOST_BYTES) or ""
