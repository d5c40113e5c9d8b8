"""A compiler that grows without end, told from one that is merely big. Pure.

Covers: the course of each running phase (rising, resting, falling), and the two verdicts: it runs away now, or it did
so up to the moment when the kernel ended it. The case: TransformerEngine#1996, ``cudafe++``
at 140 GiB and 0.23 GiB/s, whatever ``-j`` (also CLI11#1378, cms-sw/cmssw#43117).
Does *not* cover: ending it (``scheduler.scheduler``) or reading processor time (``runtime.sampler``).

A big phase that is no runaway rests, sooner or later: so the rise must go on, without a rest, for a minute beyond the
size that is not expected, and up to 24 GiB at least. On a machine too small for that the kernel ends it first; then a
rise without a rest up to that end has to do. A front end is told sooner: what it takes follows from the size of what it
reads (50 of TransformerEngine's took 0.3 to 1.8 GiB, and at most 3.3 times what their input lets expect), so 12 GiB and
half a minute are enough.
"""

from __future__ import annotations

import msgspec

from builddoctor.core.events import Rise
from builddoctor.core.phase import PhaseKind
from builddoctor.core.settings import RunawayRules


class _Rise(msgspec.Struct):
    """From the first growth on, without a rest."""

    since_s: float
    high_mib: float
    high_s: float
    """when it last grew"""
    above_s: float | None = None
    """when it passed the threshold"""
    cpu_from: tuple[float, float] | None = None
    """(clock, processor time) at the first reading above the threshold"""
    cpu_to: tuple[float, float] | None = None

    @property
    def cpu_share(self) -> float | None:
        if self.cpu_from is None or self.cpu_to is None or self.cpu_to[0] <= self.cpu_from[0]:
            return None
        return (self.cpu_to[1] - self.cpu_from[1]) / (self.cpu_to[0] - self.cpu_from[0])


class _Course(msgspec.Struct):
    """One phase, from its admission on."""

    expected_mib: float
    """as estimated at its first admission: later estimates have been raised by what it did"""
    kind: PhaseKind | None = None
    threshold_mib: float = 0.0
    seen_s: float | None = None
    low_mib: float = 0.0
    """what it held when it last did not rise"""
    rise: _Rise | None = None
    fell_s: float | None = None
    before: _Rise | None = None
    """the rise that ended in that fall"""


class RunawayWatch:
    """Follows the running phases of one build."""

    def __init__(self, rules: RunawayRules) -> None:
        self.suspects: set[int] = set()
        """Phases that rise beyond all expectation: their processor time is worth a look, and they are ended first."""
        self._rules = rules
        self._courses: dict[int, _Course] = {}

    def admitted(self, phase_id: int, *, expected_mib: float, kind: PhaseKind | None = None) -> None:
        """A phase starts, or starts again: a new course, with the first estimate."""
        before = self._courses.get(phase_id)
        self._courses[phase_id] = _Course(expected_mib=before.expected_mib if before else expected_mib, kind=kind)
        self.suspects.discard(phase_id)

    def forget(self, phase_id: int) -> None:
        """A phase is over for good."""
        self._courses.pop(phase_id, None)
        self.suspects.discard(phase_id)

    def rests(self, phase_id: int, rss_mib: float, now_s: float) -> bool:
        """It did not rise before, and neither rises nor falls now: as most phases most of the time, which need no
        ``look`` then."""
        course, rules = self._courses.get(phase_id), self._rules
        if course is None or course.rise is not None or course.seen_s is None or now_s - course.seen_s > rules.rest_s:
            return False
        if not rules.fall_share * course.low_mib <= rss_mib < course.low_mib + rules.step_mib:
            return False
        course.seen_s = now_s
        return True

    def look(self, phase_id: int, *, rss_mib: float, cpu_s: float | None, budget_mib: float, now_s: float) -> None:
        """One sample of a running phase. ``cpu_s``: its processor time so far, where that was read."""
        course, rules = self._courses.get(phase_id), self._rules
        if course is None:
            return
        course.threshold_mib = max(
            rules.estimate_factor * course.expected_mib, min(self._floor_mib(course), rules.floor_share * budget_mib)
        )
        if course.seen_s is None or now_s - course.seen_s > rules.rest_s:
            # First seen, or the machine slept: it is not known whether it rested meanwhile.
            course.rise, course.low_mib = None, rss_mib
        course.seen_s = now_s
        rise = self._rise(course, rss_mib, now_s)
        if rise is None or rss_mib <= course.threshold_mib:
            if rise is not None:
                rise.above_s = rise.cpu_from = rise.cpu_to = None
            self.suspects.discard(phase_id)
            return
        self.suspects.add(phase_id)
        if rise.above_s is None:
            rise.above_s = now_s
        if cpu_s is not None:
            rise.cpu_from = rise.cpu_from or (now_s, cpu_s)
            rise.cpu_to = (now_s, cpu_s)

    def _rise(self, course: _Course, rss_mib: float, now_s: float) -> _Rise | None:
        """Bring the rise up to date: it begins, goes on, or ends by a rest or a fall."""
        rules, rise = self._rules, course.rise
        high_mib = course.low_mib if rise is None else rise.high_mib
        if rss_mib < rules.fall_share * high_mib:
            if rise is not None:
                course.before, course.fell_s = rise, now_s
            course.rise, course.low_mib = None, rss_mib
        elif rss_mib >= high_mib + max(rules.step_mib, rules.step_share * high_mib):
            if rise is None:
                rise = course.rise = _Rise(since_s=now_s, high_mib=rss_mib, high_s=now_s)
            rise.high_mib, rise.high_s = rss_mib, now_s
        elif rise is not None and now_s - rise.high_s > rules.rest_s:
            course.rise, course.low_mib = None, rise.high_mib
        return course.rise

    def runs_away(self, phase_id: int, *, company: bool) -> Rise | None:
        """The rise for which this running phase counts as a runaway, by its last sample; None when it does not."""
        course, rules = self._courses.get(phase_id), self._rules
        rise = course.rise if course is not None else None
        if course is None or rise is None or rise.above_s is None:
            return None
        rising_s = min(rules.rising_s, rules.front_end_rising_s) if _is_front_end(course) else rules.rising_s
        if rise.high_s - rise.above_s < rising_s:
            return None
        needed_share = rules.company_cpu_share if company else rules.cpu_share
        enough_mib = rules.growth_factor * max(self._floor_mib(course), course.threshold_mib)
        if rise.high_mib < enough_mib or (rise.cpu_share or 0.0) < needed_share:
            return None
        return _rise_of(course, rise)

    def ran_away(self, phase_id: int) -> Rise | None:
        """The rise for which a phase that the kernel has ended counts as a runaway; None when it does not."""
        course, rules = self._courses.get(phase_id), self._rules
        rise = self._last_rise(course) if course is not None else None
        if course is None or rise is None or rise.above_s is None:
            return None
        beyond = _is_front_end(course) and rise.high_mib >= rules.front_end_killed_factor * course.expected_mib
        if rise.high_s - rise.since_s < rules.killed_rising_s and not beyond:
            return None
        if rise.cpu_share is not None and rise.cpu_share < rules.company_cpu_share:
            return None
        return _rise_of(course, rise, to_its_end=True)

    def is_strange(self, phase_id: int) -> bool:
        """A suspect that is not on its way to an unknown peak, it seems: up to its end, if it has ended."""
        course = self._courses.get(phase_id)
        rise = self._last_rise(course) if course is not None else None
        if course is None or rise is None or rise.above_s is None:
            return False
        return _is_front_end(course) or rise.high_s - rise.above_s >= self._rules.strange_s

    def _floor_mib(self, course: _Course) -> float:
        rules = self._rules
        return min(rules.floor_mib, rules.front_end_floor_mib) if _is_front_end(course) else rules.floor_mib

    def _last_rise(self, course: _Course) -> _Rise | None:
        """The rise of a phase that has ended: of one that was killed, before it was seen to fall."""
        if course.rise is not None or course.fell_s is None or course.seen_s is None:
            return course.rise
        return course.before if course.seen_s - course.fell_s <= self._rules.dying_s else None


def _is_front_end(course: _Course) -> bool:
    return course.kind is PhaseKind.CUDAFE


def _rise_of(course: _Course, rise: _Rise, *, to_its_end: bool = False) -> Rise:
    return Rise(
        held_mib=round(rise.high_mib, 1),
        expected_mib=round(course.expected_mib, 1),
        rose_s=round(rise.high_s - rise.since_s, 1),
        to_its_end=to_its_end,
    )
