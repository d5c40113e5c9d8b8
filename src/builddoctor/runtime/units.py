"""Units: what they are called across builds, which are open, and those that wait at their nvcc gate.

Covers: a unit's name (its project, its place in it, its options, its toolchain); units that an nvcc gate registered,
and units found from a phase's ancestors, where the driver was called by an absolute path or is a gcc; when their
compiler driver ends; the answers that held gates wait for.
Does *not* cover: phases, which held unit is released (``scheduler.unit_release``), or keeping anything under a unit's
name (``history``).
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from builddoctor.core.cluster import NODE_PROGRAM
from builddoctor.core.past import UnitKey
from builddoctor.core.phase import Unit
from builddoctor.core.units import printable
from builddoctor.gates.environment import NET_MARK
from builddoctor.gates.fronts import works_in
from builddoctor.gates.gate_program import QUERIES
from builddoctor.gates.guardian import hold
from builddoctor.gates.protocol import Asked
from builddoctor.projects.metadata import project_name
from builddoctor.system.process import Processes
from builddoctor.toolchain.command_lines import driver_unit, nvcc_unit, options_digest, tried_out
from builddoctor.toolchain.discover import is_overlay
from builddoctor.toolchain.travelling import CUDA_TRAVELLERS

LOOK_AGAIN_S = 0.2

MOST_ANCESTORS = 5
"""cc1plus, gcc, shell, nvcc, and one launcher between."""

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


class Units:
    """All units by id. ``began`` and ``ended`` are called once for each.

    ``began``: the unit, the driver's arguments and folder, and whether it waits at its gate for an answer.
    """

    def __init__(
        self,
        processes: Processes,
        *,
        began: Callable[[Unit, Sequence[str], str, bool], None],
        ended: Callable[[Unit], None],
    ) -> None:
        self._processes = processes
        self._began = began
        self._ended = ended
        self.open: dict[str, Unit] = {}
        self.pids: dict[str, int] = {}
        """of their drivers"""
        self._pidfds: dict[str, int | None] = {}
        """of units whose drivers run; None where their numbers have to do"""
        self._phases: dict[str, int] = {}
        """of each unit, those whose end has not been dealt with"""
        self._counter = 0
        self.uncaught = ""
        """an nvcc that was called past its gate, by its own path"""

    def register_nvcc(self, pid: int, argv: Sequence[str], cwd: str) -> Unit:
        """An nvcc gate is about to become nvcc, under its own pid.

        By the kernel's word: in a pid namespace of its own a gate knows itself by another number, which is another
        process's here. 0: no process that can be seen from here.
        """
        self._counter += 1
        unit = nvcc_unit(f"u{self._counter}", argv, cwd)
        self._open(unit, pid, argv, cwd, at_gate=True)
        return unit

    def of(self, asked: Asked) -> str:
        """The id of the unit that a phase belongs to; found from its ancestors when no gate named it."""
        if asked.unit_id in self.open:
            return asked.unit_id
        pid, argv = self._driver(asked.parent_pid)
        if pid is None:
            return ""
        unit_id = f"{pid}.{self._processes.start_ticks(pid)}"
        if unit_id not in self.open:
            is_nvcc = os.path.basename(argv[0]) == "nvcc"
            if not is_nvcc and (os.path.basename(asked.tool) in CUDA_TRAVELLERS or NODE_PROGRAM in argv):
                # Triton's ptxas, or a node's: what called it runs one after the other, and ends with the server it is.
                return ""
            read = nvcc_unit if is_nvcc else driver_unit
            # One of ours that was only asked something (-v, say) is a gate all the same; a dry run starts none of its
            # own tools.
            caught = is_overlay(Path(argv[0])) or self._processes.environ_has(pid, NET_MARK)
            if is_nvcc and not self.uncaught and not caught and QUERIES.isdisjoint(argv):
                self.uncaught = argv[0]
            self._open(read(unit_id, argv[1:], asked.cwd), pid, argv, asked.cwd)
        return unit_id

    def enter(self, unit_id: str) -> None:
        """A phase of the unit is taken up."""
        if unit_id in self.open:
            self._phases[unit_id] = self._phases.get(unit_id, 0) + 1

    def leave(self, unit_id: str) -> None:
        """A phase of the unit is over, and all has been made of it. The unit ends, if its driver has ended before."""
        if unit_id not in self._phases:
            return
        self._phases[unit_id] -= 1
        if not self._phases[unit_id]:
            del self._phases[unit_id]
            if unit_id not in self._pidfds:
                self._finish(unit_id)

    def close(self) -> None:
        self._phases.clear()
        for unit_id in list(self.open):
            self._end(unit_id)

    def _driver(self, parent: int) -> tuple[int | None, list[str]]:
        """The nvcc above a phase, or else its direct parent."""
        first: tuple[int | None, list[str]] = (None, [])
        pid: int | None = parent
        for _ in range(MOST_ANCESTORS):
            if pid is None or pid <= 1:
                break
            argv = self._processes.argv(pid)
            if argv and first[0] is None:
                first = (pid, argv)
            if argv and os.path.basename(argv[0]) == "nvcc":
                return pid, argv
            pid = self._processes.parent(pid)
        return first

    def _open(self, unit: Unit, pid: int, argv: Sequence[str], cwd: str, *, at_gate: bool = False) -> None:
        self.open[unit.unit_id] = unit
        self.pids[unit.unit_id] = pid
        self._began(unit, argv, cwd, at_gate)
        try:
            pidfd = self._pidfds[unit.unit_id] = hold(pid)
        except ProcessLookupError:
            self._end(unit.unit_id)
        except OSError:
            self._pidfds[unit.unit_id] = None
            self._look_at_number(unit.unit_id, pid, self._processes.start_ticks(pid))
        else:
            asyncio.get_running_loop().add_reader(pidfd, self._end, unit.unit_id)

    def _look_at_number(self, unit_id: str, pid: int, start_ticks: int | None) -> None:
        """Where no process can be held: is it still there?"""
        if unit_id in self._pidfds:
            if start_ticks is None or not self._processes.lives(pid, start_ticks):
                self._end(unit_id)
            else:
                loop = asyncio.get_running_loop()
                loop.call_later(LOOK_AGAIN_S, self._look_at_number, unit_id, pid, start_ticks)

    def _end(self, unit_id: str) -> None:
        """The driver has ended. That is often known before its last phase's gate was heard, which ended earlier."""
        pidfd = self._pidfds.pop(unit_id, None)
        if pidfd is not None:
            asyncio.get_running_loop().remove_reader(pidfd)
            os.close(pidfd)
        if unit_id not in self._phases:
            self._finish(unit_id)

    def _finish(self, unit_id: str) -> None:
        self.pids.pop(unit_id, None)
        unit = self.open.pop(unit_id, None)
        if unit is not None:
            self._ended(unit)


class HeldUnits:
    """Units that wait at their nvcc gate, each with the answer that its gate waits for. Called in the event loop."""

    def __init__(self) -> None:
        self._held: dict[str, asyncio.Future[int]] = {}
        self._count = 0

    def __len__(self) -> int:
        """Units that wait."""
        return self._count

    def hold(self, unit_id: str) -> None:
        """It waits from now on; ``threads`` must be called for it."""
        self._held[unit_id] = asyncio.get_running_loop().create_future()
        self._count += 1

    def release(self, unit_id: str, threads: int = 0) -> None:
        """Let it go; nothing where it does not wait: it was never held, has gone on, or its gate died."""
        held = self._held.get(unit_id)
        if held is not None and not held.done():
            held.set_result(threads)
            self._count -= 1

    async def threads(self, unit_id: str) -> int:
        """Wait until it is open: the number for its ``--threads``, 0 for its own. At once for one that is not held."""
        held = self._held.get(unit_id)
        if held is None:
            return 0
        try:
            return await held
        finally:
            del self._held[unit_id]


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


def unit_key(unit: Unit, argv: Sequence[str], cwd: str, project: Project, tools: Toolchain) -> UnitKey | None:
    """The unit's name; None for what a configure step tries out, which is never the same twice."""
    if tried_out(unit.source, unit.output, cwd):
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
