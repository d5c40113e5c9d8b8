"""Open units: who they are, and when their compiler driver ends.

Covers: units that an nvcc gate registered, and units found from a phase's ancestors, where the driver was called by an
absolute path or is a gcc. Does *not* cover: phases.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable, Sequence

from builddoctor.intercept.command_lines import driver_unit, nvcc_unit
from builddoctor.intercept.environment import NET_MARK
from builddoctor.intercept.guardian import hold
from builddoctor.intercept.protocol import Asked
from builddoctor.model.phase import Unit
from builddoctor.sensors.process import Processes

LOOK_AGAIN_S = 0.2

MOST_ANCESTORS = 5
"""cc1plus, gcc, shell, nvcc, and one launcher between."""


class Units:
    """All units by id. ``began`` and ``ended`` are called once for each; before, ``called`` with its arguments.

    ``began``: the unit, a digest of its arguments, and whether it waits at its gate for an answer.
    """

    def __init__(
        self,
        processes: Processes,
        *,
        began: Callable[[Unit, str, bool], None],
        ended: Callable[[Unit], None],
        called: Callable[[Unit, Sequence[str], str], None] = lambda *_: None,
    ) -> None:
        self._processes = processes
        self._began = began
        self._ended = ended
        self._called = called
        self.also_called: Callable[[Unit, Sequence[str], str], None] = lambda *_: None
        self.open: dict[str, Unit] = {}
        self._pidfds: dict[str, int | None] = {}
        """of units whose drivers run; None where their numbers have to do"""
        self._phases: dict[str, int] = {}
        """of each unit, those whose end has not been dealt with"""
        self._counter = 0
        self.uncaught = ""
        """an nvcc that was called past its gate, by its own path"""

    def register_nvcc(self, pid: int, argv: Sequence[str], cwd: str) -> Unit:
        """An nvcc gate is about to become nvcc, under its own pid.

        By the kernel's word: in a pid namespace of its own a gate knows itself by another number, which is somebody
        else's here. 0: nobody that can be seen from here.
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
            read = nvcc_unit if is_nvcc else driver_unit
            if is_nvcc and not self.uncaught and not self._processes.environ_has(pid, NET_MARK):
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
        self._called(unit, argv, cwd)
        self.also_called(unit, argv, cwd)
        self._began(unit, hashlib.sha256("\0".join(argv).encode(errors="replace")).hexdigest()[:16], at_gate)
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
        unit = self.open.pop(unit_id, None)
        if unit is not None:
            self._ended(unit)
