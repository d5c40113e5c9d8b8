"""What a unit is called across builds: its project, its place in it, its options, its toolchain.

Does *not* cover: keeping anything under that name (``history``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from builddoctor.intercept.fronts import works_in
from builddoctor.intercept.unit_options import options_digest
from builddoctor.model.past import UnitKey
from builddoctor.model.phase import Unit
from builddoctor.sensors.project_name import project_name
from builddoctor.units import printable

_MARKS = (".git", "pyproject.toml", "setup.py", "PKG-INFO")
"""What a project's own folder holds."""

MOST_PARENTS = 8
PLACE_PARTS = 3
"""Of a source outside the project's folder, the last parts of its path."""

MOST_FOLDERS = 4096
"""Folders of sources that are kept in mind with their projects."""

_TEMPORARY = re.compile(r"pip-|build-via-sdist|\.?tmp(?:\w{6,8})?\Z|.+_(?:[0-9a-f]{32}|\d{13})\Z", re.IGNORECASE)
"""Folders whose names change from build to build: pip's, uv's, conda's."""

_COMMON_NAMES = "src source sources cpp csrc work workspace code app project repo checkout build out python"
_ANYTHING = frozenset(_COMMON_NAMES.split())
"""Folders that are called so in many projects."""

UNNAMED = "unnamed"

_SCRATCH = re.compile(r"cmTC_|a\.out\Z|conftest|_configtest|TryCompile-|CMakeScratch|CompilerId")


class Toolchain(msgspec.Struct, frozen=True, kw_only=True):
    """What compiles."""

    nvcc: str = ""
    host_compiler: str = ""
    host_arch: str = ""


class Project(msgspec.Struct, frozen=True, kw_only=True):
    """A folder, and what is built in it."""

    folder: Path
    name: str
    marked: bool = True
    """it holds what only a project's own folder does"""


class Projects:
    """The projects that one build has to do with: that of the folder it runs in, and those that it fetches (pip)."""

    def __init__(self, cwd: str) -> None:
        self._own = project_of(cwd)
        self._others: dict[str, Project | None] = {}

    @property
    def own(self) -> Project:
        """The project in the build's own folder."""
        return self._own

    def of(self, unit: Unit, cwd: str) -> Project:
        """The project of a unit's source: the build's own where that has it, else the nearest above the source."""
        source = Path(os.path.normpath(os.path.join(cwd, unit.source or unit.output or ".")))
        if self._own.marked and source.is_relative_to(self._own.folder):
            return self._own
        folder = str(source.parent)
        if folder not in self._others and len(self._others) < MOST_FOLDERS:
            found = project_of(folder)
            self._others[folder] = found if found.marked else None
        return self._others.get(folder) or self._own


def project_of(cwd: str) -> Project:
    """The project that is built in ``cwd``: that of the nearest folder above that looks like one, else of ``cwd``."""
    here = Path(os.path.normpath(cwd))
    around = (here, *here.parents[:MOST_PARENTS])
    marked = next((folder for folder in around if any(_there(folder / mark) for mark in _MARKS)), None)
    # Without any mark, CMake's outermost: a build folder lies below it.
    folder = marked or next((each for each in reversed(around) if _there(each / "CMakeLists.txt")), here)
    return Project(folder=folder, name=_name(folder), marked=marked is not None)


def project_folder(command: Sequence[str], cwd: str) -> str:
    """Where the project of a build is looked for: the folder that its command works in, unless that is a build folder
    that lies elsewhere."""
    there = works_in(command, cwd)
    return there if project_of(there).marked or not project_of(cwd).marked else cwd


def _name(folder: Path) -> str:
    """What the project calls itself, else where it was fetched from, else its folder's name."""
    if found := project_name(folder):
        return printable(found)
    if _TEMPORARY.match(folder.name):
        return UNNAMED
    if folder.name.lower() in _ANYTHING and folder.parent.name and not _TEMPORARY.match(folder.parent.name):
        return printable(f"{folder.parent.name}/{folder.name}")
    return printable(folder.name) or "/"


def _there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


def tried_out(unit: Unit, cwd: str) -> bool:
    """A configure step compiles it to see whether it can."""
    return bool(_SCRATCH.search(f"{cwd}/{unit.source}") or _SCRATCH.match(os.path.basename(unit.output)))


def unit_key(unit: Unit, argv: Sequence[str], cwd: str, project: Project, tools: Toolchain) -> UnitKey | None:
    """The unit's name; None for what a configure step tries out, which is never the same twice."""
    if tried_out(unit, cwd):
        return None
    output = os.path.basename(unit.output)
    if not unit.counted and (unit.source or not output):
        return None
    source = os.path.normpath(os.path.join(cwd, unit.source))
    return UnitKey(
        project=project.name,
        place=printable(_place(source, project.folder) if unit.source else f"link {output}"),
        output=printable(output),
        options=options_digest(argv),
        nvcc=tools.nvcc if unit.archs or unit.source.endswith(".cu") else "",
        host_compiler=tools.host_compiler,
        host_arch=tools.host_arch,
        archs=unit.archs,
    )


def _place(source: str, folder: Path) -> str:
    below = os.path.relpath(source, folder)
    if not below.startswith(".."):
        return below
    parts = [part for part in source.split("/") if part]
    for index in range(len(parts) - 1, -1, -1):
        if _TEMPORARY.match(parts[index]):
            parts = parts[index + 1 :]
            break
    return "/".join(parts[-PLACE_PARTS:])
