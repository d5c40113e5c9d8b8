"""`builddoctor watch`: a build seen from another terminal, until it ends, however that is."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
from collections.abc import Iterator

import pytest

from builddoctor.core.events import PhaseStarted
from support.program import Program
from support.stand_ins import stand_in
from support.tmux import Tmux, terminal
from support.waiting_build import SMALL, waiting_build

pytestmark = pytest.mark.needs_tmux


@pytest.fixture
def build(program: Program) -> Iterator[subprocess.Popen[str]]:
    """A running build, of which two units wait; it ends, with code 3, when there is a file ``done``."""
    process = program.start(program.supervised(*waiting_build(program, "exit 3"), options=SMALL))
    program.await_record(PhaseStarted, process)
    yield process
    (program.folder / "done").touch()
    process.communicate(timeout=60)


@pytest.fixture
def tmux(program: Program, build: subprocess.Popen[str]) -> Iterator[Tmux]:
    with terminal(program.folder, program.env) as tmux:
        yield tmux


def watch(program: Program) -> str:
    return shlex.join(program.argv("watch", str(program.trace_file)))


def seen(text: str) -> bool:
    return re.search(r"host code +\S+\.cpp +2\d\d MiB (of ~|over )", text) is not None and "waits" in text


def test_another_terminal_shows_the_same_until_the_end(
    program: Program, build: subprocess.Popen[str], tmux: Tmux
) -> None:
    """Board, keys, and at the end the build's result and its exit code."""
    modes = tmux.modes()
    tmux.type(watch(program))
    text = tmux.wait_for(seen)
    assert re.search(r"waits     to run alone: \S+\.cpp host code, once", text)
    assert "q quits, the build goes on" in text
    tmux.key("d")
    tmux.wait_for(lambda text: "fewer details" in text)
    (program.folder / "done").touch()
    text = tmux.wait_for_prompt()
    assert "failed with exit code 3" in text
    assert "GiB budget" not in text
    tmux.type("echo code $?")
    tmux.wait_for(lambda text: "code 3" in text)
    assert tmux.modes() == modes


def test_q_quits_watching_alone(program: Program, build: subprocess.Popen[str], tmux: Tmux) -> None:
    """The build does not hear of it."""
    tmux.type(watch(program) + "; echo code $?")
    tmux.wait_for(seen)
    tmux.key("q")
    tmux.wait_for(lambda text: "\ncode 0" in f"\n{text}" and "GiB budget" not in text)
    assert build.poll() is None


def test_a_builddoctor_that_was_killed_is_told(program: Program, build: subprocess.Popen[str], tmux: Tmux) -> None:
    """The trace stops short, and that is said instead of waiting for ever."""
    tmux.type(f"{watch(program)}; echo code $?")
    tmux.wait_for(seen)
    program_trace = program.trace_file
    build.send_signal(signal.SIGKILL)
    program_trace.rename(program_trace.with_name("moved"))
    program_trace.with_name("moved").unlink()
    tmux.wait_for(lambda text: "code 7" in text or "code 8" in text)
    text = "\n".join(tmux.everything())
    assert "the trace stops short after 0:" in text
    assert "the trace was removed" in text


def test_without_a_terminal_there_are_lines(program: Program, build: subprocess.Popen[str]) -> None:
    """Progress on stderr, and at the end the result."""
    with subprocess.Popen(
        program.argv("watch", str(program.trace_file)), env=program.env, stderr=subprocess.PIPE, text=True
    ) as watcher:
        assert watcher.stderr is not None
        first, second = watcher.stderr.readline(), watcher.stderr.readline()
        (program.folder / "done").touch()
        rest = watcher.stderr.read()
    assert re.match(r"\[\d:\d\d\] 0(/3)? units, 1 running, \d waiting, ", first)
    assert re.match(r"\[\d:\d\d\] waits to run alone: transformer_engine/", second)
    assert "failed with exit code 3" in rest
    assert watcher.returncode == 3
    # What died, why, and what next: the same last words as where it runs.
    assert "builddoctor trace show" in rest


def test_a_build_that_has_ended_is_told_at_once(program: Program) -> None:
    """By the name of its trace, and as the last."""
    stand_in(program, "exit 0")
    program.run("run", "--", "true")
    done = program.run("watch")
    assert (done.returncode, "✓ true in 0:0" in done.stderr) == (0, True)
    assert "no trace" in program.run("watch", "nosuch").stderr


def test_every_decision_can_be_followed(program: Program, build: subprocess.Popen[str]) -> None:
    """As lines, from now on; where memory comes back, what waited starts."""
    watching = program.start(program.argv("watch", "-v", str(program.trace_file)))
    assert watching.stdout is not None
    # The first line of progress: what was there before has been read.
    before = watching.stdout.readline()
    (program.folder / "done").touch()
    said = watching.communicate(timeout=60)[0]
    assert watching.returncode == 3
    assert "GiB budget" in before
    assert len(re.findall(r"^\[[\d:]+\] starts host code of \S+\.cpp", said, re.MULTILINE)) == 2
