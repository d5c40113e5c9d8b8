"""Projects by name, and the project that a folder is a checkout of.

Covers: names as people type them, the nearest name to one that is unknown, and recognising a folder: by the name that
its pyproject.toml or setup.py gives it, else by files that this project alone has. A name that others might give to
something of theirs counts together with those files only.
A package of somebody else's adds a project by an entry point of the group ``builddoctor.projects`` that names a
``KnownProject``; one of a name that is ours already is passed over, and so is what cannot be loaded.
Does *not* cover: the facts (``projects.catalogue``), fetching sources, or how a folder is built (``projects.plan``).
"""

from __future__ import annotations

import contextlib
import difflib
import importlib.metadata
import re
from pathlib import Path

from builddoctor.model.known_project import KnownProject
from builddoctor.projects.catalogue import KNOWN_PROJECTS
from builddoctor.sensors.setup_py import read_setup
from builddoctor.sensors.source_files import exists, text_of

_PYPROJECT_NAME = re.compile(
    r"""^\[[ \t]*project[ \t]*\][^\[]*?^name[ \t]*=[ \t]*["'](?P<name>[\w.-]+)["']""", re.MULTILINE
)
GENERIC = frozenset(("te", "torch", "apex", "fa2", "fa3", "bnb", "mamba"))


GROUP = "builddoctor.projects"


def all_projects() -> tuple[KnownProject, ...]:
    """Ours, then those of other packages."""
    found = {project.name: project for project in KNOWN_PROJECTS}
    for entry in importlib.metadata.entry_points(group=GROUP):
        project = None
        # A stranger's package must not stop a build of something else.
        with contextlib.suppress(Exception):
            project = entry.load()
        if isinstance(project, KnownProject):
            found.setdefault(project.name, project)
    return tuple(found.values())


def known_names() -> tuple[str, ...]:
    """All names, in order of the catalogue."""
    return tuple(project.name for project in all_projects())


def find_known(name: str) -> KnownProject | None:
    """The project of this name or alias: ``flash-attn``, ``Flash_Attn``; None when nobody knows it."""
    wanted = _plain(name)
    for project in all_projects():
        if wanted in {_plain(each) for each in (project.name, project.title, *project.aliases)}:
            return project
    return None


def nearest(name: str) -> str:
    """The known name that looks most like ``name``, for "did you mean"; empty when none comes close."""
    spellings = {_plain(each): project.name for project in all_projects() for each in (project.name, *project.aliases)}
    close = difflib.get_close_matches(_plain(name), spellings, n=1, cutoff=0.7)
    return spellings[close[0]] if close else ""


def recognise(folder: Path) -> KnownProject | None:
    """The known project that ``folder`` is a checkout of. Never raises; what cannot be read recognises nothing."""
    for name in _names(folder):
        project = find_known(name)
        if project is not None and (_plain(name) not in GENERIC or _marked(folder, project)):
            return project
    for project in all_projects():
        if _marked(folder, project):
            return project
    return None


def _marked(folder: Path, project: KnownProject) -> bool:
    return bool(project.marks) and all(exists(folder / mark) for mark in project.marks)


def _plain(name: str) -> str:
    return re.sub(r"[-_.\s]+", "_", name.strip().lower())


def _names(folder: Path) -> list[str]:
    """The names that the folder's build files give it."""
    names = [match["name"] for match in _PYPROJECT_NAME.finditer(text_of(folder / "pyproject.toml") or "")]
    return [*names, *read_setup(text_of(folder / "setup.py") or "").names]
