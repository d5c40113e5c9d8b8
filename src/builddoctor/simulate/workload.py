"""A build as the simulator takes it: units in the order of the build tool, each with its phases in order.

Covers: the shapes; how the memory of a phase moves while it runs (``Course``); the lower bound that no scheduler beats.
Does *not* cover: workloads of real builds (``simulate.of_recipe``, ``simulate.what_if``).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from builddoctor.core.past import Course as Steps
from builddoctor.core.phase import Phase, PhaseKind

Growth = Literal["flat", "ramp"]

Course = tuple[tuple[float, float], ...]
"""Straight lines between points of (share of its work, share of its peak), from 0 on.

The last point may come before the end, and holds until then."""

FLAT: Course = ((0.0, 1.0),)
RAMP: Course = ((0.0, 0.0), (1.0, 1.0))


class PhaseWork(msgspec.Struct, frozen=True, kw_only=True):
    """One phase as it really is; an estimator does not see ``peak_mib`` and ``wall_s``."""

    kind: PhaseKind
    arch: str = ""
    input_mib: float = 0.0
    peak_mib: float
    wall_s: float
    """time on a core of its own"""
    tool: str = ""
    curve: tuple[tuple[float, float], ...] = ()
    """what it held, as (share of its time, share of its peak), where that was recorded; only replays use it"""
    steps: Steps = ()
    """the same, as a recipe has it: until this share of its time, this share of its peak"""

    def asks(self, phase_id: int, unit_id: str, source: str) -> Phase:
        """What an estimator sees of it."""
        return Phase(
            phase_id=phase_id,
            unit_id=unit_id,
            kind=self.kind,
            source=source,
            arch=self.arch,
            input_mib=self.input_mib,
            tool=self.tool,
        )


class UnitWork(msgspec.Struct, frozen=True, kw_only=True):
    """One translation unit or link: ``phases`` run one after the other."""

    name: str
    source: str = ""
    archs: tuple[str, ...] = ()
    phases: tuple[PhaseWork, ...]
    after_all: bool = False
    """a link: the build tool begins it when every unit before it has ended"""

    @property
    def wall_s(self) -> float:
        return sum(each.wall_s for each in self.phases)

    @property
    def peak_mib(self) -> float:
        return max((each.peak_mib for each in self.phases), default=0.0)


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """All units, in the order in which the build tool would begin them."""

    name: str
    units: tuple[UnitWork, ...]

    @property
    def phases(self) -> int:
        return sum(len(unit.phases) for unit in self.units)

    @property
    def work_s(self) -> float:
        return sum(unit.wall_s for unit in self.units)

    @property
    def preprocessed_by(self) -> tuple[PhaseWork | None, ...]:
        """For each unit, what makes its host code ready to be sent: its own longest preprocessing; of a unit without
        any recorded, that of the middle one of the others."""
        own = [max(map(_preprocessing, unit.phases), key=_length_s, default=None) for unit in self.units]
        known = sorted((each for each in own if each is not None), key=_length_s)
        middle = known[len(known) // 2] if known else None
        return tuple(each or middle for each in own)

    @property
    def peak_mib(self) -> float:
        """The largest single phase."""
        return max((unit.peak_mib for unit in self.units), default=0.0)


def _preprocessing(phase: PhaseWork) -> PhaseWork | None:
    return phase if phase.kind is PhaseKind.PREPROCESS else None


def _length_s(phase: PhaseWork | None) -> float:
    return -1.0 if phase is None else phase.wall_s


def unit_id(index: int) -> str:
    """The id that the simulator gives the unit at this place of ``Workload.units``."""
    return f"u{index + 1}"


def lower_bound_s(workload: Workload, *, cores: int, limit_mib: float, held_share: float = 1.0) -> float:
    """No order is faster: all work over all cores, memory times time over all memory, or the longest unit.

    ``held_share``: what a phase holds on average, as a share of its peak; 0.5 where it grows evenly.
    """
    area = sum(each.peak_mib * each.wall_s for unit in workload.units for each in unit.phases)
    longest_s = max((unit.wall_s for unit in workload.units), default=0.0)
    return max(workload.work_s / cores, held_share * area / limit_mib, longest_s)


def course_of(phase: PhaseWork, growth: Growth) -> Course:
    """``growth``: of phases without a recorded curve.

    The highest point of a recorded curve is the peak: looks at memory come too seldom to see it, and count fewer pages.
    """
    if phase.steps and not phase.curve:
        # A step says the most that was held: it is reached by its end, and left at once where the next is lower.
        points = [(0.0, 0.0)]
        for until, held in phase.steps:
            since, before = points[-1]
            points += [(since, held), (until, held)] if held < before else [(until, held)]
        return tuple(points)
    curve = phase.curve
    highest = max((held for _, held in curve), default=0.0)
    if highest <= 0:
        return FLAT if growth == "flat" else RAMP
    return ((0.0, 0.0), *((at, held / highest) for at, held in curve))


def held_share(course: Course, bend: int, done: float) -> float:
    """After ``done`` of the work, when the point with the index ``bend`` is the last one behind it."""
    at, held = course[bend]
    if bend + 1 == len(course):
        return held
    next_at, next_held = course[bend + 1]
    passed = (done - at) / (next_at - at) if next_at > at else 1.0
    return held + (next_held - held) * min(max(passed, 0.0), 1.0)


def slope(course: Course, bend: int) -> float:
    """Share of the peak for all of the work, after that point."""
    if bend + 1 == len(course):
        return 0.0
    (at, held), (next_at, next_held) = course[bend : bend + 2]
    return (next_held - held) / (next_at - at) if next_at > at else 0.0


def highest_share(course: Course, bend: int, done: float) -> float:
    """The most that was held until then."""
    return max(*(held for _, held in course[: bend + 1]), held_share(course, bend, done))
