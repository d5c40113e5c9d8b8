"""Projects by name, and the project that a folder is a checkout of.

Covers: names as people type them, the nearest name to one that is unknown, and recognising a folder: by the name in
its pyproject.toml or setup.py, else by files that this project alone has.
Does *not* cover: the facts (``projects.known_data``), fetching sources, or how a folder is built (``projects.detect``).
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path

from builddoctor.model.known_project import KnownProject
from builddoctor.projects.known_data import KNOWN_PROJECTS

_MOST_READ_BYTES = 1024 * 1024
_PYPROJECT_NAME = re.compile(r"""^\[project\][^\[]*?^name[ \t]*=[ \t]*["'](?P<name>[\w.-]+)["']""", re.MULTILINE)
_SETUP_NAME = re.compile(
    r"""^[ \t]*name\s*=\s*["'](?P<name>[\w.-]+)["']|^PACKAGE_NAME\s*=\s*["'](?P<package>[\w.-]+)["']""", re.MULTILINE
)


def known_names() -> tuple[str, ...]:
    """All names, in order of the catalogue."""
    return tuple(project.name for project in KNOWN_PROJECTS)


def find_known(name: str) -> KnownProject | None:
    """The project of this name or alias: ``flash-attn``, ``Flash_Attn``; None when nobody knows it."""
    wanted = _plain(name)
    for project in KNOWN_PROJECTS:
        if wanted in {_plain(each) for each in (project.name, project.title, *project.aliases)}:
            return project
    return None


def nearest(name: str) -> str:
    """The known name that looks most like ``name``, for "did you mean"; empty when none comes close."""
    spellings = {_plain(each): project.name for project in KNOWN_PROJECTS for each in (project.name, *project.aliases)}
    close = difflib.get_close_matches(_plain(name), spellings, n=1, cutoff=0.7)
    return spellings[close[0]] if close else ""


def recognise(folder: Path) -> KnownProject | None:
    """The known project that ``folder`` is a checkout of. Never raises; what cannot be read recognises nothing."""
    for name in _names(folder):
        project = find_known(name)
        if project is not None:
            return project
    for project in KNOWN_PROJECTS:
        if project.marks and all(_exists(folder / mark) for mark in project.marks):
            return project
    return None


def _plain(name: str) -> str:
    return re.sub(r"[-_.\s]+", "_", name.strip().lower())


def _names(folder: Path) -> list[str]:
    """The names that the folder's build files give it; setup.py may name its extensions as well."""
    names = [match["name"] for match in _PYPROJECT_NAME.finditer(_head(folder / "pyproject.toml"))]
    matches = list(_SETUP_NAME.finditer(_head(folder / "setup.py")))
    # A constant stands for the name where there is one; the last `name=` is setup()'s own, extensions come before it.
    names += [match["package"] for match in matches if match["package"]]
    names += [match["name"] for match in reversed(matches) if match["name"]]
    return names


def _head(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            return stream.read(_MOST_READ_BYTES).decode(errors="replace")
    except (OSError, ValueError):
        return ""


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False
