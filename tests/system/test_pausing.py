"""Compilers that no gate catches: stopped for a while when memory runs short, and never left stopped."""

from __future__ import annotations

import contextlib
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from builddoctor.core.events import Continue, Pause
from builddoctor.core.limits import LevelKind, MemoryReading
from builddoctor.estimation.estimator import LearningEstimator
from builddoctor.system.memory_sensor import MemorySensor
from builddoctor.system.root import SystemRoot, monotonic
from support.memcg import memory_cgroup
from support.program import Program
from support.schedulers import scheduler_of
from support.stand_ins import hogcc, stand_in
from unit.runtime.sessions import build_of, reading_of

pytestmark = [pytest.mark.slow, pytest.mark.machines("v2", "next")]

MIB = 1024**2
GONE_WITHIN_S = 20.0
HOG_PY = Path(__file__).parents[1] / "support" / "steady_hog.py"

LIMIT_MIB = 1024
EACH_MIB = 400
"""Four of them together do not fit, two do."""

RATE_MIB_S = 90
"""Slow enough for a builddoctor that is kept waiting for a second."""


def makefile(program: Program, count: int, wait_for: str) -> None:
    """``make -j`` of compilers called by their own path."""
    compiler = hogcc(program.folder)
    objects = " ".join(f"{number}.o" for number in range(count))
    rule = f"{compiler} {EACH_MIB} {RATE_MIB_S} {wait_for} && touch $@"
    (program.folder / "Makefile").write_text(f"all: {objects}\n\t@:\n%.o:\n\t{rule}\n")


def compilers(process: subprocess.Popen[str]) -> list[psutil.Process]:
    found = []
    for each in psutil.Process(process.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if each.name() == "hogcc":
                found.append(each)
    return found


def with_all_below(process: subprocess.Popen[str]) -> list[psutil.Process]:
    itself = psutil.Process(process.pid)
    return [itself, *itself.children(recursive=True)]


@pytest.mark.needs_memcg
def test_compilers_without_gates_that_do_not_fit_together_complete(program: Program) -> None:
    """Plain make loses one to the kernel; under builddoctor some are stopped for a while, and all complete."""
    makefile(program, 6, "/")
    with memory_cgroup(LIMIT_MIB * MIB) as group:
        plain = group.run(["make", "-j4"], cwd=program.folder, env=program.env)
        assert plain.returncode != 0
        assert group.kernel_kills > 0
    for each in program.folder.glob("*.o"):
        each.unlink()
    with memory_cgroup(LIMIT_MIB * MIB) as group:
        command = program.supervised("make", "-j4", options=["--ignore-caps"])
        done = group.run(command, cwd=program.folder, env=program.env)
        kernel_kills = group.kernel_kills
    assert done.returncode == 0, done.stderr
    assert kernel_kills == 0, done.stderr
    assert len(list(program.folder.glob("*.o"))) == 6
    records = program.records()
    stopped = [record for record in records if isinstance(record, Pause)]
    continued = [record for record in records if isinstance(record, Continue)]
    assert stopped
    assert [record.process.name for record in stopped] == ["hogcc"] * len(stopped)
    assert sorted(record.process.pid for record in stopped) == sorted(record.process.pid for record in continued)
    assert program.summary()["paused"] == len(stopped)
    assert "no gate caught" in done.stderr
    assert "That is weaker" in done.stderr


@pytest.mark.needs_memcg
def test_compilers_with_and_without_gates_complete_together(program: Program) -> None:
    """Those with gates wait before they start, or are redone; those without are stopped for a while."""
    hog = f"{sys.executable} -IS {HOG_PY}"
    stand_in(program, f"{hog} {EACH_MIB} {RATE_MIB_S} / && touch $2", name="clang++")
    makefile(program, 4, "/")
    with (program.folder / "Makefile").open("a") as rules:
        rules.write("all: a.x b.x c.x d.x\n%.x:\n\tclang++ -o $@ -c x.cpp\n")
    with memory_cgroup(LIMIT_MIB * MIB) as group:
        command = program.supervised("make", "-j6", options=["--ignore-caps", "--cores", "4"])
        done = group.run(command, cwd=program.folder, env=program.env)
        kernel_kills = group.kernel_kills
    assert done.returncode == 0, done.stderr
    assert kernel_kills == 0, done.stderr
    assert len([*program.folder.glob("*.o"), *program.folder.glob("*.x")]) == 8


def stopped_build(program: Program, command: list[str]) -> tuple[subprocess.Popen[str], psutil.Process]:
    """A build in which one is stopped by builddoctor, for as long as the others wait for a file."""
    process = program.start(command)
    record = program.await_record(Pause, process)
    assert isinstance(record, Pause)
    return process, psutil.Process(record.process.pid)


@pytest.mark.needs_memcg
@pytest.mark.trap(33)
def test_death_of_the_supervisor_leaves_none_stopped(program: Program) -> None:
    """kill -9 of builddoctor while a compiler is stopped by it: the build is ended, the stopped one too."""
    makefile(program, 4, str(program.folder / "never"))
    with memory_cgroup(LIMIT_MIB * MIB) as group:
        process, tool = stopped_build(program, group.wrapped(program.supervised("make", "-j4")))
        await_state(tool, psutil.STATUS_STOPPED)
        everything = with_all_below(process)
        process.kill()
        process.communicate()
        assert psutil.wait_procs(everything, timeout=GONE_WITHIN_S)[1] == []


@pytest.mark.needs_memcg
@pytest.mark.trap(31)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_build_leaves_none_stopped(program: Program, number: signal.Signals, code: int) -> None:
    """Ctrl-C while a compiler is stopped by builddoctor: it ends like all others."""
    makefile(program, 4, str(program.folder / "never"))
    with memory_cgroup(LIMIT_MIB * MIB) as group:
        process, _ = stopped_build(program, group.wrapped(program.supervised("make", "-j4")))
        everything = with_all_below(process)
        process.send_signal(number)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == code, output
        assert psutil.wait_procs(everything, timeout=GONE_WITHIN_S)[1] == []


@pytest.mark.needs_memcg
def test_death_of_both_supervisor_and_guardian_leaves_none_stopped(program: Program) -> None:
    """Nobody of ours is left to say so; the kernel lets a group go on that nobody can wait for any more."""
    makefile(program, 4, str(program.folder / "never"))
    with memory_cgroup(LIMIT_MIB * MIB) as group:
        process, tool = stopped_build(program, group.wrapped(program.supervised("make", "-j4")))
        everything = with_all_below(process)
        (guardian,) = psutil.Process(process.pid).children()
        guardian.suspend()
        process.kill()
        guardian.kill()
        process.communicate()
        deadline = psutil.wait_procs([tool], timeout=GONE_WITHIN_S)[1]
        assert not [each for each in deadline if each.status() == psutil.STATUS_STOPPED]
        for each in everything:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        psutil.wait_procs(everything, timeout=GONE_WITHIN_S)


FREE, FULL = (reading_of(headroom_mib, limit_mib=4096, kind=LevelKind.CGROUP_V2) for headroom_mib in (4096, 0))


def await_state(process: psutil.Process, state: str) -> None:
    deadline = time.monotonic() + GONE_WITHIN_S
    while process.status() != state:
        assert time.monotonic() < deadline, process.status()
        select.select([], [], [], 0.02)


class Scripted(MemorySensor):
    """A sensor that says what a test wants, or raises what nobody expected."""

    reading: MemoryReading | None = FREE

    def read(self, own_use_mib: float) -> MemoryReading:
        if self.reading is None:
            raise ZeroDivisionError
        return self.reading


@pytest.mark.trap(33)
def test_whatever_goes_wrong_in_between_those_that_are_stopped_go_on(tmp_path: Path) -> None:
    """Memory that can no longer be looked at, an error nobody expected: none stays stopped for it."""
    argv = [str(hogcc(tmp_path)), "100", "1000", str(tmp_path / "done")]
    compilers = [psutil.Popen(argv) for _ in range(2)]
    root = SystemRoot()
    scheduler = scheduler_of(LearningEstimator(), slots=2, budget_mib=3000)
    sensor = Scripted(root)
    built = build_of(scheduler, root, tmp_path, clock=monotonic, sensor=sensor)
    try:
        while min(each.memory_info().rss for each in compilers) < 100 * MIB:
            select.select([], [], [], 0.02)
        built.decisions.look()
        sensor.reading = FULL
        built.decisions.look()
        assert built.ungated.watching
        await_state(compilers[1], psutil.STATUS_STOPPED)
        assert compilers[0].status() != psutil.STATUS_STOPPED

        sensor.reading = None
        built.decisions.look()
        (tmp_path / "done").touch()
        assert [each.wait(GONE_WITHIN_S) for each in compilers] == [0, 0]
    finally:
        for each in compilers:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
            each.wait()


@pytest.mark.needs_memcg
def test_what_somebody_else_stopped_stays_stopped(program: Program) -> None:
    """It is his, and is not let go on; the others go through all the same."""
    file = program.folder / "file"
    makefile(program, 4, str(file))
    with memory_cgroup(4096 * MIB) as group:
        process = program.start(group.wrapped(program.supervised("make", "-j4")))
        while len(found := compilers(process)) < 4:
            assert process.poll() is None
            select.select([], [], [], 0.02)
        while found[0].memory_info().rss < 100 * MIB:
            select.select([], [], [], 0.02)
        # All of them: none grows beyond the lower limit before that is there.
        for each in found:
            each.suspend()
        group.limit(LIMIT_MIB * MIB)
        file.touch()
        for each in found[1:]:
            each.resume()
        psutil.wait_procs(found[1:], timeout=60)
        assert found[0].status() == psutil.STATUS_STOPPED
        found[0].resume()
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
