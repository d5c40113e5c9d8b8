"""The memory forecast by courses: what running phases will hold, moment by moment. Pure.

Covers: one phase from now on (``ahead``); the sum of all that run, the most of it, and whether one more fits beside
them at every moment.
Does *not* cover: courses, of earlier builds (``estimation.course``) or usual ones (``estimation.kind_courses``).

Why: a compiler grows over its run, gives some back before it ends, and holds two thirds of its peak on average. A sum
of courses sees both. Each is taken to rise early and to fall late; and what is held now is what was seen, whatever the
course says of now.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, chain, pairwise

import msgspec

from builddoctor.core.past import Course
from builddoctor.scheduler.running_set import Running

OFF_SHARE = 0.01
OFF_S = 0.1
"""A course rises this share of the phase's time earlier and falls as much later, and so long besides. With 5 % second
builds of TransformerEngine are 2 % longer; with 2 % more phases had to be ended (docs/adr/0025)."""

LEAST_LEFT = 0.1
"""No phase is nearer to its end than this share of its time: what takes longer than expected takes long."""

Steps = Sequence[tuple[float, float]]
"""One phase from now on: (until then, in seconds from now; MiB at most), ascending. It ends with the last."""

Ahead = Callable[[Running, float], Steps]
"""What a running phase holds from this moment on, were it to work."""


def with_slack(course: Course, wall_s: float) -> Course:
    """The course of a phase that is expected to take ``wall_s``, earlier up and later down; it ends as late."""
    off = OFF_SHARE + OFF_S / max(wall_s, OFF_S)
    found: list[tuple[float, float]] = []
    for (until, share), (_, after) in pairwise(course):
        turn, most = until + (off if after < share else -off), share
        # What is higher begins early, in the place of what is lower before it.
        while found and after > found[-1][1] and turn < found[-1][0]:
            most = max(most, found.pop()[1])
        if turn > (found[-1][0] if found else 0.0):
            found.append((turn, most))
    return (*found, (1.0 + off, course[-1][1]))


def ahead(course: Course, *, now_mib: float, peak_mib: float, elapsed_s: float, wall_s: float) -> Steps:
    """Of a phase with this course (``with_slack``), in shares of its peak, that has run for ``elapsed_s`` and holds
    ``now_mib``."""
    at = bisect_right(course, (elapsed_s / max(wall_s, OFF_S), math.inf))
    steps = [(until * wall_s - elapsed_s, share * peak_mib) for until, share in course[at:-1]]
    until, share = course[-1]
    end_s = max(until * wall_s - elapsed_s, LEAST_LEFT * wall_s, OFF_S)
    steps.append((end_s, share * peak_mib))
    return _at_least(steps, now_mib, OFF_SHARE * wall_s + OFF_S)


def later(steps: Steps, by_s: float) -> Steps:
    """The same, begun so many seconds from now."""
    return [(by_s, 0.0), *((by_s + until_s, mib) for until_s, mib in steps)]


def most_mib(together: Sequence[Steps]) -> float:
    """The most that all of these hold at once."""
    changes = sorted(chain.from_iterable(map(_changes, together)))
    held_mib = sum([steps[0][1] for steps in together])
    return max(accumulate([change_mib for _, change_mib in changes], initial=held_mib))


def _at_least(steps: list[tuple[float, float]], now_mib: float, for_s: float) -> Steps:
    """What is held now does not go at once."""
    if steps[0][0] > for_s and steps[0][1] >= now_mib:
        return steps
    at = 0
    while at < len(steps) and steps[at][0] <= for_s:
        steps[at] = (steps[at][0], max(steps[at][1], now_mib))
        at += 1
    if at < len(steps) and steps[at][1] < now_mib:
        steps.insert(at, (for_s, now_mib))
    return steps


class Outlook(msgspec.Struct, frozen=True):
    """What one running phase will hold."""

    urgency: float
    """of its unit, after it"""
    steps: Steps
    size_mib: float
    """what it frees when it ends, and a more urgent unit may want"""


class CourseForecasts:
    """All running phases together, taken once and asked for phases of every urgency."""

    def __init__(self, running: Iterable[Outlook]) -> None:
        self._running = sorted(running, key=_urgent_first)
        self._kept = 0
        """so many of the most urgent keep what they hold when they end"""
        self._forecast: CourseForecast | None = None
        self._take(sorted(chain.from_iterable(_changes(each.steps) for each in self._running)))

    def add(self, started: Outlook) -> None:
        """One more runs; the others have not changed."""
        insort(self._running, started, key=_urgent_first)
        self._take(sorted([*self._changes, *_changes(started.steps)]))

    def beside(self, urgency: float) -> CourseForecast:
        """For a phase of this urgency: what more urgent units free is not for it. Quick where urgencies fall from
        call to call."""
        count = bisect_left(self._running, -urgency, key=_urgent_first)
        if count < self._kept:
            self._take(self._changes)
        if self._forecast is None or count > self._kept:
            for each in self._running[self._kept : count]:
                self._changes_mib[bisect_left(self._changes, _end(each.steps))] += each.size_mib
            self._kept = count
            self._forecast = CourseForecast(self._held_mib, self._until_s, self._changes_mib)
        return self._forecast

    def _take(self, changes: list[tuple[float, float]]) -> None:
        self._changes = changes
        self._until_s = [*[at_s for at_s, _ in changes], math.inf]
        self._changes_mib = [change_mib for _, change_mib in changes]
        self._held_mib = sum([each.steps[0][1] for each in self._running])
        self._kept, self._forecast = 0, None


def _urgent_first(outlook: Outlook) -> float:
    return -outlook.urgency


class CourseForecast:
    """What is held from now on: ``held_mib``, and so much more from each moment on; moments ascend, and end never."""

    def __init__(self, held_mib: float, moments_s: Sequence[float], changes_mib: Sequence[float]) -> None:
        self._until_s = moments_s
        self._held_mib = list(accumulate(changes_mib, initial=held_mib))
        self._most_mib = max(self._held_mib)

    def fits(self, candidate: Steps, within_mib: float) -> bool:
        """Whether no more than this is held at any moment while ``candidate`` runs too."""
        if self._most_mib + max([mib for _, mib in candidate]) <= within_mib:
            return True
        return self._fits_from(0, 0.0, candidate, within_mib)

    def first_s(self, candidate: Steps, within_mib: float) -> float | None:
        """In how many seconds it first fits, if nothing more starts; None where it never does."""
        falls = (at for at, (before, after) in enumerate(pairwise(self._held_mib)) if after < before)
        fits = (at for at in falls if self._fits_from(at + 1, self._until_s[at], candidate, within_mib))
        return next((self._until_s[at] for at in fits), None)

    def _fits_from(self, at: int, begins_s: float, candidate: Steps, within_mib: float) -> bool:
        until_s, held_mib = self._until_s, self._held_mib
        for end_s, mib in candidate:
            left_mib = within_mib - mib
            while until_s[at] < begins_s + end_s:
                if held_mib[at] > left_mib:
                    return False
                at += 1
            if held_mib[at] > left_mib:
                return False
        return True


def _changes(steps: Steps) -> list[tuple[float, float]]:
    changes = [(until_s, after_mib - mib) for (until_s, mib), (_, after_mib) in pairwise(steps)]
    return [*changes, _end(steps)]


def _end(steps: Steps) -> tuple[float, float]:
    end_s, last_mib = steps[-1]
    return end_s, -last_mib
