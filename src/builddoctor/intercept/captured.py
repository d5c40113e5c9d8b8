"""Run a small program and take its output: probes of compilers and dry runs, never builds."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

PROBE_TIMEOUT_S = 30.0


class Captured(msgspec.Struct, frozen=True):
    """How a probe ended. ``status`` is None when it could not be started or did not end in time."""

    status: int | None
    output: str
    """stdout and stderr together"""
    problem: str = ""


def run_captured(
    argv: Sequence[str],
    *,
    executable: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    timeout_s: float = PROBE_TIMEOUT_S,
) -> Captured:
    """Run ``argv`` (or ``executable`` under that argv) without input. Never raises for what the program does."""
    try:
        done = subprocess.run(
            argv,
            executable=executable,
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Captured(None, "", f"no answer in {timeout_s:.0f} s")
    except OSError as error:
        return Captured(None, "", error.strerror or str(error))
    return Captured(done.returncode, done.stdout.decode(errors="replace"))


def count_lines(
    argv: Sequence[str], wanted: Callable[[str], object], *, cwd: str | None = None, timeout_s: float = PROBE_TIMEOUT_S
) -> int | None:
    """How many lines of a program's output are ``wanted``, none of them kept; None when it fails or takes too long."""
    deadline = time.monotonic() + timeout_s
    try:
        with subprocess.Popen(
            argv, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as process:
            assert process.stdout is not None
            found = 0
            for line in process.stdout:
                found += bool(wanted(line.decode(errors="replace")))
                if time.monotonic() > deadline:
                    process.kill()
                    return None
            return found if process.wait() == 0 else None
    except OSError:
        return None
