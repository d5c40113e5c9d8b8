"""Ninja after its first failure: which one it is, what it still waits for, and ending it.

Covers: the ninja that ends with a unit that failed; the units that it has started; ending it in order.
Does *not* cover: which of those units are built all the same, and when it is to end (``scheduler.first_failure``).

Ninja starts nothing more after a failure, but waits for all that it has started. With ``-j2`` that is one unit more;
with the many that it starts here, so that there is a choice among them, it would be all of these.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal

from builddoctor.core.events import NinjaFailed
from builddoctor.gates.fronts import NINJA_NAMES, ends_at_failure
from builddoctor.gates.guardian import PidHandle
from builddoctor.runtime.units import Units
from builddoctor.system.process import Processes

LOOK_EVERY_S = 0.2

MOST_BETWEEN = 8
"""Shells and launchers between a compiler driver and its ninja."""

_SHELLS = ("sh", "bash", "dash")
_LAUNCHERS = ("ccache",)
"""What fails when the compiler below it does."""

_MAY_MAKE_UP = re.compile(r"[|;\n!]|(?<![&>])&(?!&)")
"""In a shell's command: it may go well where the compiler did not."""


class FailedNinjas:
    """Of one build. Called in the event loop."""

    def __init__(self, units: Units, processes: Processes) -> None:
        self._units = units
        self._processes = processes
        self._started: dict[int, int] = {}
        """of each ninja that had a failure: when it was started, which tells it from a later one of the same number"""

    def of(self, unit_id: str, at_s: float) -> NinjaFailed | None:
        """What a unit's failure means; None where its build may go on. Asked while its compiler driver runs."""
        driver = self._units.pids.get(unit_id)
        ninja = None if driver is None else self._ended_by(driver)
        started = None if ninja is None else self._processes.start_ticks(ninja)
        if ninja is None or started is None or self._started.get(ninja) == started:
            return None
        self._started[ninja] = started
        below = tuple(each for each, pid in self._units.pids.items() if self._job_of(ninja, pid) is not None)
        return NinjaFailed(at_s=at_s, pid=ninja, unit_id=unit_id, units=below)

    def end(self, ninja: int, left: tuple[str, ...]) -> None:
        """As soon as it waits for nothing but these units: whatever else it has started ends by itself, and it has
        printed what that said. On SIGINT ninja ends what it started, and removes what was half written."""
        if self._processes.start_ticks(ninja) != self._started.get(ninja):
            return
        jobs = {self._job_of(ninja, pid) for each in left if (pid := self._units.pids.get(each)) is not None}
        if not jobs.issuperset(self._processes.children(ninja)):
            asyncio.get_running_loop().call_later(LOOK_EVERY_S, self.end, ninja, left)
            return
        with contextlib.suppress(OSError):
            handle = PidHandle(ninja, by_number=True)
            handle.send(signal.SIGINT)
            handle.close()

    def _ended_by(self, driver: int) -> int | None:
        """The ninja that ends with this compiler driver's failure; None where something between may make up for it."""
        pid: int | None = driver
        for _ in range(MOST_BETWEEN):
            pid = self._processes.parent(pid) if pid is not None else None
            argv = self._processes.argv(pid) if pid is not None else []
            name = os.path.basename(argv[0]) if argv else ""
            if name in NINJA_NAMES:
                return pid if ends_at_failure(argv[1:]) else None
            plain = name in _SHELLS and len(argv) == 3 and argv[1] == "-c" and not _MAY_MAKE_UP.search(argv[2])
            if not plain and name not in _LAUNCHERS:
                break
        return None

    def _job_of(self, ninja: int, pid: int | None) -> int | None:
        """The child of this ninja that a process belongs to; None for one of another."""
        for _ in range(MOST_BETWEEN):
            if pid is None:
                break
            parent = self._processes.parent(pid)
            if parent == ninja:
                return pid
            pid = parent
        return None
