"""What is examined: a project by name, a folder, or nothing but the machine.

Does *not* cover: reading the folder (``sensors.source``).
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import msgspec

from builddoctor.errors import NoBuildSystemError, ProjectNotFoundError, UsageError
from builddoctor.model.known_project import KnownProject
from builddoctor.projects.archs import Arch
from builddoctor.projects.known import find_known, known_names, nearest, recognise

BUILD_FILES = ("setup.py", "pyproject.toml", "CMakeLists.txt", "build.ninja", ".gitmodules")


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """One project, as far as it is known."""

    folder: Path | None = None
    """its sources; None where only its name is known, or there is no project at all"""
    known: KnownProject | None = None
    archs: tuple[Arch, ...] = ()

    @property
    def title(self) -> str:
        """What the page calls it; empty without a project."""
        if self.known is not None:
            return self.known.title
        return self.folder.name if self.folder is not None else ""


def current_folder() -> Path | None:
    """None when it has been deleted."""
    try:
        return Path.cwd()
    except OSError:
        return None


def find_subject(named: str | None, here: Path | None, archs: tuple[Arch, ...]) -> Subject:
    """What ``named`` (a path or a project's name; None for ``here``) stands for. ``here`` is None when it is gone.

    Raises ProjectNotFoundError, NoBuildSystemError for a file, UsageError for a name of no letters.

    A name goes before a folder of that name inside that project's own checkout: TransformerEngine's holds a package
    ``transformer_engine``.
    """
    if named is None:
        return subject_of(here, archs) if here is not None and is_project(here) else Subject(archs=archs)
    if not named.strip():
        raise UsageError("the name of the project is empty", hint="builddoctor doctor .")
    known = find_known(named) if "/" not in named else None
    if known is not None and here is not None and recognise(here) == known:
        return Subject(folder=here, known=known, archs=archs)
    folder = Path(here or "/", os.path.expanduser(named))
    if here is None and known is None and not os.path.isabs(os.path.expanduser(named)):
        raise ProjectNotFoundError(
            f"the current folder has been deleted, so there is no {named} in it",
            hint="give its full path",
        )
    if os.path.isfile(folder):
        above = os.path.dirname(named) or "."
        raise NoBuildSystemError(
            f"{named} is a file, not a project folder", hint=f"builddoctor doctor {shlex.quote(above)}"
        )
    if os.path.isdir(folder) and (known is None or recognise(folder) == known):
        return subject_of(folder, archs)
    if known is not None:
        return Subject(known=known, archs=archs)
    close = nearest(named)
    raise ProjectNotFoundError(
        f"neither a folder nor a project that we know: {named}",
        hint=f"did you mean `builddoctor doctor {close}`?" if close else f"known by name: {', '.join(known_names())}",
    )


def subject_of(folder: Path, archs: tuple[Arch, ...]) -> Subject:
    """The project in this folder."""
    real = Path(os.path.realpath(folder))
    return Subject(folder=real, known=recognise(real), archs=archs)


def is_project(folder: Path) -> bool:
    """There is something here that can be built."""
    return any(os.path.exists(folder / name) for name in BUILD_FILES)
