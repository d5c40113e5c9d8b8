"""The brake: which running phase stands still for a while, so that the others can end within memory. Pure.

Covers: whom to suspend when memory runs out, when it goes on, and which is ended where that does not come.
Does *not* cover: when memory runs out (``scheduler.oom_guard``), or sending signals (``gates``).

A phase that is suspended (SIGSTOP) keeps what it holds and loses nothing; one that is ended loses all that it did. So
phases are suspended only where those that work can end beside them, by what is expected of them, and then those that
stand, one after the other: a safe order, as in Dijkstra's banker's algorithm (EWD 108). Nothing is begun meanwhile.

Measured (docs/adr/0033): to end what has stood for as long as it had worked makes no build shorter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from builddoctor.core.events import ContinueReason, Resume, Suspend
from builddoctor.scheduler.course_forecast import Ahead, Steps, most_mib
from builddoctor.scheduler.running_set import RISK_GROWING, Running, RunningSet

LEAST_STOOD_S = 1.0
"""Shorter and it would be stopped and let go at every look."""

MOST_STOOD_S = 60.0
"""If no phase has ended for so long, one of those that stand is."""

MOST_AT_ONCE = 8
"""Phases that are suspended together at most: with each try all that run are added up."""

ROOM = 2.0
"""One goes on when there is room for what all take on within so many times what it takes to end one; else it would be
suspended again at once."""


class Brake:
    """Over ``running``, which is the scheduler's own. A decision counts as done: say ``refused`` where it was not."""

    def __init__(self, running: RunningSet, ahead: Ahead) -> None:
        self._running = running
        self._ahead = ahead
        self._refused: set[int] = set()
        self._ended_s = 0.0

    @property
    def on(self) -> bool:
        """Some phase stands still."""
        return bool(self._running.suspended)

    def phase_ended(self, phase_id: int, now_s: float) -> None:
        """For whatever reason."""
        self._refused.discard(phase_id)
        self._ended_s = now_s

    def refused(self, phase_id: int, now_s: float) -> list[Resume]:
        """It could not be stopped: it works, and is not tried again."""
        if (run := self._running.get(phase_id)) is None or run.suspended_at_s is None:
            return []
        self._refused.add(phase_id)
        return [self._goes_on(run, ContinueReason.REFUSED, now_s)]

    def suspend(self, *, left_mib: float, growth_mib: float, latency_s: float, now_s: float) -> list[Suspend]:
        """Suspend as few as will do, those first that take most, by what is expected and by how they grow. None where
        no safe order exists, or where there is still time: what is expected of all fits, or there will be such an order
        at the next look, too.

        ``growth_mib``: what all may take on within ``latency_s``, from deciding to end one to its memory being back.
        """
        runs = list(self._running.values())
        limit_mib = sum(run.rss_mib for run in runs) + left_mib
        ahead = {run.phase.phase_id: self._ahead(run, now_s) for run in runs}
        if left_mib >= growth_mib:
            at_work = [run for run in runs if run.suspended_at_s is None]
            if self._is_safe(at_work, self._running.suspended, ahead, limit_mib, latency_s):
                return []
            if self._to_suspend(ahead, limit_mib - growth_mib, latency_s):
                return []
        chosen = self._to_suspend(ahead, limit_mib, latency_s)
        for run in chosen:
            self._running.suspend(run, now_s)
        return [
            Suspend(
                at_s=now_s,
                phase_id=run.phase.phase_id,
                held_mib=round(run.rss_mib, 1),
                left_mib=round(left_mib, 1),
                growth_mib_s=round(growth_mib / latency_s, 1),
            )
            for run in chosen
        ]

    def _to_suspend(self, ahead: dict[int, Steps], limit_mib: float, latency_s: float) -> list[Running]:
        """The fewest that will do; none where no safe order exists. What holds nothing may have no process yet."""
        at_work = [run for run in self._running.values() if run.suspended_at_s is None]
        may_stand = [run for run in at_work if run.rss_mib > 0 and run.phase.phase_id not in self._refused]
        takes_mib = {
            run.phase.phase_id: run.expected_mib - run.rss_mib + run.growth_within_mib(latency_s) for run in at_work
        }
        # Of those that take alike the youngest.
        to_take = sorted(may_stand, key=lambda run: (takes_mib[run.phase.phase_id], run.admitted_at_s), reverse=True)
        for count in range(1, min(MOST_AT_ONCE, len(at_work) - 1) + 1):
            chosen = to_take[:count]
            work = [run for run in at_work if run not in chosen]
            if self._is_safe(work, [*self._running.suspended, *chosen], ahead, limit_mib, latency_s):
                return chosen
        return []

    def resume(self, *, left_mib: float, latency_s: float, now_s: float) -> list[Resume]:
        """Let those go on that fit again, the oldest first."""
        stand = list(self._running.suspended)
        limit_mib = sum(run.rss_mib for run in self._running.values()) + left_mib
        ahead = {run.phase.phase_id: self._ahead(run, now_s) for run in self._running.values()}
        resumed: list[Resume] = []
        for run in list(stand):
            at_work = [each for each in self._running.values() if each not in stand]
            others = [each for each in stand if each is not run]
            room_s = ROOM * latency_s
            due = run.suspended_at_s is not None and now_s - run.suspended_at_s >= LEAST_STOOD_S
            if due and self._is_safe([*at_work, run], others, ahead, limit_mib, room_s):
                resumed.append(self._goes_on(run, ContinueReason.MEMORY_BACK, now_s))
                stand = others
        return resumed or self.first_alone(now_s)

    def first_alone(self, now_s: float) -> list[Resume]:
        """Something always works: where all stand, the oldest goes on."""
        stand = self._running.suspended
        if not stand or len(stand) < len(self._running):
            return []
        return [self._goes_on(stand[0], ContinueReason.NOTHING_MOVES, now_s)]

    def release(self, reason: ContinueReason, now_s: float) -> list[Resume]:
        """None stands any more."""
        return [self._goes_on(run, reason, now_s) for run in list(self._running.suspended)]

    def stuck(self, now_s: float, *, others_wait: bool) -> Running | None:
        """Where one has stood for a minute and nothing has ended meanwhile: of those that stand the one to end, which
        has done least, and never the oldest of all. ``others_wait``: for what it holds."""
        stand, oldest = self._running.suspended, next(iter(self._running.values()), None)
        may_end = [run for run in stand if run is not oldest and run.phase.redoable]
        if not may_end or not (others_wait or len(stand) > 1):
            return None
        if min(now_s - self._ended_s, max(run.stands_s(now_s) for run in stand)) < MOST_STOOD_S:
            return None
        return min(may_end, key=lambda run: run.ran_s(now_s))

    def _goes_on(self, run: Running, reason: ContinueReason, now_s: float) -> Resume:
        stood_s = round(run.stands_s(now_s), 3)
        self._running.resume(run, now_s)
        return Resume(at_s=now_s, phase_id=run.phase.phase_id, stood_s=stood_s, reason=reason)

    @staticmethod
    def _is_safe(
        work: Sequence[Running],
        stand: Sequence[Running],
        ahead: dict[int, Steps],
        limit_mib: float,
        within_s: float,
    ) -> bool:
        """``work`` can end beside those that stand, and what it takes on so soon is there; then each of those that
        stand, the oldest first."""
        stand_mib = sum(run.rss_mib for run in stand)
        risk_mib = RISK_GROWING * math.hypot(*(run.spread_mib for run in work))
        soon_mib = sum(run.rss_mib + run.growth_within_mib(within_s) for run in work)
        if stand_mib + max(soon_mib, most_mib([ahead[run.phase.phase_id] for run in work]) + risk_mib) > limit_mib:
            return False
        for run in stand:
            stand_mib -= run.rss_mib
            if stand_mib + max(mib for _, mib in ahead[run.phase.phase_id]) > limit_mib:
                return False
        return True
