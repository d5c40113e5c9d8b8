"""What the simulator keeps of a unit that is open and of a phase that waits or runs.

Covers: where a unit is; what a running phase holds, and how that moves, at a given amount of work.
Does *not* cover: when things happen (``simulate.engine``).
"""

from __future__ import annotations

import msgspec

from builddoctor.model.phase import Estimate, Phase
from builddoctor.simulate.course import Course, held_share, highest_share, slope
from builddoctor.simulate.workload import UnitWork


class Opened(msgspec.Struct, eq=False):
    index: int
    work: UnitWork
    at: int = 0
    """which phase is next, or runs"""
    tries: int = 0


class Live(msgspec.Struct, eq=False):
    phase: Phase
    unit: Opened
    work_s: float
    peak_mib: float
    course: Course
    asked_s: float
    queued_s: float
    waited_s: float = 0.0
    tries: int = 0
    from_s: float = 0.0
    """``_done_s`` when it started"""
    bend: int = 0
    """the last point of its course that is behind it"""
    started_s: float = 0.0
    estimate: Estimate = Estimate(peak_mib=0.0, spread_mib=0.0, source="")
    killed: bool = False

    @property
    def next_bend_s(self) -> float | None:
        """When the next point of its course comes, on the clock of ``from_s``; None when none comes before the end."""
        if self.bend + 1 == len(self.course) or self.course[self.bend + 1][0] >= 1.0:
            return None
        return self.from_s + self.work_s * self.course[self.bend + 1][0]

    @property
    def slope_mib_s(self) -> float:
        """Growth for each second of work."""
        return self.peak_mib * slope(self.course, self.bend) / self.work_s

    def held_mib(self, done_s: float) -> float:
        """What it holds at ``done_s``, on the clock of ``from_s``."""
        return self.peak_mib * held_share(self.course, self.bend, self._share(done_s))

    def highest_mib(self, done_s: float) -> float:
        """The most that it held until then."""
        return self.peak_mib * highest_share(self.course, self.bend, self._share(done_s))

    def _share(self, done_s: float) -> float:
        return min(1.0, (done_s - self.from_s) / self.work_s)
