"""Processes that are stopped for a while (SIGSTOP), each held by a pidfd, and let go again (SIGCONT).

Covers: one supervisor's; that a signal never reaches another process which got the same number; a keeper that lets all
of them go should the supervisor die, be stopped or hang (``keeper_program``).
Does *not* cover: which are stopped and when they go on (``scheduler.ungated``).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Collection

from builddoctor.core.events import UngatedProcess
from builddoctor.gates import guardian_program, keeper_program
from builddoctor.gates.guardian import PidHandle, hold
from builddoctor.gates.overlay import interpreter
from builddoctor.system.process import Processes

SILENCE_S = 10.0
"""A supervisor looks at memory once a second and more."""


def why_not(pid: int) -> str:
    """Why processes like this one cannot be stopped by us; empty where they can."""
    try:
        held = hold(pid)
    except ProcessLookupError:
        return ""
    except OSError as error:
        return f"this system holds no process for us ({error.strerror}; Linux before 5.3 cannot)"
    try:
        guardian_program.pidfd_send_signal(held, 0)  # type: ignore[no-untyped-call]
    except PermissionError:
        return "they are another user's"
    except OSError:
        # It has just ended.
        return ""
    finally:
        os.close(held)
    return ""


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
        self._let_go(process.key)

    def keep_only(self, keys: Collection[tuple[int, int]]) -> None:
        """All others go on: ended, or let go on by something else; or they wait for a disk, and will stop when that
        has answered."""
        for key in [key for key in self._held if key not in keys]:
            self._let_go(key)

    def release(self) -> None:
        """All go on, whatever is decided."""
        self.keep_only(())

    def _let_go(self, key: tuple[int, int]) -> None:
        handle = self._held.pop(key, None)
        if handle is None:
            return
        handle.send(signal.SIGCONT)
        handle.close()
        if self._keeper is not None:
            self._keeper.goes_on(key)


class Keeper:
    """A process of a few MiB that outlives us, should we be killed: it lets go what we have stopped.

    So it does when it hears nothing for ``silence_s``: Ctrl-Z, a debugger, or a disk that does not answer holds us up,
    and nobody looks at memory any more. ``lives`` has to be called more often than that.
    """

    def __init__(self, *, silence_s: float = SILENCE_S) -> None:
        self._process = subprocess.Popen(
            [interpreter(), "-IS", keeper_program.__file__, str(silence_s)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,
        )
        assert self._process.stdin is not None, "it was asked for"
        # One that does not read any more is none.
        os.set_blocking(self._process.stdin.fileno(), False)

    @property
    def pid(self) -> int:
        return self._process.pid

    def stops(self, process: UngatedProcess) -> bool:
        """It is about to be stopped; False where the keeper is gone, so that it must not be."""
        return self._say("+{1} {0}\n".format(*process.key)) and self._process.poll() is None

    def goes_on(self, key: tuple[int, int]) -> None:
        """It is not ours any more: whoever stops it now has reasons of their own."""
        self._say("-{1} {0}\n".format(*key))

    def lives(self) -> None:
        """We do, and look at memory."""
        self._say("\n")

    def close(self) -> None:
        """We let all go ourselves before."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        self._process.wait()

    def _say(self, line: str) -> bool:
        assert self._process.stdin is not None, "it was asked for"
        text = line.encode()
        try:
            # None where it does not read any more.
            return self._process.stdin.write(text) == len(text)
        except OSError:
            return False
