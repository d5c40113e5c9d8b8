"""Run a small program and take its output: probes of compilers and build files, never builds."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

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
