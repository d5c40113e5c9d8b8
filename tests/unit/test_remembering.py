"""History in a build."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import msgspec
import pytest

from builddoctor.history.store import History
from builddoctor.model.phase import Estimate, Outcome, PhaseKind
from builddoctor.policy.estimator import LearningEstimator
from builddoctor.supervise import remembering as module
from builddoctor.supervise.remembering import Remembering
from builddoctor.supervise.unit_keys import Toolchain
from unit.builders import phase, unit

TOOLS = Toolchain(nvcc="13.0.88", host_compiler="12.2", host_arch="x86_64")
FRONT_END = phase(kind=PhaseKind.CUDAFE, input_mib=4.0)


def build(path: Path | None, peak_mib: float, outcome: Outcome = Outcome.OK) -> tuple[Estimate, list[str]]:
    """One build of one unit: what its front end was expected to take, and what was said at the end."""
    estimator = LearningEstimator()
    remembering = Remembering(estimator, path, cwd="/home/me/demo", tools=TOOLS, gather_s=0.0)
    told = [remembering.problem] if remembering.problem else []
    began = unit(source="src/a.cu", output="a.o")
    remembering.unit_began(began, ["-c", "-O3"], "/home/me/demo")
    guess = estimator.estimate(FRONT_END)
    remembering.phase_ended(FRONT_END, outcome=outcome, peak_mib=peak_mib, wall_s=3.0)
    remembering.unit_ended(began)
    remembering.close(told.append)
    return guess, told


def test_a_second_build_expects_what_the_first_took(tmp_path: Path) -> None:
    """Written by one, found by the next."""
    first, _ = build(tmp_path / "h", 1800.0)
    second, told = build(tmp_path / "h", 1800.0)
    assert first.source != "history"
    assert second.source == "history"
    assert abs(second.peak_mib - 1800) < 100
    assert told == []


def test_what_cmake_tries_out_teaches_nothing(tmp_path: Path) -> None:
    """TransformerEngine's first C++ units were taken for 26 MiB, as CMakeCXXCompilerId.cpp is; they take 1.2 GiB."""
    estimator = LearningEstimator()
    remembering = Remembering(estimator, None, cwd="/home/me/demo", tools=TOOLS)
    host = phase(kind=PhaseKind.HOST, tool="cc1plus", input_mib=0.002)
    before = estimator.estimate(host)

    def compiled(folder: str, source: str) -> None:
        began = unit(unit_id=f"{folder}/{source}", source=source, output="a.o")
        remembering.unit_began(began, ["-c"], folder)
        tried = msgspec.structs.replace(host, unit_id=began.unit_id)
        remembering.phase_ended(tried, outcome=Outcome.OK, peak_mib=26.0, wall_s=0.1)
        estimator.observe(tried, outcome=Outcome.OK, peak_mib=26.0, wall_s=0.1)
        remembering.unit_ended(began)

    for _ in range(4):
        compiled("/home/me/demo/build/CMakeFiles/4.0.2/CompilerIdCXX", "CMakeCXXCompilerId.cpp")
        compiled("/home/me/demo/build/CMakeFiles/CMakeScratch/TryCompile-x7Hj", "CMakeCXXCompilerABI.cpp")
    assert estimator.estimate(host) == before
    uncounted = unit(unit_id="app", source="app.cpp", output="app", counted=False)
    remembering.unit_began(uncounted, ["app.cpp", "-o", "app"], "/home/me/demo")
    real = msgspec.structs.replace(host, unit_id="app")
    estimator.observe(real, outcome=Outcome.OK, peak_mib=900.0, wall_s=9.0)
    assert estimator.estimate(host).peak_mib > before.peak_mib
    for _ in range(8):
        compiled("/home/me/demo", "src/small.cpp")
    assert estimator.estimate(host).peak_mib < before.peak_mib
    remembering.close()


def test_the_second_build_foresees_its_units(tmp_path: Path) -> None:
    """Five seconds then: that is to come until the unit begins, and what it has to do from then on."""
    began = unit(source="src/a.cu", output="a.o")

    def remembering() -> Remembering:
        return Remembering(LearningEstimator(), tmp_path / "h", cwd="/home/me/demo", tools=TOOLS, gather_s=0.0)

    first = remembering()
    assert first.foreseen.to_come(1.0).count == 0
    first.unit_began(began, ["-c", "-O3"], "/home/me/demo")
    first.phase_ended(FRONT_END, outcome=Outcome.OK, peak_mib=1800.0, wall_s=3.0)
    first.phase_ended(phase(2, kind=PhaseKind.HOST), outcome=Outcome.OK, peak_mib=90.0, wall_s=2.0)
    first.unit_ended(began)
    first.close()
    second = remembering()
    to_come = second.foreseen.to_come(1.0)
    assert (to_come.count, to_come.mean_s) == (1, 5.0)
    second.unit_began(began, ["-c", "-O3"], "/home/me/demo")
    assert second.foreseen.to_come(1.0).count == 0
    assert second.foreseen.work_s(began.unit_id, 1.0) == 5.0
    second.unit_ended(began)
    assert second.foreseen.work_s(began.unit_id, 1.0) is None
    second.close()


def test_only_phases_that_did_all_their_work_are_remembered(tmp_path: Path) -> None:
    """A compile error or a kill shows what a phase took, not what it needs."""
    for outcome in (Outcome.FAILED, Outcome.KILLED_BY_US, Outcome.KILLED_BY_KERNEL, Outcome.WITHDRAWN):
        build(tmp_path / "h", 1800.0, outcome)
    opened = History.open(tmp_path / "h")
    assert opened.history is not None
    assert opened.history.projects() == []


def test_without_a_file_a_build_goes_on_without(tmp_path: Path) -> None:
    """No history, and no word about it."""
    assert build(None, 1800.0)[1] == []


def test_a_folder_that_cannot_be_made_is_said_once(tmp_path: Path) -> None:
    """And the build goes on."""
    (tmp_path / "file").touch()
    (problem,) = build(tmp_path / "file" / "history.sqlite", 1800.0)[1]
    assert problem.startswith("no history")


def test_a_file_that_is_damaged_meanwhile_is_said_at_the_end(tmp_path: Path) -> None:
    """The writer finds it so, moves it aside, begins a new one and writes to that."""
    path = tmp_path / "h"
    build(path, 1800.0)
    path.write_bytes(b"\xff" * 50_000)
    (problem,) = build(path, 1800.0)[1]
    assert "damaged" in problem
    assert build(path, 1800.0)[0].source == "history"


class Held:
    """A history file that another program holds, until it lets go."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("BEGIN EXCLUSIVE")

    def let_go(self) -> None:
        self._connection.execute("ROLLBACK")


def remembered(path: Path) -> int:
    opened = History.open(path)
    assert opened.history is not None
    return sum(row.units for row in opened.history.projects())


def one_unit(remembering: Remembering, number: int) -> None:
    began = unit(unit_id=f"u{number}", source=f"src/{number}.cu", output="a.o")
    remembering.unit_began(began, ["-c"], "/home/me/demo")
    front_end = phase(kind=PhaseKind.CUDAFE, input_mib=4.0, unit_id=began.unit_id)
    remembering.phase_ended(front_end, outcome=Outcome.OK, peak_mib=900.0, wall_s=3.0)
    remembering.unit_ended(began)


def test_a_file_that_is_held_for_a_while_costs_no_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be written is written with the next, for the whole of the build."""
    monkeypatch.setattr(module, "WRITE_WAIT_S", 0.01)
    refused = threading.Event()
    record = History.record

    def recording(history: History, units: object) -> bool:
        written = record(history, units)  # type: ignore[arg-type]
        if not written:
            refused.set()
        return written

    monkeypatch.setattr(History, "record", recording)
    path, told = tmp_path / "h", list[str]()
    remembering = Remembering(LearningEstimator(), path, cwd="/home/me/demo", tools=TOOLS, gather_s=0.0)
    one_unit(remembering, 0)
    while remembered(path) < 1:
        pass
    held = Held(path)
    one_unit(remembering, 1)
    assert refused.wait(60)
    one_unit(remembering, 2)
    held.let_go()
    one_unit(remembering, 3)
    remembering.close(told.append)
    assert remembered(path) == 4
    assert told == []


def test_a_file_that_is_held_when_a_build_begins_is_written_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And read as soon as it can be."""
    monkeypatch.setattr(module, "OPEN_WAIT_S", 0.01)
    monkeypatch.setattr(module, "OPEN_AGAIN_S", 0.0)
    path, told = tmp_path / "h", list[str]()
    build(path, 1800.0)
    held = Held(path)
    estimator = LearningEstimator()
    remembering = Remembering(estimator, path, cwd="/home/me/demo", tools=TOOLS, gather_s=0.0)
    assert remembering.problem == ""
    held.let_go()
    began = unit(source="src/a.cu", output="a.o")
    remembering.unit_began(began, ["-c", "-O3"], "/home/me/demo")
    assert estimator.estimate(FRONT_END).source == "history"
    one_unit(remembering, 1)
    remembering.close(told.append)
    assert remembered(path) == 2
    assert told == []


def test_a_file_that_is_held_to_the_end_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build waits some seconds for it, and no longer."""
    monkeypatch.setattr(module, "WRITE_WAIT_S", 0.01)
    monkeypatch.setattr(module, "CLOSE_S", 0.1)
    path, told = tmp_path / "h", list[str]()
    remembering = Remembering(LearningEstimator(), path, cwd="/home/me/demo", tools=TOOLS, gather_s=0.0)
    held = Held(path)
    one_unit(remembering, 1)
    remembering.close(told.append)
    held.let_go()
    assert len(told) == 1
    assert "held by another program" in told[0]
