"""Whom a sample looks at: those that move, and everyone when memory is short."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from builddoctor.model.limits import MemoryLevel, MemoryReading
from builddoctor.policy.estimator import LearningEstimator
from builddoctor.policy.governor import Governor
from builddoctor.policy.rules import Rules
from builddoctor.sensors.limits import MemorySensor
from builddoctor.sensors.root import SystemRoot
from builddoctor.supervise import phases
from builddoctor.supervise.sampler import Sampler
from unit.sessions import asks, session
from unit.test_live_phase import Recorder
from unit.trees import plant

TOOLS = (101, 102, 103)
LIMIT_MIB = 100_000.0


class Sensor(MemorySensor):
    """Says what a test wants."""

    headroom_mib = LIMIT_MIB

    def read(self, own_use_mib: float) -> MemoryReading:
        level = MemoryLevel(source="x", kind="flag", limit_mib=LIMIT_MIB, headroom_mib=self.headroom_mib)
        return MemoryReading(levels=(level,))


class Build:
    """Three phases of 100 MiB that run, sampled ten times a second."""

    def __init__(self, folder: Path, *, rest_s: float) -> None:
        files = {f"/proc/{pid}/stat": f"{pid} (cicc) S 11 {'0 ' * 30}" for pid in TOOLS}
        self.root: SystemRoot = plant(folder, {**files, "/proc/meminfo": "MemTotal: 100000000 kB\n"})
        self.now_s = 0.0
        governor = Governor(LearningEstimator(), slots=3, budget_mib=LIMIT_MIB)
        self.session = session(governor, self.root, folder / "trace", clock=lambda: self.now_s)
        self.sensor = Sensor(self.root)
        reading = self.sensor.read(0.0)
        rules = Rules(rest_s=rest_s)
        self.sampler = Sampler(self.session, self.sensor, clock=lambda: self.now_s, reading=reading, rules=rules)
        self.all_hold(100)
        for pid in TOOLS:
            live = self.session.take_up(asks(), trusted=True)
            self.session.announce(live)
            live.tool_started(pid, self.root, self.session.processes, self.session.page_bytes)

    def all_hold(self, size_mib: int) -> None:
        for pid in TOOLS:
            self.root.at(f"/proc/{pid}/statm").write_text(f"{size_mib + 50} {size_mib} 0 1 0 1 0\n")

    def sample(self, times: int) -> None:
        for _ in range(times):
            self.now_s += 0.1
            self.sampler.sample()

    def close(self) -> None:
        for live in self.session.live.values():
            live.tool_gone()
        self.session.trace.close()

    @property
    def sizes(self) -> set[float]:
        return {live.rss_mib for live in self.session.live.values()}


@pytest.fixture(autouse=True)
def _nobody_is_signalled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phases, "PidHandle", lambda pid, **_: Recorder([], pid))


def after_growth(folder: Path, *, samples: int, rest_s: float = 60.0, headroom_mib: float = LIMIT_MIB) -> set[float]:
    """The sizes known so many samples after phases that had rested for long came to 900 MiB."""

    async def run() -> set[float]:
        build = Build(folder, rest_s=rest_s)
        build.sample(10)
        assert build.sizes == {100.0}
        build.all_hold(900)
        build.sensor.headroom_mib = headroom_mib
        build.sample(samples)
        sizes = build.sizes
        assert build.sampler.total_mib == sum(live.rss_mib for live in build.session.live.values())
        build.close()
        return sizes

    return asyncio.run(run())


def test_who_rests_is_left_alone_for_its_time(tmp_path: Path) -> None:
    """Its last figure counts until then."""
    assert after_growth(tmp_path, samples=1) == {100.0}


def test_who_rests_is_looked_at_again_after_its_time(tmp_path: Path) -> None:
    """The resting time is the longest that a figure is old."""
    assert after_growth(tmp_path, samples=8, rest_s=0.75) == {900.0}


def test_everyone_is_looked_at_as_soon_as_memory_is_short(tmp_path: Path) -> None:
    """In the very sample that finds it so: one of them may have to be ended."""
    assert after_growth(tmp_path, samples=1, headroom_mib=0.1 * LIMIT_MIB) == {900.0}


def test_without_a_resting_time_everyone_is_looked_at_each_time(tmp_path: Path) -> None:
    """Whatever it holds."""
    assert after_growth(tmp_path, samples=1, rest_s=0.0) == {900.0}
