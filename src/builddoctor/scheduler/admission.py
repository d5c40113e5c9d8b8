"""Admission: whether a phase fits beside those that run, now and at every moment until it ends. Pure.

Covers: places in count and memory, places kept for units between two of their phases, room that others will make, and
the room that the most urgent phase waits for.
Does *not* cover: which phase is tried first (``scheduler.wait_queue``), or what follows (``scheduler.scheduler``).

One ``Admission`` serves one pass along the wait queue, from the most urgent phase to the least. The first that has to
wait for memory is promised the moment at which it will fit, and what is less urgent starts only if it does not come in
its way: EASY backfilling (Lifka, "The ANL/IBM SP scheduling system", 1995), with memory over time for processors. Only
where an earlier build shows what it will hold: a guess is no promise (docs/adr/0035).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from builddoctor.core.events import HoldReason
from builddoctor.core.phase import Estimate, Phase
from builddoctor.scheduler.course_forecast import Ahead, CourseForecast, CourseForecasts, Outlook, Steps, later
from builddoctor.scheduler.running_set import Load, Running, RunningSet, risk_share
from builddoctor.scheduler.wait_queue import KeptPlace, Waiting

TRIES = 16
"""Phases a pass for which moments to come are looked at; they are the most urgent of those that do not fit now."""

ESTIMATES = 4
"""Phases a pass that are estimated anew: with 16 gates wait longer for answers, and builds are as long (ADR 0035)."""


class Admission:
    """What is left of ``slots`` places and of ``allowed_mib``. ``budget_mib``: of the whole build, which
    may be more; nothing is set aside for one phase beyond it. ``steps``: of a phase that waits; ``ahead``: of one that
    runs; ``urgency``: of a unit with so much to do."""

    def __init__(
        self,
        running: RunningSet,
        kept: Iterable[KeptPlace],
        *,
        slots: int,
        cores: int,
        allowed_mib: float,
        budget_mib: float,
        steps: Callable[[Waiting], Steps],
        ahead: Ahead,
        urgency: Callable[[str, float], float],
        now_s: float,
    ) -> None:
        self._running, self._risk = running.values(), running.risk
        self._kept = sorted(kept, key=lambda each: each.urgency)
        self._slots, self._cores = slots, cores
        self._allowed_mib, self._budget_mib = allowed_mib, budget_mib
        self._steps, self._ahead_of = steps, ahead
        self._urgency, self._now_s = urgency, now_s
        # What runs, and the places kept for units that are more urgent than the phase that was reached.
        self._load = running.load()
        self._kept_mib = 0.0
        self._ahead: CourseForecasts | None = None
        self._promised = False
        self._tries = TRIES
        self._estimates = ESTIMATES

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
        """A phase that was held for memory before and expects more than this still is: it does not fit beside the peaks
        of what runs, and forecasts are spent. Another quick answer."""
        return self._allowed_mib - self._load.committed_mib if self._quick else math.inf

    @property
    def sure_mib(self) -> float:
        """More than ``over_mib`` by what is set aside for spreads. A phase that was held and expects more than this is
        not even estimated anew."""
        return self._allowed_mib - self._load.expected_mib if self._quick else math.inf

    @property
    def _quick(self) -> bool:
        return self._tries <= 0 and len(self._running) > 0

    def estimate_again(self, waiting: Waiting, estimate: Callable[[Phase], Estimate]) -> None:
        """What others took is known since it asked: those of its kind, or by how much the past is off."""
        if self._estimates <= 0:
            return
        waiting.estimated_at_s = self._now_s
        self._estimates -= 1
        waiting.estimate = estimate(waiting.phase)

    def reach(self, urgency: float) -> None:
        """Come to a phase of this urgency; urgencies fall from call to call."""
        while self._kept and self._kept[-1].urgency > urgency:
            kept = self._kept.pop()
            load = self._load.with_one(kept.estimate, risk_share(0.0), budget_mib=self._budget_mib)
            if load.count <= self._slots and load.committed_mib <= self._allowed_mib:
                self._load = load
                self._kept_mib += kept.estimate.peak_mib

    def blocked(self, waiting: Waiting) -> HoldReason | None:
        """Why this phase, the one that was reached, cannot start beside the others; None when it can."""
        if self._load.killing:
            return HoldReason.FREEING
        if self._no_core(waiting):
            return HoldReason.CORES
        load = self._load_with(waiting)
        if load.committed_mib <= self._allowed_mib and not self._promised:
            return None
        if self._tries <= 0:
            return HoldReason.MEMORY
        self._tries -= 1
        steps, forecast = self._steps(waiting), self._forecast_for(waiting.urgency)
        within_mib = self._allowed_mib - self._kept_mib - load.risk_mib
        if forecast.fits(steps, within_mib):
            return None
        if waiting.course and not self._promised:
            self._promise(steps, forecast.first_s(steps, within_mib))
        return HoldReason.MEMORY

    def _promise(self, steps: Steps, begins_s: float | None) -> None:
        """Room from that moment on: what is less urgent has to leave it."""
        if begins_s is not None and self._ahead is not None:
            self._ahead.add(Outlook(math.inf, later(steps, begins_s), 0.0))
            self._promised = True

    def _no_core(self, waiting: Waiting) -> bool:
        count = self._load.count
        return count >= self._slots or (count >= self._cores and not waiting.short)

    def taken(self, waiting: Waiting) -> None:
        """This phase starts: it is one of ``running`` from now on."""
        self._load = self._load_with(waiting)
        if self._ahead is not None:
            self._ahead.add(self._outlook(next(reversed(self._running))))

    def _load_with(self, waiting: Waiting) -> Load:
        return self._load.with_one(waiting.estimate, self._risk(waiting.phase.kind), budget_mib=self._budget_mib)

    def _forecast_for(self, urgency: float) -> CourseForecast:
        """What running phases will hold, for a phase of this urgency: what more urgent units free is not for it."""
        if self._ahead is None:
            self._ahead = CourseForecasts(map(self._outlook, self._running))
        return self._ahead.beside(urgency)

    def _outlook(self, run: Running) -> Outlook:
        urgency = self._urgency(run.phase.unit_id, run.left_after_s)
        return Outlook(urgency, self._ahead_of(run, self._now_s), run.expected_mib)
