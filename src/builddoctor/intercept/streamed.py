"""Run a program that a user waits for, its output on our stderr as it comes: fixes, never builds.

It gets no input and no terminal, so that it cannot ask; Ctrl-C ends it with us.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence

import msgspec

END_GRACE_S = 5.0


class Streamed(msgspec.Struct, frozen=True):
    """How it ended. ``status`` is None when it could not be started."""

    status: int | None
    problem: str = ""


def run_streamed(argv: Sequence[str], *, env: Mapping[str, str], cwd: str, output_fd: int = 2) -> Streamed:
    """Run ``argv`` to its end, from the main thread. Raises KeyboardInterrupt, after it has been ended."""
    process: subprocess.Popen[bytes] | None = None
    try:
        with _interrupts_wait():
            # A session of its own: without a terminal ssh and git fail instead of asking for a password.
            process = subprocess.Popen(
                argv,
                env=env,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=output_fd,
                stderr=output_fd,
                start_new_session=True,
            )
        return Streamed(process.wait())
    except (OSError, ValueError) as error:
        return Streamed(None, str(getattr(error, "strerror", None) or error))
    except BaseException:
        if process is not None:
            _end(process)
        raise


@contextlib.contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Ctrl-C inside counts at the end: in the midst of starting, the process runs but nobody knows of it yet."""
    seen: list[int] = []
    usual = signal.signal(signal.SIGINT, lambda number, _: seen.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
    if seen:
        raise KeyboardInterrupt


def _end(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM to the session that we made, so that git removes its lock files; SIGKILL to what stays."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_GRACE_S)
            return
