"""Compilers that come and go between looks."""

from __future__ import annotations

from pathlib import Path

import pytest

from builddoctor.attach.compilers import Compilers
from builddoctor.core.events import CompilerFound, Event, PhaseEnded, UnitBegan, UnitEnded
from builddoctor.core.phase import Outcome, PhaseKind
from builddoctor.estimation.estimator import LearningEstimator
from builddoctor.runtime.history_recorder import HistoryRecorder
from builddoctor.runtime.units import Toolchain
from unit.attach.test_find import called
from unit.system.test_process import PAGE_BYTES, planted
from unit.trees import TextRoot

NVCC = ("nvcc", "-c", "src/gelu.cu", "-o", "gelu.o", "-arch=sm_90")
DRIVER = (planted(10, 11, name="ninja"), planted(11, 12, name="nvcc", parent=10), called(11, *NVCC, cwd="/src/build"))


class Pages(TextRoot):
    def page_bytes(self) -> int:
        return PAGE_BYTES


class Seen:
    """One build below process 10."""

    def __init__(self, folder: Path) -> None:
        self.root = Pages()
        self.compilers = Compilers(
            10,
            boot_s=0.0,
            root=self.root,
            estimator=LearningEstimator(),
            recorder=HistoryRecorder(folder / "history.sqlite", cwd="/src", tools=Toolchain()),
        )

    def look(self, *parts: dict[str, str | None], at_s: float = 20.0, kernel_kills: int = 0) -> list[Event]:
        self.root.files = {name: text for part in parts for name, text in part.items()}
        return self.compilers.look(at_s, kernel_kills=kernel_kills)


@pytest.fixture
def seen(tmp_path: Path) -> Seen:
    return Seen(tmp_path)


def cicc(mib: int) -> tuple[dict[str, str | None], ...]:
    line = ("cicc", "--c++17", "-arch", "compute_90", "a.cpp1.ii", "-o", "a.ptx")
    return planted(12, name="cicc", parent=11, rss_mib=mib + 1), called(12, *line, cwd="/src/build")


def test_a_unit_and_its_phase_are_found_and_end(seen: Seen) -> None:
    """When each began is the kernel's word, not when it was seen; what it took at most is kept."""
    unit, phase = seen.look(*DRIVER, *cicc(700))
    assert isinstance(unit, UnitBegan)
    assert (unit.unit.source, unit.unit.output, unit.at_s) == ("src/gelu.cu", "gelu.o", 10.11)
    assert isinstance(phase, CompilerFound)
    assert (phase.phase.kind, phase.phase.source, phase.pid, phase.at_s) == (PhaseKind.CICC, "src/gelu.cu", 12, 10.12)
    assert seen.compilers.outputs == {"/src/build/gelu.o": unit.unit.unit_id}
    assert seen.look(*DRIVER, *cicc(900), at_s=21.0) == []
    assert seen.compilers.held_mib == 900
    ended, closed = seen.look(planted(10, name="ninja"), at_s=22.0)
    assert isinstance(ended, PhaseEnded)
    assert (ended.outcome, ended.peak_mib, ended.wall_s) == (Outcome.OK, 900.0, 11.88)
    assert isinstance(closed, UnitEnded)
    assert seen.compilers.held_mib == 0


def test_what_the_kernel_ended_is_the_largest_that_went(seen: Seen) -> None:
    """It counts kills, and names none."""
    small = planted(13, name="cc1plus", parent=10, rss_mib=101)
    seen.look(*DRIVER, *cicc(900), planted(10, 11, 13, name="ninja"), small)
    ended = [each for each in seen.look(planted(10, name="ninja"), kernel_kills=1) if isinstance(each, PhaseEnded)]
    told = {each.peak_mib: each.outcome for each in ended}
    assert told == {900.0: Outcome.KILLED_BY_KERNEL, 100.0: Outcome.OK}
    seen.look(planted(10, name="ninja"), kernel_kills=1)
    assert seen.compilers.killed == 1


def test_a_driver_of_conda_makes_a_unit(seen: Seen) -> None:
    """By its command line, for the kernel has cut its name."""
    line = ("/conda/bin/x86_64-conda-linux-gnu-c++", "-c", "a.cpp", "-o", "a.o")
    driver = planted(11, 12, name="x86_64-conda-li", parent=10), called(11, *line, cwd="/src")
    inner = planted(12, name="cc1plus", parent=11, rss_mib=80), called(12, "cc1plus", "a.cpp", "-o", "/tmp/x.s")
    unit, phase = seen.look(planted(10, 11, name="ninja"), *driver, *inner)
    assert isinstance(unit, UnitBegan)
    assert unit.unit.source == "a.cpp"
    assert isinstance(phase, CompilerFound)
    assert phase.phase.unit_id == unit.unit.unit_id


def test_what_else_holds_much_is_shown(seen: Seen) -> None:
    """A code generator, say; a shell and what is small are not."""
    large, small = (planted(pid, name="protoc", parent=10, rss_mib=mib) for pid, mib in ((11, 500), (12, 20)))
    (found,) = seen.look(planted(10, 11, 12, name="ninja"), large, small)
    assert isinstance(found, CompilerFound)
    assert (found.pid, found.phase.source, found.phase.kind) == (11, "protoc", PhaseKind.HOST)
