"""History in a build."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import msgspec
import pytest

from builddoctor.core.events import Admit, GiveUp, PhaseEnded, ToolkitChosen
from builddoctor.core.phase import Estimate, Outcome, PhaseKind
from builddoctor.core.verdict import Verdict
from builddoctor.estimation.past import RAISE_FACTOR
from builddoctor.history.store import History
from builddoctor.runtime import history_recorder as module
from builddoctor.runtime.history_recorder import HistoryRecorder
from builddoctor.runtime.units import Toolchain
from unit.builders import phase, unit
from unit.runtime.recorded import Recorded

TOOLS = Toolchain(nvcc="13.0.88", host_compiler="12.2", host_arch="x86_64")
FRONT_END = phase(kind=PhaseKind.CUDAFE, input_mib=4.0)


def recorder_of(path: Path | None) -> HistoryRecorder:
    """One build's, which writes at once."""
    return HistoryRecorder(path, cwd="/home/me/demo", tools=TOOLS, gather_s=0.0)


def build(path: Path | None, peak_mib: float, outcome: Outcome = Outcome.OK) -> tuple[Estimate, list[str]]:
    """One build of one unit: what its front end was expected to take, and what was said at the end."""
    recorder = recorder_of(path)
    told = [recorder.problem] if recorder.problem else []
    began = unit(source="src/a.cu", output="a.o")
    built = Recorded(recorder)
    built.unit_began(began, ["-c", "-O3"])
    guess = built.ran(FRONT_END, outcome=outcome, peak_mib=peak_mib, wall_s=3.0)
    built.unit_ended(began)
    recorder.close(told.append)
    return guess, told


def test_a_second_build_expects_what_the_first_took(tmp_path: Path) -> None:
    """Written by one, found by the next."""
    first, _ = build(tmp_path / "h", 1800.0)
    second, told = build(tmp_path / "h", 1800.0)
    assert first.source != "history"
    assert second.source == "history"
    assert abs(second.peak_mib - 1800) < 100
    assert told == []


def test_a_unit_is_named_by_the_toolkit_that_it_takes() -> None:
    """Also where the build has chosen that since it began."""
    recorder = recorder_of(None)
    first = recorder.unit_called(unit(source="src/a.cu", output="a.o"), [], "/home/me/demo").key
    recorder.saw(ToolkitChosen(toolkit="/opt/cuda-13.1", nvcc="13.1.115"))
    second = recorder.unit_called(unit(unit_id="u2", source="src/a.cu", output="a.o"), [], "/home/me/demo").key
    assert first is not None
    assert second == msgspec.structs.replace(first, nvcc="13.1.115")


def test_what_a_phase_held_is_remembered(tmp_path: Path) -> None:
    """The next build knows when it is large."""
    built, began = Recorded(recorder_of(tmp_path / "h")), unit(source="src/a.cu", output="a.o")
    built.unit_began(began)
    built.asked(FRONT_END)
    for at_s, mib in ((1.0, 300.0), (2.0, 300.0), (3.0, 1800.0), (4.0, 600.0)):
        built.sampled(FRONT_END, at_s, mib)
    built.ended(FRONT_END, peak_mib=1800.0, wall_s=4.0)
    built.unit_ended(began)
    built.recorder.close()
    again = Recorded(recorder_of(tmp_path / "h"))
    again.unit_began(began)
    assert again.estimator.course(FRONT_END) == ((0.5, pytest.approx(1 / 6)), (1.0, 1.0))


def test_what_cmake_tries_out_teaches_nothing(tmp_path: Path) -> None:
    """TransformerEngine's first C++ units were taken for 26 MiB, as CMakeCXXCompilerId.cpp is; they take 1.2 GiB."""
    built = Recorded(recorder_of(None))
    estimator = built.estimator
    host = phase(kind=PhaseKind.HOST, tool="cc1plus", input_mib=0.002)
    before = estimator.estimate(host)

    def compiled(folder: str, source: str) -> None:
        began = unit(unit_id=f"{folder}/{source}", source=source, output="a.o")
        built.unit_began(began, ["-c"], folder)
        built.ran(msgspec.structs.replace(host, unit_id=began.unit_id), peak_mib=26.0, wall_s=0.1)
        built.unit_ended(began)

    for _ in range(4):
        compiled("/home/me/demo/build/CMakeFiles/4.0.2/CompilerIdCXX", "CMakeCXXCompilerId.cpp")
        compiled("/home/me/demo/build/CMakeFiles/CMakeScratch/TryCompile-x7Hj", "CMakeCXXCompilerABI.cpp")
    assert estimator.estimate(host) == before
    uncounted = unit(unit_id="app", source="app.cpp", output="app", counted=False)
    built.unit_began(uncounted, ["app.cpp", "-o", "app"])
    built.ran(msgspec.structs.replace(host, unit_id="app"), peak_mib=900.0, wall_s=9.0)
    assert estimator.estimate(host).peak_mib > before.peak_mib
    for _ in range(8):
        compiled("/home/me/demo", "src/small.cpp")
    assert estimator.estimate(host).peak_mib < before.peak_mib
    built.recorder.close()


def test_the_second_build_foresees_its_units(tmp_path: Path) -> None:
    """Five seconds then: that is to come until the unit begins, and what it has to do from then on."""
    began = unit(source="src/a.cu", output="a.o")
    first = Recorded(recorder_of(tmp_path / "h"))
    assert first.recorder.foreseen.to_come(1.0).count == 0
    first.unit_began(began, ["-c", "-O3"])
    first.ran(FRONT_END, peak_mib=1800.0, wall_s=3.0)
    first.ran(phase(2, kind=PhaseKind.HOST), peak_mib=90.0, wall_s=2.0)
    first.unit_ended(began)
    first.recorder.close()
    second = Recorded(recorder_of(tmp_path / "h"))
    foreseen = second.recorder.foreseen
    to_come = foreseen.to_come(1.0)
    assert (to_come.count, to_come.mean_s) == (1, 5.0)
    second.unit_began(began, ["-c", "-O3"])
    assert foreseen.to_come(1.0).count == 0
    assert foreseen.work_s(began.unit_id, 1.0) == 5.0
    second.unit_ended(began)
    assert foreseen.work_s(began.unit_id, 1.0) is None
    second.recorder.close()


def test_only_phases_that_did_all_their_work_are_remembered(tmp_path: Path) -> None:
    """A compile error or a kill shows what a phase took, not what it needs."""
    for outcome in (Outcome.FAILED, Outcome.KILLED_BY_US, Outcome.KILLED_BY_KERNEL, Outcome.WITHDRAWN):
        build(tmp_path / "h", 1800.0, outcome)
    opened = History.open(tmp_path / "h")
    assert opened.history is not None
    assert opened.history.projects() == []


def test_what_was_run_with_less_memory_is_not_remembered(tmp_path: Path) -> None:
    """It takes less than it will without: the next build would expect too little."""
    recorder = recorder_of(tmp_path / "h")
    built = Recorded(recorder)
    began = unit(source="src/a.cu", output="a.o")
    built.unit_began(began)
    built.asked(FRONT_END)
    nothing = Estimate(peak_mib=1.0, spread_mib=0.0, source="")
    recorder.saw(Admit(phase_id=FRONT_END.phase_id, estimate=nothing, thrift=True))
    built.ended(FRONT_END, peak_mib=1800.0, wall_s=3.0)
    built.ran(phase(2, kind=PhaseKind.HOST), peak_mib=90.0, wall_s=2.0)
    built.unit_ended(began)
    recorder.close()
    opened = History.open(tmp_path / "h")
    assert opened.history is not None
    (past,) = opened.history.units("demo")
    assert [each.kind for each in past.phases] == [PhaseKind.HOST]


def test_that_a_phase_did_not_fit_is_remembered_until_it_does(tmp_path: Path) -> None:
    """It takes more than it held when it was given up; with more memory the next build knows how much."""
    file = tmp_path / "h"
    began, thrifty = unit(source="src/a.cu", output="a.o"), Estimate(peak_mib=1.0, spread_mib=0.0, source="")

    def given_up() -> Estimate:
        recorder = recorder_of(file)
        built = Recorded(recorder)
        built.unit_began(began, ["-c", "-O3"])
        expected = built.asked(FRONT_END)
        recorder.saw(Admit(phase_id=FRONT_END.phase_id, estimate=thrifty, thrift=True))
        recorder.saw(
            PhaseEnded(phase_id=FRONT_END.phase_id, outcome=Outcome.KILLED_BY_KERNEL, peak_mib=4000.0, wall_s=9.0)
        )
        recorder.saw(GiveUp(phase_id=FRONT_END.phase_id, verdict=Verdict.TOO_BIG, peak_mib=4000.0))
        built.unit_ended(began)
        recorder.close()
        return expected

    build(file, 1800.0)
    assert given_up().peak_mib < 2000
    assert given_up().peak_mib == pytest.approx(RAISE_FACTOR * 4000.0, rel=0.01)
    assert build(file, 4700.0)[0].reserve_mib > RAISE_FACTOR * 4000.0
    assert build(file, 4700.0)[0].peak_mib == pytest.approx(4700.0, rel=0.05)


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


def one_unit(built: Recorded, number: int) -> None:
    began = unit(unit_id=f"u{number}", source=f"src/{number}.cu", output="a.o")
    built.unit_began(began)
    front_end = phase(number, kind=PhaseKind.CUDAFE, input_mib=4.0, unit_id=began.unit_id)
    built.ran(front_end, peak_mib=900.0, wall_s=3.0)
    built.unit_ended(began)


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
    built = Recorded(recorder_of(path))
    one_unit(built, 0)
    while remembered(path) < 1:
        pass
    held = Held(path)
    one_unit(built, 1)
    assert refused.wait(60)
    one_unit(built, 2)
    held.let_go()
    one_unit(built, 3)
    built.recorder.close(told.append)
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
    built = Recorded(recorder_of(path))
    assert built.recorder.problem == ""
    held.let_go()
    began = unit(source="src/a.cu", output="a.o")
    built.unit_began(began, ["-c", "-O3"])
    assert built.estimator.estimate(FRONT_END).source == "history"
    one_unit(built, 1)
    built.recorder.close(told.append)
    assert remembered(path) == 2
    assert told == []


def test_a_file_that_is_held_to_the_end_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build waits some seconds for it, and no longer."""
    monkeypatch.setattr(module, "WRITE_WAIT_S", 0.01)
    monkeypatch.setattr(module, "CLOSE_S", 0.1)
    path, told = tmp_path / "h", list[str]()
    built = Recorded(recorder_of(path))
    held = Held(path)
    one_unit(built, 1)
    built.recorder.close(told.append)
    held.let_go()
    assert len(told) == 1
    assert "held by another program" in told[0]
