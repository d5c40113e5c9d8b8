"""What a simulated phase holds while it runs: straight lines between points of (share of its work, share of its peak).

Covers: the points of a phase, from its recorded curve or, where there is none, from how phases are said to grow; what
phases hold on average.
Does *not* cover: memory in MiB, time, other phases.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

from builddoctor.simulate.workload import PhaseWork, Workload

Growth = Literal["flat", "ramp"]

Course = tuple[tuple[float, float], ...]
"""From 0 on; the last point may come before the end, and holds until then."""

FLAT: Course = ((0.0, 1.0),)
RAMP: Course = ((0.0, 0.0), (1.0, 1.0))


def course_of(phase: PhaseWork, growth: Growth) -> Course:
    """``growth``: of phases without a recorded curve.

    The highest point of a curve is the peak: looks at memory come too seldom to see it, and count fewer pages.
    """
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


def mean_share(course: Course) -> float:
    """What is held on average, as a share of the peak."""
    points = [*course, (1.0, course[-1][1])]
    return sum((to - at) * (first + last) / 2 for (at, first), (to, last) in pairwise(points))


def held_of(workload: Workload, growth: Growth) -> float:
    """Of all peaks times their phases' times, the share that is held: 1 for flat phases, a half for even ramps."""
    held = area = 0.0
    for phase in (each for unit in workload.units for each in unit.phases):
        area += phase.peak_mib * phase.wall_s
        held += phase.peak_mib * phase.wall_s * mean_share(course_of(phase, growth))
    return held / area if area else 1.0
