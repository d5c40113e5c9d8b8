"""A compiler that grows without end, told from one that is merely big. Pure.

Covers: the course of each running phase (rising, resting, falling), and the two verdicts: it runs away now, or it did
so up to the moment when the kernel ended it. Rules: memory.md S6 and V5; the case: TransformerEngine#1996, ``cudafe++``
at 140 GiB and 0.23 GiB/s, whatever ``-j`` (also CLI11#1378, cms-sw/cmssw#43117).
Does *not* cover: ending it (``policy.governor``) or reading processor time (``supervise.sampler``).

A big phase that is no runaway rests, sooner or later: so the rise must go on, without a rest, for a minute beyond the
size that nobody expects, and up to 24 GiB at least. On a machine too small for that the kernel ends it first; then a
rise without a rest up to that end has to do. A front end is told sooner: what it takes follows from the size of what it
reads (50 of TransformerEngine's took 0.3 to 1.8 GiB, and at most 3.3 times what their input lets expect), so 12 GiB and
half a minute are enough.
"""

from __future__ import annotations

import msgspec

from builddoctor.model.phase import PhaseKind


class RunawayRules(msgspec.Struct, frozen=True, kw_only=True):
    """What makes a runaway."""

    estimate_factor: float = 3.0
    """a suspect holds this many times what was expected of it at first"""
    floor_mib: float = 16384.0
    front_end_floor_mib: float = 8192.0
    """the same for ``cudafe++``"""
    floor_share: float = 0.5
    """and 16 GiB, or this share of the budget where that is less: small machines see runaways too"""
    growth_factor: float = 1.5
    """to be ended, it must hold half as much again, whatever the budget: a 20 GiB ``cicc`` is big, but it ends"""
    rising_s: float = 60.0
    """and rise for this long since it became a suspect"""
    front_end_rising_s: float = 30.0
    """the same for ``cudafe++``"""
    rest_s: float = 10.0
    """no growth for this long is a rest, and ends the rise"""
    step_mib: float = 16.0
    step_share: float = 0.005
    """growth below this does not count: 8 GiB that become 8.02 GiB in ten seconds rest"""
    fall_share: float = 0.9
    """who gives back a tenth of his memory does not grow without end"""
    cpu_share: float = 0.9
    """processor time since it became a suspect, as a share of one core"""
    company_cpu_share: float = 0.6
    """the same beside other phases, which take their part of the cores"""
    strange_s: float = 10.0
    """a suspect other than a front end is strange when it has risen for this long since it became one: compilers pass
    three times what was expected of them on their way to a peak that nobody knew"""
    killed_rising_s: float = 30.0
    """a phase that the kernel ended must have risen for this long without a rest"""
    front_end_killed_factor: float = 8.0
    """or, of a front end, have held this many times what was expected: then a small limit may be reached sooner"""
    dying_s: float = 10.0
    """up to its end: a killed process gives its memory back before its end is heard of, 80 ms for each GiB"""


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
        """It did not rise before, and neither rises nor falls now: as most phases most of the time, who need no
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
            # First seen, or the machine slept: nobody saw whether it rested meanwhile.
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

    def runs_away(self, phase_id: int, *, company: bool) -> str:
        """Why this running phase counts as a runaway, by its last sample; empty when it does not."""
        course, rules = self._courses.get(phase_id), self._rules
        rise = course.rise if course is not None else None
        if course is None or rise is None or rise.above_s is None:
            return ""
        rising_s = min(rules.rising_s, rules.front_end_rising_s) if _is_front_end(course) else rules.rising_s
        if rise.high_s - rise.above_s < rising_s:
            return ""
        needed_share = rules.company_cpu_share if company else rules.cpu_share
        enough_mib = rules.growth_factor * max(self._floor_mib(course), course.threshold_mib)
        if rise.high_mib < enough_mib or (rise.cpu_share or 0.0) < needed_share:
            return ""
        return f"{_beyond(course, rise)}, and rose for {rise.high_s - rise.since_s:.0f} s without a rest"

    def ran_away(self, phase_id: int) -> str:
        """Why a phase that the kernel has ended counts as a runaway; empty when it does not."""
        course, rules = self._courses.get(phase_id), self._rules
        rise = self._last_rise(course) if course is not None else None
        if course is None or rise is None or rise.above_s is None:
            return ""
        beyond = _is_front_end(course) and rise.high_mib >= rules.front_end_killed_factor * course.expected_mib
        if rise.high_s - rise.since_s < rules.killed_rising_s and not beyond:
            return ""
        if rise.cpu_share is not None and rise.cpu_share < rules.company_cpu_share:
            return ""
        return f"{_beyond(course, rise)}, and rose without a rest up to its end"

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


def _beyond(course: _Course, rise: _Rise) -> str:
    times = rise.high_mib / max(1.0, course.expected_mib)
    return f"it held {rise.high_mib:.0f} MiB, {times:.0f} times what was expected"
