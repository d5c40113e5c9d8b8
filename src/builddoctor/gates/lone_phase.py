"""One phase as a child of ours: of no build here, its command handed in. A node of a cluster runs these.

Covers: start, what it prints, how it ended and what it took, and its end where it is no longer wanted.
Does *not* cover: admission: the program is a gate, and asks for its memory like any other.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

LOOK_EVERY_MS = 500
END_GRACE_S = 5.0
MOST_PRINTED = 256 * 1024
"""Bytes of what it printed; a gate takes a frame of a mebibyte."""


class LoneRun(msgspec.Struct, frozen=True, kw_only=True):
    """How it ended. ``status`` is a wait status; None for one that was no longer wanted."""

    status: int | None
    printed: bytes = b""
    peak_mib: float = 0.0
    """of the largest process"""
    cpu_s: float = 0.0
    wall_s: float = 0.0


def run_lone(argv: Sequence[str], *, env: Mapping[str, str], cwd: str, wanted: Callable[[], bool]) -> LoneRun:
    """Run it to its end. ``wanted`` is asked now and then. Raises OSError where it cannot be started."""
    began_s = time.monotonic()
    with tempfile.TemporaryFile() as printed:
        process = subprocess.Popen(
            argv,
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        pidfd = os.pidfd_open(process.pid)
        try:
            gone = _wait(pidfd, process.pid, wanted)
            # All below it: what the gate started is its child, and was waited for by it.
            _, status, usage = os.wait4(process.pid, 0)
            # It is reaped; Popen must not wait for it again.
            process.returncode = status
        finally:
            os.close(pidfd)
        printed.seek(max(0, printed.tell() - MOST_PRINTED))
        return LoneRun(
            status=None if gone else status,
            printed=printed.read(MOST_PRINTED),
            peak_mib=usage.ru_maxrss / 1024,
            cpu_s=usage.ru_utime + usage.ru_stime,
            wall_s=time.monotonic() - began_s,
        )


def _wait(pidfd: int, pid: int, wanted: Callable[[], bool]) -> bool:
    """Until it has ended; True: it was told to."""
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    while not poller.poll(LOOK_EVERY_MS):
        if not wanted():
            # Its gate hands it on; the supervisor ends what a gate leaves behind.
            for number, grace_s in ((signal.SIGTERM, END_GRACE_S), (signal.SIGKILL, None)):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, number)
                if poller.poll(None if grace_s is None else 1000 * grace_s):
                    break
            return True
    return False
