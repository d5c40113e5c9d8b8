"""Run one command to its end in bounded memory and time, and say how much memory its largest process had.

Does *not* cover: builds. The command is in a session of its own; all of it ends with it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

import msgspec

from builddoctor.intercept.captured import run_captured

_PROGRAM = """
import os, resource, sys, time
most = int(sys.argv[1])
began = time.monotonic()
child = os.fork()
if child == 0:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    try:
        os.execvp(sys.argv[2], sys.argv[2:])
    except OSError as error:
        sys.stderr.write("%s: %s\\n" % (sys.argv[2], error.strerror))
        os._exit(127)
_, status, usage = os.wait4(child, 0)
print("\\n%s %d %d %.3f" % ("ended", status, usage.ru_maxrss, time.monotonic() - began), flush=True)
"""
"""The process between: what a fork of ours is charged with would be our own size. Its own is some 9 MiB."""


class MeasuredRun(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended. ``exit_code`` is None for one that died of ``signal``, or did not end in time."""

    exit_code: int | None = None
    signal: int | None = None
    peak_mib: float = 0.0
    wall_s: float = 0.0
    output: str = ""
    """its last lines"""
    problem: str = ""


def run_measured(
    argv: Sequence[str], *, cwd: str, env: Mapping[str, str], memory_mib: float, timeout_s: float
) -> MeasuredRun:
    """Run ``argv`` in ``memory_mib`` of address space. Never raises for what it does."""
    python = os.path.realpath(sys.executable)
    words = [python, "-IS", "-c", _PROGRAM, str(int(memory_mib * 1024 * 1024)), *argv]
    done = run_captured(words, env=env, cwd=cwd, timeout_s=timeout_s)
    said, _, last = done.output.rstrip("\n").rpartition("\nended ")
    fields = last.split()
    if done.status != 0 or len(fields) != 3:
        return MeasuredRun(problem=done.problem or "it could not be run", wall_s=timeout_s, output=_tail(done.output))
    status = int(fields[0])
    died = os.WIFSIGNALED(status)
    return MeasuredRun(
        exit_code=None if died else os.WEXITSTATUS(status),
        signal=os.WTERMSIG(status) if died else None,
        peak_mib=round(int(fields[1]) / 1024, 1),
        wall_s=float(fields[2]),
        output=_tail(said),
    )


def _tail(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-12:])
