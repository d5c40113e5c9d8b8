"""Two real builds at once under one memory cgroup: both complete, and the kernel never has to kill."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from pathlib import Path

import pytest

from builddoctor.core.events import Admit, GiveUp, Kill, PhaseEnded, PhaseStarted
from support.memcg import MemoryCgroup, memory_cgroup
from support.program import PATIENCE_S, Program
from support.stand_ins import HOG, STEADY_HOG, stand_in

pytestmark = [pytest.mark.slow, pytest.mark.needs_memcg, pytest.mark.machines("v2", "next")]

MIB = 1024**2
LIMIT_MIB = 1600
HOG_MIB = 900
"""One fits, two do not."""

Running = subprocess.Popen[str]


def two_programs(tmp_path: Path) -> list[Program]:
    """Two users' shells with one ledger."""
    found: list[Program] = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        program = Program(folder)
        program.env["BUILDDOCTOR_LEDGER_DIR"] = str(tmp_path / "ledger")
        found.append(program)
    return found


def start(program: Program, group: MemoryCgroup, *units: str) -> Running:
    script = " & ".join(f"clang++ -c {unit}.cpp" for unit in units) + " & wait"
    return program.start(group.wrapped(program.supervised("sh", "-c", script, options=["--cores", "4"])))


def kernel_free(program: Program, process: Running) -> None:
    output, _ = process.communicate()
    assert process.returncode == 0, output
    assert program.summary()["kernel_oom_kills"] == 0, output
    assert not [record for record in program.records() if isinstance(record, GiveUp)], output


def ended(program: Program) -> int:
    return sum(isinstance(record, PhaseEnded) and record.outcome == "ok" for record in program.records())


def test_two_builds_whose_phases_do_not_fit_beside_each_other_both_complete(tmp_path: Path) -> None:
    """Three phases of 390 MiB each, twice, in 800 MiB: nobody kills, and neither waits until the other is done.

    As large as host code is taken to be: what outgrows that may be ended once.
    """
    one, two = programs = two_programs(tmp_path)
    ready = tmp_path / "ready"
    ready.touch()
    for program in programs:
        stand_in(program, f"{HOG} 390 650 {ready}")
    with memory_cgroup(800 * MIB) as group:
        processes = [start(program, group, "a", "b", "c") for program in programs]
        for program, process in zip(programs, processes, strict=True):
            kernel_free(program, process)
        assert group.kernel_kills == 0
    assert [program.summary()["killed"] for program in programs] == [0, 0]
    assert [ended(program) for program in programs] == [3, 3]
    began_s, first_end_s, last_end_s = zip(*(_times(program) for program in (one, two)), strict=True)
    assert max(first_end_s) < min(last_end_s), "one build waited for the whole of the other"
    assert max(began_s) < min(last_end_s)
    assert os.listdir(tmp_path / "ledger") == []


def _times(program: Program) -> tuple[float, float, float]:
    """When its first phase was let start, its first ended, and its last; on the wall clock."""
    records = program.records()
    began_s = program.trace_file.stat().st_mtime - records[-1].at_s
    starts = [record.at_s for record in records if isinstance(record, Admit)]
    ends = [record.at_s for record in records if isinstance(record, PhaseEnded)]
    return began_s + starts[0], began_s + ends[0], began_s + ends[-1]


def test_what_a_killed_build_was_promised_is_the_others_at_once(tmp_path: Path) -> None:
    """kill -9 of one while its phase holds the memory: the other, which waited for it, goes on and ends well."""
    one, two = two_programs(tmp_path)
    done = tmp_path / "done"
    stand_in(one, f"exec {HOG} {HOG_MIB} 0 {done}")
    stand_in(two, f"exec {HOG} {HOG_MIB} 0 {two.folder}")
    with memory_cgroup(LIMIT_MIB * MIB) as group:
        first = start(one, group, "a")
        one.await_record(PhaseStarted, first, phase_id=1)
        second = start(two, group, "a")
        assert second.stderr is None
        line = _line_with(second, "shares memory")
        assert f"pid {first.pid}" in line
        assert "each of the 2 has its part" in line
        assert not [record for record in two.records() if isinstance(record, PhaseStarted)]
        os.kill(first.pid, signal.SIGKILL)
        first.communicate()
        kernel_free(two, second)
        assert group.kernel_kills == 0
    assert os.listdir(tmp_path / "ledger") == []


def test_a_stopped_build_holds_nobody_up(tmp_path: Path) -> None:
    """Ctrl-Z on one: what it was promised and does not hold is the other's after a few seconds; then it goes on."""
    one, two = two_programs(tmp_path)
    done = tmp_path / "done"
    stand_in(one, f"exec {HOG} 200 0 {done}")
    stand_in(two, f"exec {HOG} {HOG_MIB} 0 {two.folder}")
    with memory_cgroup(LIMIT_MIB * MIB) as group:
        first = start(one, group, "a")
        one.await_record(PhaseStarted, first, phase_id=1)
        second = start(two, group, "a")
        try:
            _line_with(second, "shares memory")
            os.kill(first.pid, signal.SIGSTOP)
            kernel_free(two, second)
        finally:
            done.touch()
            os.kill(first.pid, signal.SIGCONT)
        kernel_free(one, first)
        assert group.kernel_kills == 0
    assert os.listdir(tmp_path / "ledger") == []


def test_a_folder_that_is_removed_is_made_again(tmp_path: Path) -> None:
    """Somebody cleans /tmp while both build: they find each other again, and neither ends with an error."""
    one, two = two_programs(tmp_path)
    done, ledger = tmp_path / "done", tmp_path / "ledger"
    stand_in(one, f"exec {HOG} {HOG_MIB} 0 {done}")
    stand_in(two, f"exec {HOG} {HOG_MIB} 0 {two.folder}")
    with memory_cgroup(LIMIT_MIB * MIB) as group:
        first = start(one, group, "a")
        one.await_record(PhaseStarted, first, phase_id=1)
        ledger.rename(tmp_path / "away")
        second = start(two, group, "a")
        assert f"pid {first.pid}" in _line_with(second, "shares memory")
        done.touch()
        for program, process in ((one, first), (two, second)):
            kernel_free(program, process)
        assert group.kernel_kills == 0
    assert os.listdir(ledger) == []


def _line_with(process: Running, words: str) -> str:
    """The next line of its output that has these words."""
    assert process.stdout is not None
    deadline = time.monotonic() + PATIENCE_S
    for line in process.stdout:
        if words in line:
            return line
        assert time.monotonic() < deadline, line
    raise AssertionError(f"it ended without saying {words!r}")


def test_last_phases_that_outgrow_their_promises_do_not_meet_the_kernel(tmp_path: Path) -> None:
    """Both were let start and both grow beyond what was expected: one is ended by builddoctor, and redone later."""
    one, two = programs = two_programs(tmp_path)
    ready = tmp_path / "ready"
    go = tmp_path / "go"
    big, limit = 2600, 4600
    for program in programs:
        wait = f"while [ ! -e {go} ]; do sleep 0.05; done"
        stand_in(program, f"{wait}; exec {STEADY_HOG} {big} 400 {ready}")
    with memory_cgroup(limit * MIB) as group:
        processes = [start(program, group, "a") for program in programs]
        for program, process in zip(programs, processes, strict=True):
            program.await_record(PhaseStarted, process, phase_id=1)
        go.touch()
        while not any(isinstance(record, Kill) for program in programs for record in program.records()):
            assert all(process.poll() is None for process in processes)
            select.select([], [], [], 0.05)
        ready.touch()
        for program, process in zip(programs, processes, strict=True):
            kernel_free(program, process)
        assert group.kernel_kills == 0
    assert sum(program.summary()["killed"] for program in (one, two)) >= 1
