"""Projects by name, and the project that a folder is a checkout of.

Covers: the projects of this folder, one TOML file each; names in any spelling, the nearest name to one that is unknown,
and recognising a folder: by the name that its pyproject.toml or setup.py gives it, else by files that only this project
has. A name that is in use elsewhere too (``torch``, ``te``) counts only together with those files. Also what a
project's own build holds beside its compilers.
To add a project, write one file; ``core.project`` has the keys. Another package adds a project by an entry point
of the group ``builddoctor.projects`` that names a ``KnownProject``. It is skipped where a shipped project has its name,
or where it cannot be loaded.
Does *not* cover: fetching sources (``projects.sources``), or how a folder is built (``projects.build_plan``).
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import importlib.metadata
import re
from pathlib import Path

import msgspec

from builddoctor.core.project import KnownProject
from builddoctor.projects.metadata import names_of
from builddoctor.system.source_files import exists

GENERIC = frozenset(("te", "torch", "apex", "fa2", "fa3", "fa4", "bnb", "mamba", "faiss", "nccl"))
"""Names that are in use elsewhere too."""
GROUP = "builddoctor.projects"


@functools.cache
def shipped_projects() -> tuple[KnownProject, ...]:
    """Those of this folder, in order of their names."""
    files = sorted(Path(__file__).parent.glob("*.toml"))
    return tuple(map(_read, files))


def _read(file: Path) -> KnownProject:
    try:
        return msgspec.toml.decode(file.read_bytes(), type=KnownProject)
    except msgspec.ValidationError as error:
        raise ValueError(f"{file.name}: {error}") from error


def known_projects() -> tuple[KnownProject, ...]:
    """The shipped ones, then those of other packages."""
    found = {project.name: project for project in shipped_projects()}
    for entry in importlib.metadata.entry_points(group=GROUP):
        project = None
        # A defect of that package must not stop a build of something else.
        with contextlib.suppress(Exception):
            project = entry.load()
        if isinstance(project, KnownProject):
            found.setdefault(project.name, project)
    return tuple(found.values())


def known_names() -> tuple[str, ...]:
    """All names, in the same order."""
    return tuple(project.name for project in known_projects())


def find_known(name: str) -> KnownProject | None:
    """The project of this name or alias: ``flash-attn``, ``Flash_Attn``; None for an unknown name."""
    wanted = _plain(name)
    for project in known_projects():
        if wanted in {_plain(each) for each in (project.name, project.title, *project.aliases)}:
            return project
    return None


BESIDE_TORCH_MIB = 390.0
BESIDE_WHEEL_MIB = 180.0
"""What builddoctor, pip and the build's own Python held while compilers ran, at the median: 382 to 393 MiB where torch
was imported (mamba-ssm, causal-conv1d), 178 of LightGBM by scikit-build-core (docs/results/projects.md)."""


def beside_mib(name: str) -> float:
    """Held beside this project's compilers by what starts them; 0 where that is not known."""
    known = find_known(name)
    if known is None:
        return 0.0
    if known.needs_torch or "torch" in known.optional_packages:
        return BESIDE_TORCH_MIB
    return BESIDE_WHEEL_MIB if known.package else 0.0


def nearest_project(name: str) -> str:
    """The known name that looks most like ``name``, for "did you mean"; empty when none comes close."""
    spelt = {_plain(each): project.name for project in known_projects() for each in (project.name, *project.aliases)}
    close = difflib.get_close_matches(_plain(name), spelt, n=1, cutoff=0.7)
    return spelt[close[0]] if close else ""


def recognise(folder: Path) -> KnownProject | None:
    """The known project that ``folder`` is a checkout of. Never raises; what cannot be read recognises nothing."""
    for name in names_of(folder):
        project = find_known(name)
        if project is not None and (_plain(name) not in GENERIC or _marked(folder, project)):
            return project
    return next((project for project in known_projects() if _marked(folder, project)), None)


def _marked(folder: Path, project: KnownProject) -> bool:
    return bool(project.marks) and all(exists(folder / mark) for mark in project.marks)


def _plain(name: str) -> str:
    return re.sub(r"[-_.\s]+", "_", name.strip().lower())
