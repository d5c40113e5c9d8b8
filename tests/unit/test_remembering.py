"""History in a build."""

from __future__ import annotations

from pathlib import Path

from builddoctor.history.store import History
from builddoctor.model.phase import Estimate, Outcome, PhaseKind
from builddoctor.policy.estimator import LearningEstimator
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
