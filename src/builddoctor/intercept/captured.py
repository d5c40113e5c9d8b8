"""Run a small program and take its output: probes of compilers and build files, never builds.

Each is in a session of its own: what a script started ends with it, and none can ask at the terminal.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence

import msgspec

from builddoctor.intercept.side_by_side import Patience

PROBE_TIMEOUT_S = 30.0
MOST_BYTES = 4 * 1024 * 1024
"""What a probe may print. The largest answer is a compiler's list of macros, some 20 KB."""

_CHUNK_BYTES = 64 * 1024
_TICK_S = 0.1
"""How soon the end of somebody's patience is noticed."""


class Captured(msgspec.Struct, frozen=True):
    """How a probe ended. ``status`` is None when it could not be started, did not end in time, or printed too much."""

    status: int | None
    output: str
    """stdout and stderr together"""
    problem: str = ""
    silent: bool = False
    """it did not end in time, or there was no time left to ask it"""


def run_captured(
    argv: Sequence[str],
    *,
    executable: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    timeout_s: float = PROBE_TIMEOUT_S,
    most_bytes: int = MOST_BYTES,
    patience: Patience | None = None,
) -> Captured:
    """Run ``argv`` (or ``executable`` under that argv) without input. Never raises for what the program does.

    One that takes longer than ``timeout_s``, or than ``patience`` lasts, or prints more than ``most_bytes``, is killed.
    """
    if patience is not None and not patience.left_s:
        return Captured(None, "", "not asked: others took all the time there was", silent=True)
    began_s = time.monotonic()
    try:
        process = subprocess.Popen(
            argv,
            executable=executable,
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return Captured(None, "", getattr(error, "strerror", None) or str(error))
    try:
        assert process.stdout is not None
        output = _read(process.stdout.fileno(), began_s + timeout_s, most_bytes, process, patience)
        if len(output) > most_bytes:
            return Captured(None, "", f"it printed more than {most_bytes // 1024} KiB")
        return Captured(process.returncode, output.decode(errors="replace"))
    except subprocess.TimeoutExpired:
        return Captured(None, "", f"no answer in {time.monotonic() - began_s:.0f} s", silent=True)
    finally:
        _end(process)


def _read(
    fd: int, deadline_s: float, most_bytes: int, process: subprocess.Popen[bytes], patience: Patience | None
) -> bytes:
    """All that it prints until it has ended, or a little more than ``most_bytes``. Raises TimeoutExpired."""
    output = bytearray()
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    while left_s := _left_s(deadline_s, patience):
        if not poller.poll(1000 * min(left_s, _TICK_S)):
            continue
        data = os.read(fd, _CHUNK_BYTES)
        if not data:
            process.wait(_left_s(deadline_s, patience))
            return bytes(output)
        output += data
        if len(output) > most_bytes:
            return bytes(output)
    raise subprocess.TimeoutExpired(process.args, 0.0)


def _left_s(deadline_s: float, patience: Patience | None) -> float:
    own_s = max(0.0, deadline_s - time.monotonic())
    return own_s if patience is None else min(own_s, patience.left_s)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.stdout is not None:
        process.stdout.close()
    if process.returncode is None:
        # Not reaped yet, so the session's number is still its own.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
    process.wait()
