"""Looking at memory while the build runs: which phases are looked at, and what happens when nothing can be seen."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from pathlib import Path

import pytest

from builddoctor.core.events import MemorySampled, MemoryUnseen, NoteLevel
from builddoctor.core.limits import MemoryReading
from builddoctor.estimation.estimator import LearningEstimator
from builddoctor.runtime import phases
from builddoctor.runtime.sampler import Rules, collector_held_back
from builddoctor.system.memory_sensor import MemorySensor
from builddoctor.system.root import SystemRoot, monotonic, page_size
from support.schedulers import scheduler_of
from unit.runtime.sessions import LIMIT_MIB, FixedSensor, asks, build_of, reading_of
from unit.runtime.test_phases import Recorder
from unit.trees import MIB, TextRoot, meminfo, plant

TOOLS = (101, 102, 103)


class Broken(MemorySensor):
    """A sensor that raises what nobody expected, until it is repaired."""

    broken = True

    def read(self, own_use_mib: float) -> MemoryReading:
        if self.broken:
            raise ZeroDivisionError
        return reading_of(LIMIT_MIB)


def test_a_build_is_not_left_unwatched_in_silence(tmp_path: Path) -> None:
    """When memory cannot be looked at, it is said, and nothing starts beside what runs; sampling goes on trying."""
    root = TextRoot(meminfo(8, 8))
    sensor = Broken(root)
    scheduler = scheduler_of(LearningEstimator(), slots=2, budget_mib=8000)
    built = build_of(scheduler, root, tmp_path, clock=monotonic, sensor=sensor)
    built.decisions.look()
    (note,) = built.notes
    assert note.level is NoteLevel.WARNING
    assert "memory cannot be watched (ZeroDivisionError())" in note.text
    assert scheduler.budget_mib == 0
    built.decisions.look()
    assert [type(event) for event in built.events].count(MemoryUnseen) == 2
    assert len(built.notes) == 1
    sensor.broken = False
    built.decisions.look()
    assert isinstance(built.events[-1], MemorySampled)
    assert scheduler.budget_mib > 0


# -- which phases are looked at --------------------------------------------------------------------------------


class Build:
    """Three phases of 100 MiB that run, sampled ten times a second."""

    def __init__(self, folder: Path, *, rest_s: float) -> None:
        files = {f"/proc/{pid}/stat": f"{pid} (cicc) S 11 {'0 ' * 30}" for pid in TOOLS}
        self.root: SystemRoot = plant(folder, {**files, "/proc/meminfo": "MemTotal: 100000000 kB\n"})
        self.now_s = 0.0
        self.sensor = FixedSensor(self.root)
        self.built = build_of(
            scheduler_of(LearningEstimator(), slots=3, budget_mib=LIMIT_MIB),
            self.root,
            folder,
            clock=lambda: self.now_s,
            sensor=self.sensor,
            rules=Rules(rest_s=rest_s),
        )
        self.all_hold(100)
        for pid in TOOLS:
            live = self.built.session.take_up(asks(), trusted=True)
            self.built.session.announce(live)
            live.tool_started(pid, self.root, self.built.processes, page_size())

    def all_hold(self, size_mib: int) -> None:
        pages = MIB // page_size()
        for pid in TOOLS:
            content = f"{(size_mib + 50) * pages} {size_mib * pages} 0 1 0 1 0\n"
            self.root.at(f"/proc/{pid}/statm").write_text(content)

    def sample(self, times: int) -> None:
        for _ in range(times):
            self.now_s += 0.1
            self.built.decisions.look()

    def close(self) -> None:
        for live in self.built.phases.values():
            live.tool_gone()

    @property
    def sizes(self) -> set[float]:
        return {live.rss_mib for live in self.built.phases.values()}


@pytest.fixture
def _nobody_is_signalled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phases, "PidHandle", lambda pid, **_: Recorder([], pid))


def after_growth(folder: Path, *, samples: int, rest_s: float = 60.0, headroom_mib: float = LIMIT_MIB) -> set[float]:
    """The sizes known so many samples after phases that had rested for long came to 900 MiB."""

    async def run() -> set[float]:
        build = Build(folder, rest_s=rest_s)
        build.sample(10)
        assert build.sizes == {100.0}
        build.all_hold(900)
        build.sensor.reading = reading_of(headroom_mib)
        build.sample(samples)
        sizes = build.sizes
        held_mib = sum(live.rss_mib for live in build.built.phases.values())
        assert build.built.sampler.held_mib == held_mib
        sampled = build.built.events[-1]
        assert isinstance(sampled, MemorySampled)
        assert sampled.held_mib == held_mib
        build.close()
        return sizes

    return asyncio.run(run())


@pytest.mark.usefixtures("_nobody_is_signalled")
def test_a_phase_that_rests_is_left_alone_for_its_time(tmp_path: Path) -> None:
    """Its last figure counts until then."""
    assert after_growth(tmp_path, samples=1) == {100.0}


@pytest.mark.usefixtures("_nobody_is_signalled")
def test_a_phase_that_rests_is_looked_at_again_after_its_time(tmp_path: Path) -> None:
    """The resting time is the longest that a figure is old."""
    assert after_growth(tmp_path, samples=8, rest_s=0.75) == {900.0}


@pytest.mark.usefixtures("_nobody_is_signalled")
def test_all_phases_are_looked_at_as_soon_as_memory_is_short(tmp_path: Path) -> None:
    """In the very sample that finds it so: one of them may have to be ended."""
    assert after_growth(tmp_path, samples=1, headroom_mib=0.1 * LIMIT_MIB) == {900.0}


@pytest.mark.usefixtures("_nobody_is_signalled")
def test_without_a_resting_time_all_phases_are_looked_at_each_time(tmp_path: Path) -> None:
    """Whatever they hold."""
    assert after_growth(tmp_path, samples=1, rest_s=0.0) == {900.0}


# -- Python's collector of cycles ------------------------------------------------------------------------------


class _Node:
    def __init__(self) -> None:
        self.itself = self


def test_what_was_there_is_left_alone_and_given_back() -> None:
    """Frozen within, and nothing after it, even when the build fails."""
    before = gc.get_freeze_count()
    with contextlib.suppress(RuntimeError), collector_held_back():
        assert gc.get_freeze_count() > before
        raise RuntimeError
    assert gc.get_freeze_count() == 0


def test_cycles_made_later_are_collected() -> None:
    """A supervisor of 50,000 phases does not grow for it."""
    with collector_held_back():
        gc.collect()
        for _ in range(100):
            _Node()
        assert gc.collect() >= 100
