"""Courses of phases: what one held over its run, as a few steps. Pure.

Covers: a course from looks at a phase that ran (``CourseWatch``); several builds' courses as one (``together``), in
shares of the peak: a shape; that as a text, for recipes.
Does *not* cover: keeping them (``history``), which phase a course is of (``estimation.past``), or what is made of
courses of running phases (``scheduler.course_forecast``).

A course may fall. Compilers give back memory long before they end (`cudafe++` and host code above all), and what is
packed beside them lives on that: with courses that only rise, plain list scheduling of TransformerEngine 2.8 on 8
cores in 8 GiB takes 261 s, with eight steps that also fall 244, with each look kept 222 (docs/adr/0025).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from builddoctor.core.events import MemorySampled, Resume, Suspend
from builddoctor.core.past import Course

MOST_STEPS = 8
"""of a course: those of TransformerEngine 2.8 then hold 9 % more, over time, than was held"""

LEAST_S = 0.8
LEAST_MIB = 150.0
LEAST_LOOKS = 4
"""A shorter or smaller phase, or one that was looked at less often, has no course: it counts with its peak."""

MOST_LOOKS = 128
"""Looks of one phase that are kept; of more, two neighbours become one."""


class CourseWatch:
    """One phase that runs: what it held at each look, as (seconds that it had worked, MiB)."""

    def __init__(self, admitted_at_s: float) -> None:
        self._admitted_at_s = admitted_at_s
        self._suspended_at_s: float | None = None
        self._looks: list[tuple[float, float]] = []
        self._count = 0

    def looked(self, at_s: float, mib: float) -> None:
        """A look; they come in the order of time. Those at a phase that stands still say nothing."""
        if self._suspended_at_s is not None:
            return
        self._count += 1
        self._looks.append((max(0.0, at_s - self._admitted_at_s), mib))
        if len(self._looks) >= 2 * MOST_LOOKS:
            pairs = zip(self._looks[::2], self._looks[1::2], strict=True)
            self._looks = [(second[0], max(first[1], second[1])) for first, second in pairs]

    def suspended(self, at_s: float) -> None:
        """It stands still."""
        self._suspended_at_s = at_s

    def resumed(self, at_s: float) -> None:
        """It works again: time goes on from where it stood."""
        if self._suspended_at_s is not None:
            self._admitted_at_s += at_s - self._suspended_at_s
            self._suspended_at_s = None

    def course(self, *, peak_mib: float, wall_s: float) -> Course:
        """Of the phase, now that it has ended; empty where the looks show nothing.

        The highest look counts as the peak: looks come too seldom to see it, and count fewer pages.
        """
        highest_mib = max((mib for _, mib in self._looks), default=0.0)
        if wall_s < LEAST_S or peak_mib < LEAST_MIB or self._count < LEAST_LOOKS or highest_mib <= 0:
            return ()
        scale = peak_mib / highest_mib
        steps = [
            (min(1.0, after_s / wall_s), scale * max(before_mib, mib))
            for (_, before_mib), (after_s, mib) in pairwise([(0.0, 0.0), *self._looks])
        ]
        return _rounded(fewer([*steps, (1.0, scale * self._looks[-1][1])]))


def watch_courses(watches: Mapping[int, CourseWatch], event: MemorySampled | Suspend | Resume) -> None:
    """What this event of a build says of phases that run, by their numbers."""
    if isinstance(event, MemorySampled):
        for phase_id, rss_mib in event.rss_mib:
            if (watch := watches.get(phase_id)) is not None:
                watch.looked(event.at_s, rss_mib)
    elif (watch := watches.get(event.phase_id)) is not None:
        if isinstance(event, Suspend):
            watch.suspended(event.at_s)
        else:
            watch.resumed(event.at_s)


def together(courses: Sequence[Course]) -> Course:
    """Shares of the peak instead of MiB: the most that any build held at each moment."""
    if not courses:
        return ()
    shapes = [_shape(course) for course in courses]
    ends = sorted({until for shape in shapes for until, _ in shape})
    at = [0] * len(shapes)
    steps: list[tuple[float, float]] = []
    for end in ends:
        steps.append((end, max(shape[step][1] for shape, step in zip(shapes, at, strict=True))))
        at = [min(step + (shape[step][0] <= end), len(shape) - 1) for shape, step in zip(shapes, at, strict=True)]
    return tuple(fewer(steps))


def course_text(shape: Course) -> str:
    """In thousandths: ``125:310 1000:1000``."""
    return " ".join(f"{round(1000 * until)}:{round(1000 * share)}" for until, share in shape)


def course_of_text(text: str) -> Course:
    """A shape. The text is as ``core.recipe`` allows it."""
    steps = (step.split(":") for step in text.split())
    return tuple((int(until) / 1000, int(held) / 1000) for until, held in steps)


def is_shape(steps: Course) -> bool:
    """Times rise to 1, and the most that was held is 1."""
    times = [0.0, *(until for until, _ in steps)]
    return (
        times[-1] == 1.0 and max(share for _, share in steps) == 1.0 and all(one < two for one, two in pairwise(times))
    )


def of_peak(shape: Course, peak_mib: float) -> Course:
    """The course, in MiB."""
    return _rounded((until, share * peak_mib) for until, share in shape)


def _shape(course: Course) -> Course:
    peak_mib = max(mib for _, mib in course)
    return tuple((until, mib / peak_mib) for until, mib in course)


def fewer(steps: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most ``MOST_STEPS``: neighbours become one, at the higher of the two, those first that add the least."""
    left = [(0.0, 0.0)]
    for until, mib in steps:
        if until > left[-1][0]:
            left.append((until, mib))
        elif len(left) > 1:
            left[-1] = (until, max(mib, left[-1][1]))
    added = [_added(left, at) for at in range(1, len(left) - 1)]
    while added and ((least := min(added)) <= 0 or len(left) - 1 > MOST_STEPS):
        at = added.index(least) + 1
        left[at : at + 2] = [(left[at + 1][0], max(left[at][1], left[at + 1][1]))]
        del added[at - 1]
        for near in (at - 1, at):
            if 0 < near < len(left) - 1:
                added[near - 1] = _added(left, near)
    return left[1:]


def _added(steps: Sequence[tuple[float, float]], at: int) -> float:
    """What it adds to the area when this step and the next become one."""
    (since, _), (until, mib), (end, after_mib) = steps[at - 1 : at + 2]
    return (after_mib - mib) * (until - since) if mib < after_mib else (mib - after_mib) * (end - until)


def _rounded(steps: Iterable[tuple[float, float]]) -> Course:
    """Looks that came in one thousandth of the time become one step."""
    found: list[tuple[float, float]] = []
    for until, mib in steps:
        step = max(0.001, round(until, 3)), round(mib, 1)
        if found and found[-1][0] >= step[0]:
            step = step[0], max(step[1], found.pop()[1])
        found.append(step)
    return tuple(found)
