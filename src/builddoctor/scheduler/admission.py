"""Admission: whether a phase fits beside those that run, now and at every moment until it ends. Pure.

Covers: places in count and memory, places kept for units between two of their phases, room that others will make.
Does *not* cover: which phase is tried first (``scheduler.wait_queue``), or what follows (``scheduler.scheduler``).

One ``Admission`` serves one pass along the wait queue, from the most urgent phase to the least.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from builddoctor.core.events import HoldReason
from builddoctor.core.past import Course
from builddoctor.core.phase import Estimate, Phase
from builddoctor.estimation.growth import Growth
from builddoctor.scheduler.course_forecast import CourseForecast, CourseForecasts, Outlook, Steps, ahead
from builddoctor.scheduler.forecast import Forecast, Ramp, end_s, ramp
from builddoctor.scheduler.running_set import SURE_SHARE, Load, Running, RunningSet, risk_share
from builddoctor.scheduler.wait_queue import KeptPlace, Waiting

TRIES = 16
"""Phases a pass for which moments to come are looked at; they are the most urgent of those that do not fit now."""

ESTIMATES = 16
"""Phases a pass that are estimated anew: a thousand at once would keep gates waiting for their answers."""


class Admission:
    """What is left of ``slots`` places and of ``allowed_mib``. ``wall_s``: of a phase; ``urgency``: of a unit with so
    much to do."""

    def __init__(
        self,
        running: RunningSet,
        kept: Iterable[KeptPlace],
        *,
        slots: int,
        cores: int,
        allowed_mib: float,
        growth: Growth,
        courses_known: bool,
        wall_s: Callable[[Phase], float],
        urgency: Callable[[str, float], float],
        now_s: float,
    ) -> None:
        self._running = running.values()
        self._kept = sorted(kept, key=lambda each: each.urgency)
        self._slots, self._cores, self._allowed_mib = slots, cores, allowed_mib
        self._growth, self._wall_s, self._urgency, self._now_s = growth, wall_s, urgency, now_s
        # What runs, and the places kept for units that are more urgent than the phase that was reached.
        self._load = running.load(growth.evenness)
        self._kept_mib = 0.0
        self._largest_next_mib: float | None = None
        self._forecasts: dict[int, Forecast] = {}
        self._ramps: list[tuple[float, Ramp]] | None = None
        self._most_urgent: tuple[float, float, float] | None = None
        self._ahead: CourseForecasts | None = None
        self._courses_known = courses_known
        self._tries = TRIES if growth.seen or courses_known else 0
        self._estimates = ESTIMATES
        self._first: tuple[float, float] | None = None
        """(when the first phase of the queue will find room, what will be left beside it)"""

    @property
    def free_mib(self) -> float:
        return max(0.0, self._allowed_mib - self._load.committed_mib)

    @property
    def full(self) -> bool:
        """No later phase may start. Where nothing runs one must, whatever is kept for others."""
        return self._load.count >= self._slots and len(self._running) > 0

    def has_no_core_for(self, waiting: Waiting) -> bool:
        """It was held for want of a core before, and still is: a quick answer for a long queue."""
        return len(self._running) > 0 and self._no_core(waiting)

    @property
    def over_mib(self) -> float:
        """A phase that was held for memory before and expects more than this still is, and no forecast can help:
        another quick answer."""
        if self._tries > 0 or not self._running:
            return math.inf
        return self._allowed_mib - self._load.expected_mib

    def estimate_again(self, waiting: Waiting, estimate: Callable[[Phase], Estimate]) -> None:
        """What others of its kind took is known since it asked; those known from the past do not change."""
        if self._estimates <= 0:
            return
        waiting.estimated_at_s = self._now_s
        if waiting.estimate.spread_mib > SURE_SHARE * waiting.estimate.peak_mib:
            self._estimates -= 1
            waiting.estimate = estimate(waiting.phase)

    def reach(self, urgency: float) -> None:
        """Come to a phase of this urgency; urgencies fall from call to call."""
        while self._kept and self._kept[-1].urgency > urgency:
            kept = self._kept.pop()
            load = self._load.with_one(kept.estimate, risk_share(0.0))
            if load.count <= self._slots and load.committed_mib <= self._allowed_mib:
                self._load = load
                self._kept_mib += kept.estimate.peak_mib

    def blocked(self, waiting: Waiting) -> HoldReason | None:
        """Why this phase, the one that was reached, cannot start beside the others; None when it can."""
        if self._load.killing:
            return HoldReason.FREEING
        if self._no_core(waiting):
            return HoldReason.CORES
        if self._load_with(waiting).committed_mib > self._allowed_mib and not self._fits_in_time(waiting):
            return HoldReason.MEMORY
        # Where courses are known, what fits in time is let in: holding it back for others made builds 1 % longer.
        if not self._courses_known and self._delays_the_most_urgent(waiting):
            return HoldReason.MEMORY
        if self._delays_the_first(waiting):
            return HoldReason.MEMORY
        return None

    def _no_core(self, waiting: Waiting) -> bool:
        count = self._load.count
        return count >= self._slots or (count >= self._cores and not waiting.short)

    def taken(self, waiting: Waiting) -> None:
        """This phase starts: it is one of ``running`` from now on."""
        self._load = self._load_with(waiting)
        self._ramps = self._most_urgent = self._largest_next_mib = None
        if self._ahead is not None:
            self._ahead.add(self._outlook(next(reversed(self._running))))
        if self._first is not None and self._wall_s(waiting.phase) > self._first[0]:
            self._first = (self._first[0], self._first[1] - waiting.estimate.peak_mib)

    def _load_with(self, waiting: Waiting) -> Load:
        return self._load.with_one(waiting.estimate, risk_share(self._growth.evenness(waiting.phase.kind)))

    def _fits_in_time(self, waiting: Waiting) -> bool:
        """It does not fit beside the peaks of all, but at every moment beside what they will hold then."""
        if self._tries <= 0:
            return False
        if self._courses_known:
            self._tries -= 1
            steps = self._steps(waiting.phase, waiting.course, waiting.estimate.peak_mib)
            within_mib = self._allowed_mib - self._kept_mib - self._load_with(waiting).risk_mib
            return self._course_forecast_for(waiting.urgency).fits(steps, within_mib)
        full_after = self._growth.full_after(waiting.phase.kind)
        if not full_after:
            return False
        self._tries -= 1
        candidate = ramp(
            now_mib=0.0,
            full_mib=waiting.estimate.peak_mib,
            elapsed_s=0.0,
            wall_s=self._wall_s(waiting.phase),
            full_after=full_after,
        )
        most_mib = self._forecast_for(waiting.urgency).most_mib(candidate)
        return most_mib + self._kept_mib + self._load_with(waiting).risk_mib <= self._allowed_mib

    def _delays_the_most_urgent(self, waiting: Waiting) -> bool:
        """The unit on which the build's end depends would find room for its next phase, were it not for this one."""
        if self._largest_next_mib is None:
            self._largest_next_mib = max([run.next_mib for run in self._running], default=0.0)
        together_mib = self._kept_mib + self._load.expected_mib + self._largest_next_mib + waiting.estimate.peak_mib
        if together_mib <= self._allowed_mib:
            return False
        if self._most_urgent is None:
            self._most_urgent = self._next_of_the_most_urgent()
        urgency, then_s, others_mib = self._most_urgent
        if urgency <= waiting.urgency or self._wall_s(waiting.phase) <= then_s:
            return False
        without_mib = self._kept_mib + others_mib
        return without_mib <= self._allowed_mib < without_mib + waiting.estimate.peak_mib

    def _next_of_the_most_urgent(self) -> tuple[float, float, float]:
        """Its unit's urgency, when it ends, and what it and those that run on will hold after it."""
        to_come = [run for run in self._running if run.next_mib > 0]
        urgency, first = -math.inf, None
        for run in to_come:
            if (its := self._urgency(run.phase.unit_id, run.left_after_s)) > urgency:
                urgency, first = its, run
        if first is None:
            return -math.inf, 0.0, 0.0
        then_s = max(0.0, self._wall_s(first.phase) - first.ran_s(self._now_s))
        after = (run.expected_mib for run in self._running if run is not first and self._end_s(run) > then_s)
        return urgency, then_s, first.next_mib + sum(after)

    def keep_for(self, first: Waiting) -> None:
        """The build's end depends on this phase, which waits for memory: nothing may start that makes it wait
        longer."""
        held_mib = self._load.committed_mib
        left_mib = held_mib - sum([run.expected_mib for run in self._running])
        if left_mib + first.estimate.reserve_mib > self._allowed_mib:
            # Not even when all have ended: it will run alone.
            return
        ends = sorted([(self._end_s(run), run.expected_mib) for run in self._running])
        for then_s, freed_mib in ends:
            held_mib -= freed_mib
            if held_mib + first.estimate.reserve_mib <= self._allowed_mib:
                self._first = (then_s, self._allowed_mib - held_mib - first.estimate.reserve_mib)
                return

    def _delays_the_first(self, waiting: Waiting) -> bool:
        if self._first is None:
            return False
        then_s, spare_mib = self._first
        return self._wall_s(waiting.phase) > then_s and waiting.estimate.peak_mib > spare_mib

    def _forecast_for(self, urgency: float) -> Forecast:
        """What running phases will hold, for a phase of this urgency: what more urgent units free is not for it."""
        if self._ramps is None:
            self._forecasts = {}
            self._ramps = sorted(
                ((self._urgency(run.phase.unit_id, run.left_after_s), self._ramp(run)) for run in self._running),
                key=lambda each: -each[0],
            )
        urgent = sum(after > urgency for after, _ in self._ramps)
        if urgent not in self._forecasts:
            stays = [Ramp(each.now_mib, each.full_mib, each.full_s, math.inf) for _, each in self._ramps[:urgent]]
            self._forecasts[urgent] = Forecast([*stays, *(each for _, each in self._ramps[urgent:])])
        return self._forecasts[urgent]

    def _course_forecast_for(self, urgency: float) -> CourseForecast:
        """The same, where courses are known."""
        if self._ahead is None:
            self._ahead = CourseForecasts(map(self._outlook, self._running))
        return self._ahead.beside(urgency)

    def _outlook(self, run: Running) -> Outlook:
        elapsed_s = run.ran_s(self._now_s)
        steps = self._steps(run.phase, run.course, run.expected_mib, now_mib=run.rss_mib, elapsed_s=elapsed_s)
        return Outlook(self._urgency(run.phase.unit_id, run.left_after_s), steps, run.expected_mib)

    def _steps(
        self, phase: Phase, course: Course, peak_mib: float, *, now_mib: float = 0.0, elapsed_s: float = 0.0
    ) -> Steps:
        return ahead(
            course,
            now_mib=now_mib,
            peak_mib=peak_mib,
            elapsed_s=elapsed_s,
            wall_s=self._wall_s(phase),
            full_after=self._growth.full_after(phase.kind),
        )

    def _end_s(self, run: Running) -> float:
        return end_s(elapsed_s=run.ran_s(self._now_s), wall_s=self._wall_s(run.phase))

    def _ramp(self, run: Running) -> Ramp:
        return ramp(
            now_mib=run.rss_mib,
            full_mib=run.expected_mib,
            elapsed_s=run.ran_s(self._now_s),
            wall_s=self._wall_s(run.phase),
            full_after=self._growth.full_after(run.phase.kind),
        )
