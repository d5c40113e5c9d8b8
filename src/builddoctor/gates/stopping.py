"""Processes that are stopped for a while (SIGSTOP), each held by a pidfd, and let go again (SIGCONT).

Covers: one supervisor's; that a signal never reaches another process which got the same number; a keeper that lets all
of them go should the supervisor die (``keeper_program``).
Does *not* cover: which are stopped and when they go on (``scheduler.ungated``).
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Collection

from builddoctor.core.events import UngatedProcess
from builddoctor.gates import keeper_program
from builddoctor.gates.guardian import PidHandle
from builddoctor.gates.overlay import interpreter
from builddoctor.system.process import Processes


class Stopped:
    """Those that are stopped by us."""

    def __init__(self, processes: Processes, keeper: Keeper | None = None) -> None:
        """``keeper``: told of each beforehand. A supervised build has its guardian, which ends all of it."""
        self._processes = processes
        self._keeper = keeper
        self._held: dict[tuple[int, int], PidHandle] = {}

    def __len__(self) -> int:
        return len(self._held)

    def stop(self, process: UngatedProcess) -> bool:
        """Stop the process; False when it is gone, its number is another's by now, or it is not ours to stop.

        Held first and looked at afterwards. Without pidfds (before Linux 5.3) none is stopped.
        """
        try:
            handle = PidHandle(process.pid)
        except OSError:
            return False
        if self._processes.start_ticks(process.pid) != process.start_ticks:
            handle.close()
            return False
        if self._keeper is not None and not self._keeper.stops(process):
            handle.close()
            return False
        if not handle.send(signal.SIGSTOP):
            return False
        self._held[process.key] = handle
        return True

    def go_on(self, process: UngatedProcess) -> None:
        """Let it go on."""
        handle = self._held.pop(process.key, None)
        if handle is not None:
            handle.send(signal.SIGCONT)
            handle.close()

    def keep_only(self, keys: Collection[tuple[int, int]]) -> None:
        """All others go on: ended, or let go on by something else; or they wait for a disk, and will stop when that
        has answered."""
        for key in [key for key in self._held if key not in keys]:
            handle = self._held.pop(key)
            handle.send(signal.SIGCONT)
            handle.close()

    def release(self) -> None:
        """All go on, whatever is decided."""
        self.keep_only(())


class Keeper:
    """A process of a few MiB that outlives us, should we be killed: it lets go what we have stopped."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [interpreter(), "-IS", keeper_program.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def stops(self, process: UngatedProcess) -> bool:
        """It is about to be stopped; False where the keeper is gone, so that it must not be."""
        assert self._process.stdin is not None, "it was asked for"
        try:
            self._process.stdin.write(f"{process.pid} {process.start_ticks}\n".encode())
            self._process.stdin.flush()
        except OSError:
            return False
        return self._process.poll() is None

    def close(self) -> None:
        """We let all go ourselves; a second SIGCONT changes nothing."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        self._process.wait()
