"""The supervisor's side of the guardian: start it, signal the build through it, hear how it ended.

Covers: one build's guardian process. Does *not* cover: what the guardian does (``guardian_program``).
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from builddoctor.gates import guardian_program
from builddoctor.gates.overlay import interpreter
from builddoctor.gates.start_error import start_error


def become_subreaper() -> None:
    """Orphans of this process's descendants become its own children (prctl(2); needs no privilege)."""
    ctypes.CDLL(None, use_errno=True).prctl(guardian_program.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def lock_own_pages() -> None:
    """Keep this process's pages in memory, as far as RLIMIT_MEMLOCK allows.

    At a limit of cgroup v2 the kernel drops the pages of programs over and over, and reads them in again.
    """
    guardian_program.lock_pages()  # type: ignore[no-untyped-call]


class Guardian:
    """A running guardian. ``fileno`` becomes readable when it says something; then call ``hear``."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str,
        cleanup: Path,
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [interpreter(), "-IS", guardian_program.__file__, str(theirs.fileno()), str(cleanup), "--", *command],
                env=dict(env),
                cwd=cwd,
                stdin=None if not os.isatty(0) else subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        self._socket = ours
        self._heard = b""
        self._cwd, self._path = cwd, env.get("PATH") or os.defpath
        self.command = command
        self.status: int | None = None
        """wait status of the build command, once it has ended"""
        self.left = 0
        """processes that the build left behind and that were ended"""
        self.lost = False
        """the guardian died before the build did"""

    @property
    def pid(self) -> int:
        return self._process.pid

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def ended(self) -> bool:
        return self.status is not None or self.lost

    def hear(self) -> None:
        """Read what the guardian says; raises CommandNotFoundError when the command cannot be started."""
        try:
            data = self._socket.recv(4096)
        except OSError:
            data = b""
        if not data:
            self.lost = self.status is None
            return
        self._heard += data
        *lines, self._heard = self._heard.split(b"\n")
        for line in lines:
            word, _, number = line.decode().partition(" ")
            if word == "status":
                self.status = int(number)
            elif word == "left":
                self.left = int(number)
            elif word == "failed":
                raise start_error(self.command, int(number), cwd=self._cwd, path=self._path)

    def signal_build(self, number: int) -> None:
        """Send a signal to the build's process group."""
        self._send(number)

    def lock_pages(self) -> None:
        """Keep the guardian's pages in memory (``lock_own_pages``)."""
        self._send(guardian_program.LOCK_PAGES)

    def end_all(self) -> None:
        """End every process of the build."""
        self._send(guardian_program.END_ALL)

    def close(self) -> None:
        """Wait for the guardian to go; if it died early, end what it guarded (we are the next subreaper)."""
        self._socket.close()
        self._process.wait()
        if self.lost:
            orphans = guardian_program.Guardian(-1, "")  # type: ignore[no-untyped-call]
            orphans.end_all()  # type: ignore[no-untyped-call]

    def _send(self, message: int) -> None:
        try:
            self._socket.send(bytes([message]))
        except OSError:
            self.lost = self.status is None


def exit_code_of(status: int) -> int:
    """A wait status as a shell gives it: the exit code, or 128 + the signal."""
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


def hold(pid: int) -> int:
    """A descriptor of a process, readable when it has ended. An OSError other than ProcessLookupError: this kernel has
    none (before Linux 5.3), or they are forbidden."""
    held: int = guardian_program.pidfd_open(pid)  # type: ignore[no-untyped-call]
    return held


class PidHandle:
    """A process held by a pidfd: a signal through it never reaches another that got the same pid.

    ``by_number``: where there are no pidfds its number will do. For children of gates, whose numbers stay theirs until
    their gates have heard of their ends.
    """

    def __init__(self, pid: int, *, by_number: bool = False) -> None:
        self.pid = pid
        self._open = True
        self._fd: int | None = None
        try:
            self._fd = hold(pid)
        except ProcessLookupError:
            raise
        except OSError:
            if not by_number:
                raise

    def fileno(self) -> int:
        return -1 if self._fd is None else self._fd

    def kill(self) -> None:
        self.send(signal.SIGKILL)

    def send(self, number: signal.Signals) -> bool:
        """Send a signal; False when the process is gone, or may not be signalled."""
        if self._open:
            try:
                if self._fd is None:
                    os.kill(self.pid, number)
                else:
                    guardian_program.pidfd_send_signal(self._fd, number)  # type: ignore[no-untyped-call]
            except OSError:
                self.close()
        return self._open

    def close(self) -> None:
        self._open = False
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
