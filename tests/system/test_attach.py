"""`builddoctor attach` beside builds of a few seconds, without CUDA: what is done, what failed, what is refused."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from builddoctor.core.events import Status, UnitBegan
from builddoctor.gates.stopping import why_not
from support.program import Program

pytestmark = pytest.mark.needs_cmake

RULES = "rule cc\n command = gcc -c $in -o $out && test ! -e bad\nbuild a.o: cc a.c\nbuild b.o: cc b.c\n"


@pytest.fixture
def ninja(program: Program) -> Iterator[subprocess.Popen[bytes]]:
    """Two units: the first is done at once, the compiler of the second waits for a header to be written."""
    folder = program.folder / "build"
    folder.mkdir()
    (folder / "build.ninja").write_text(RULES)
    (folder / "a.c").write_text("int a;\n")
    (folder / "b.c").write_text('#include "b.h"\n')
    os.mkfifo(folder / "b.h")
    command = ["ninja", "-C", "build", "-j2"]
    with subprocess.Popen(command, cwd=program.folder, stdout=subprocess.DEVNULL) as build:
        yield build
        if build.poll() is None:
            build.terminate()


def attach(program: Program, build: subprocess.Popen[bytes], *before: str) -> subprocess.Popen[str]:
    """Once it has seen the unit that waits, and counted both."""
    words = program.argv("attach", str(build.pid), "--trace", str(program.trace_file))
    ours = program.start([*before, *words])
    program.await_record(UnitBegan, ours, unit=lambda unit: unit.source == "b.c")
    program.await_record(Status, ours, planned=2)
    return ours


def write(program: Program, text: str) -> None:
    Path(program.folder / "build" / "b.h").write_text(text)


def test_a_build_in_a_folder_below_is_counted_to_its_end(program: Program, ninja: subprocess.Popen[bytes]) -> None:
    """``ninja -C build``: it works in there, and its own words do not lead there any more."""
    ours = attach(program, ninja)
    write(program, "int b;\n")
    said, _ = ours.communicate()
    assert ours.returncode == 0, said
    assert "units 2 " in said


def test_a_unit_that_failed_is_undone(program: Program, ninja: subprocess.Popen[bytes]) -> None:
    """Its compiler has ended, as those do that end well: ninja's log knows."""
    ours = attach(program, ninja)
    (program.folder / "build" / "bad").touch()
    write(program, "int b;\n")
    said, _ = ours.communicate()
    assert ninja.wait() != 0
    assert ours.returncode == 1, said
    assert "with units undone" in said
    assert "units 1 of 2" in said


def test_under_nohup_it_goes_on_without_its_terminal(program: Program, ninja: subprocess.Popen[bytes]) -> None:
    ours = attach(program, ninja, "nohup")
    ours.send_signal(signal.SIGHUP)
    write(program, "int b;\n")
    said, _ = ours.communicate()
    assert "has ended after" in said


def test_what_has_started_it_is_refused(program: Program) -> None:
    """It would never end."""
    refused = program.run("attach", str(os.getpid()))
    assert refused.returncode == 64
    assert "it would wait for itself" in refused.stderr


def test_a_process_of_our_own_can_be_stopped(ninja: subprocess.Popen[bytes]) -> None:
    assert why_not(ninja.pid) == ""
    assert ninja.poll() is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may signal any process")
def test_a_process_of_another_user_cannot() -> None:
    assert why_not(1) == "they are another user's"
