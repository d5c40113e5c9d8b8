"""`builddoctor attach` beside a build that knows nothing of it: real nvcc, a real memory cgroup."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from builddoctor.core.events import BuildEnded, CompilerFound, Continue, Pause, Status
from builddoctor.trace.reader import TraceReader
from support.example import Example
from support.memcg import memory_cgroup
from support.program import PATIENCE_S, Program

pytestmark = [pytest.mark.needs_nvcc, pytest.mark.needs_cmake, pytest.mark.needs_memcg, pytest.mark.slow]

GIB = 1024**3


def test_a_plain_build_is_followed_to_the_unit_and_left_as_it_is(example: Example, program: Program) -> None:
    trace = program.folder / "attached.jsonl"
    example.configure_plainly()
    with memory_cgroup(7 * GIB) as group:
        command = group.wrapped(["ninja", "-C", str(example.build), "-j4"])
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as plain:
            followed = program.run("attach", str(plain.pid), "--trace", str(trace))
        assert plain.returncode == 0
    assert followed.returncode == 0, followed.stderr
    events = list(TraceReader(trace))
    summary = next(event.summary for event in events if isinstance(event, BuildEnded))
    planned = [event.planned for event in events if isinstance(event, Status)]
    assert (
        summary.units == planned[-1] == len(list(example.build.rglob("*.cu.o")) + list(example.build.rglob("*.cpp.o")))
    )
    assert {"cicc", "cc1plus"} <= {event.phase.tool for event in events if isinstance(event, CompilerFound)}
    assert not any(isinstance(event, Pause) for event in events)


def test_what_was_stopped_goes_on_when_the_guard_is_killed(example: Example, program: Program) -> None:
    trace = program.folder / "attached.jsonl"
    example.configure_plainly()
    with memory_cgroup(2816 * 1024 * 1024) as group:
        command = group.wrapped(["ninja", "-C", str(example.build), "-j4", "-k", "0"])
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as plain:
            with program.start(program.argv("attach", str(plain.pid), "--guard", "--trace", str(trace))) as ours:
                paused: set[int] = set()
                while plain.poll() is None and not paused:
                    for event in TraceReader(trace) if trace.exists() and trace.stat().st_size else ():
                        if isinstance(event, Pause):
                            paused.add(event.process.pid)
                        elif isinstance(event, Continue):
                            paused.discard(event.process.pid)
                os.kill(ours.pid, signal.SIGKILL)
            assert paused, "memory was short, and nothing was stopped"
            # Ended only where all that was stopped has gone on: a stopped compiler holds ninja up for ever.
            plain.wait(4 * PATIENCE_S)
    assert plain.returncode is not None


def test_a_build_that_is_supervised_already_is_not_attached_to(program: Program) -> None:
    with subprocess.Popen(["sleep", "60"], env={**os.environ, "BUILDDOCTOR_SOCKET": "/nowhere"}) as build:
        refused = program.run("attach", str(build.pid))
        build.kill()
    assert refused.returncode == 64
    assert "builddoctor watch" in refused.stderr
