"""What a phase of a kind holds over its run, where no earlier build shows it of the phase itself. Pure.

Covers: the course that is usual for each kind, fitted to what this build's phases hold on average; how evenly phases
of a kind grow.
Does *not* cover: how large they are (``estimation.estimator``), or using it (``scheduler.course_forecast``).

Compilers are alike in this across projects, in sizes of which they are not: just after half of its time host code holds
85 % of its peak, and 67 to 93 % in the middle of any of thirteen projects. `cicc` alone differs (docs/adr/0034): it
gives back half before it ends in most, and in some soon after its start.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from statistics import median

from builddoctor.core.past import Course
from builddoctor.core.phase import PhaseKind
from builddoctor.estimation.course import LEAST_LOOKS, LEAST_MIB, LEAST_S, course_of_text

USUAL: Mapping[PhaseKind, Course] = {
    PhaseKind.PREPROCESS: course_of_text("62:90 125:242 250:375 375:508 500:653 625:776 688:903 1000:1000"),
    PhaseKind.CUDAFE: course_of_text("62:317 125:434 188:528 250:596 312:688 375:769 500:889 1000:1000"),
    PhaseKind.CICC: course_of_text("62:323 125:468 250:601 438:785 625:880 750:1000 875:731 1000:502"),
    PhaseKind.PTXAS: course_of_text("62:603 125:688 250:788 438:837 688:859 812:887 875:930 1000:1000"),
    PhaseKind.HOST: course_of_text("62:274 125:388 188:457 312:596 438:733 562:852 688:936 1000:1000"),
}
"""At each moment the middle one of all measured phases of the recipes that ship, each project counted alike."""

AT_ONCE: Course = ((1.0, 1.0),)
"""Of any other kind: it takes all at its start."""

LEAST_OF_KIND = 3
"""Phases of a kind to watch before it is judged by them."""

KEPT = 16

MOST_LOWERED = 1.4
"""No step is further from the peak than so many times what is usual: with twice as much first builds at (4, 6) take
522 s, with this 484."""

LEAST_SHARE = 0.05
"""of the peak; something is always held"""

FULL_SHARE = 0.95
"""A phase that held this share of its peak on average took all at its start: looks do not see the first moment."""


class KindCourses:
    """Usual courses, fitted to this build's latest phases of the kind."""

    def __init__(self) -> None:
        self._held: dict[PhaseKind, deque[float]] = {}
        self._evenness: dict[PhaseKind, float] = {}
        self._others = 0.0
        self._courses = dict(USUAL)

    def ended(self, kind: PhaseKind, *, area_mib_s: float, looks: int, peak_mib: float, wall_s: float) -> None:
        """A phase ended by itself. ``area_mib_s``: its size added up over time, to its end."""
        if wall_s < LEAST_S or peak_mib < LEAST_MIB or looks < LEAST_LOOKS:
            return
        held = self._held.setdefault(kind, deque(maxlen=KEPT))
        held.append(min(1.0, max(0.0, area_mib_s / (peak_mib * wall_s))))
        self._others = _even(max(map(max, self._held.values())))
        if len(held) >= LEAST_OF_KIND:
            usual = median(held)
            self._evenness[kind] = _even(usual)
            self._courses[kind] = _fitted(USUAL.get(kind, AT_ONCE), usual)

    def course(self, kind: PhaseKind, *, peak_mib: float, wall_s: float) -> Course:
        """Of a phase of which this is expected, in shares of its time and of its peak. What is shorter or smaller than
        any that was watched counts with its peak."""
        if wall_s < LEAST_S or peak_mib < LEAST_MIB:
            return AT_ONCE
        return self._courses.get(kind, AT_ONCE)

    @property
    def evenness(self) -> Mapping[PhaseKind, float]:
        """Of each kind, the share of its time over which a phase usually grows: 1 for an even ramp, 0 for one that is
        full at its start. Nothing is assumed: of a kind of which little was seen, as the most hasty of all."""
        return {kind: self._evenness.get(kind, self._others) for kind in PhaseKind}


def _even(mean: float) -> float:
    """An even ramp that is full after a share f of the time has a mean of 1 - f / 2."""
    return min(1.0, 2 * (1 - mean)) if mean < FULL_SHARE else 0.0


def _fitted(course: Course, mean: float) -> Course:
    """Each step nearer to the peak, or further from it, so that this share of it is held on average."""
    since = free = 0.0
    for until, share in course:
        free += (until - since) * (1.0 - share)
        since = until
    left = 0.0 if mean >= FULL_SHARE else 1.0 - mean
    scale = min(MOST_LOWERED, left / free) if free > 0 else 1.0
    return tuple((until, max(LEAST_SHARE, 1.0 - scale * (1.0 - share))) for until, share in course)
