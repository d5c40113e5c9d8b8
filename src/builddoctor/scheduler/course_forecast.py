"""The memory forecast by courses: what phases will hold, moment by moment, as earlier builds showed it. Pure.

Covers: a running phase from now on, by its course (``ahead``) or, without one, by the growth of its kind; the sum of
all of them, and the most that is held at once while one more runs too.
Does *not* cover: builds of which no course is known (``scheduler.forecast``), or courses (``estimation.course``).

Why: a sum of courses sees both where phases grow and where they give back. Each course is taken to rise early and to
fall late, by what run times are uncertain. What is held now is what was seen, whatever the course says of now.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise

from builddoctor.core.past import Course

OFF_SHARE = 0.03
OFF_S = 0.2
"""A course rises this much of the phase's time earlier, and falls this much later, and this long besides."""

LEAST_LEFT = 0.1
"""No phase is nearer to its end than this share of its time: those that take longer than expected, take long."""

RISING_STEPS = 16
"""of an even ramp, for a phase without a course"""

Ahead = Sequence[tuple[float, float]]
"""One phase from now on: (until then, in seconds from now; MiB at most), ascending. It ends with the last."""


def ahead(course: Course, *, now_mib: float, peak_mib: float, elapsed_s: float, wall_s: float) -> Ahead:
    """Of a phase with this course, in shares of its peak, that has run for ``elapsed_s`` and holds ``now_mib``."""
    off_s = OFF_SHARE * wall_s + OFF_S
    left: list[tuple[float, float]] = []
    for (until, share), (_, after) in pairwise(course):
        turn_s = until * wall_s - elapsed_s + (off_s if after < share else -off_s)
        # What is higher begins early, in the place of what is lower before it.
        mib = share * peak_mib
        while left and after * peak_mib > left[-1][1] and turn_s < left[-1][0]:
            mib = max(mib, left.pop()[1])
        if turn_s > (left[-1][0] if left else 0.0):
            left.append((turn_s, mib))
    end_s = max(wall_s - elapsed_s + off_s, LEAST_LEFT * wall_s, OFF_S)
    return _at_least([*left, (end_s, course[-1][1] * peak_mib)], now_mib, off_s)


def rising(*, now_mib: float, full_mib: float, full_s: float, end_s: float) -> Ahead:
    """Of a phase that grows evenly until ``full_s``, and ends at ``end_s``."""
    if full_s <= 0 or full_mib <= now_mib:
        return [(end_s, max(now_mib, full_mib))]
    until_s = min(full_s, end_s)
    rise_mib = (full_mib - now_mib) * until_s / full_s
    steps = [
        (until_s * step / RISING_STEPS, now_mib + rise_mib * step / RISING_STEPS) for step in range(1, RISING_STEPS)
    ]
    return [*steps, (end_s, now_mib + rise_mib)]


def _at_least(steps: list[tuple[float, float]], now_mib: float, for_s: float) -> Ahead:
    """What is held now does not go at once."""
    at = 0
    while at < len(steps) and steps[at][0] <= for_s:
        steps[at] = (steps[at][0], max(steps[at][1], now_mib))
        at += 1
    if at < len(steps) and steps[at][1] < now_mib:
        steps.insert(at, (for_s, now_mib))
    return steps


class CourseForecast:
    """All running phases together, taken once and asked many times."""

    def __init__(self, running: Iterable[Ahead]) -> None:
        changes: list[tuple[float, float]] = []
        """(moment, what is held more from then on)"""
        held_mib = 0.0
        for steps in running:
            before_mib = steps[0][1]
            held_mib += before_mib
            for (until_s, _), (_, mib) in pairwise(steps):
                changes.append((until_s, mib - before_mib))
                before_mib = mib
            if steps[-1][0] < math.inf:
                changes.append((steps[-1][0], -before_mib))
        changes.sort()
        self._until_s = [at_s for at_s, _ in changes] + [math.inf]
        self._held_mib = list(accumulate((change for _, change in changes), initial=held_mib))

    def most_mib(self, candidate: Ahead) -> float:
        """The most that will be held at once while ``candidate`` runs too."""
        most_mib = 0.0
        at, until_s, held_mib = 0, self._until_s, self._held_mib
        for end_s, mib in candidate:
            while until_s[at] < end_s:
                most_mib = max(most_mib, held_mib[at] + mib)
                at += 1
            most_mib = max(most_mib, held_mib[at] + mib)
        return most_mib
