"""Looks at memory while the build runs: announced processes, limits, and a line in the trace each second.

Covers: the period (by headroom and measured growth), the order of reads, syncing the trace.
Does *not* cover: what follows from it (``policy.governor``), or what headroom alone does not show
(``supervise.rereading``, ``supervise.thrashing``, ``supervise.pausing``).

Period: headroom / (4 x fastest growth seen), between 50 ms and 1 s; before anything was seen, memory is taken to fill
at 6000 MiB/s, as earlyoom and nohang do.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from builddoctor.model.board import TimeLeft
from builddoctor.model.limits import MemoryReading
from builddoctor.policy.budget import OPEN_UNIT_MIB, allowance, budget_mib
from builddoctor.policy.events import Sampled
from builddoctor.policy.rules import Rules
from builddoctor.policy.thrash import ThrashState
from builddoctor.sensors.limits import MemorySensor
from builddoctor.sensors.root import Clock
from builddoctor.supervise.collecting import start_left_alone
from builddoctor.supervise.pausing import WATCHING_S, Pausing
from builddoctor.supervise.rereading import Rereading
from builddoctor.supervise.session import Session
from builddoctor.supervise.sharing import Sharing
from builddoctor.supervise.thrashing import Thrashing
from builddoctor.supervise.time_left import build_left
from builddoctor.trace import records

SHORTEST_S, LONGEST_S = 0.05, 1.0
UNMEASURED_FILL_MIB_S = 6000.0
MEASURED_AFTER = 20
SYNC_EVERY_S = 1.0
TICK_EVERY_S = 1.0
TIGHT_SHARE = 0.15
"""With less of the tightest limit left, resting phases are looked at each time too: they may be ended any moment."""

STALE_S = 1.5
"""Who has not looked for this long was stopped, or starved: nothing is decided on what was seen before."""


class Sampler:
    """Samples until cancelled. ``reading`` is the last look at the limits."""

    def __init__(
        self,
        session: Session,
        sensor: MemorySensor,
        *,
        clock: Clock,
        reading: MemoryReading,
        rules: Rules,
        sharing: Sharing | None = None,
        planned: Callable[[], int | None] = lambda: None,
    ) -> None:
        self.reading = reading
        self.total_mib = 0.0
        self._session = session
        self._sensor = sensor
        self._clock = clock
        self._pace = rules.pace
        self._rest_s = rules.rest_s
        self._planned = planned
        self._rereading = Rereading(session, rules.crosscheck, clock=clock)
        self._thrashing = Thrashing(session, rules.thrash, clock=clock)
        self._sharing = sharing or Sharing(session, None, slots=1, root=session.root, clock=clock)
        self.pausing = Pausing(session, clock=clock)
        self._looked_s: float | None = None
        session.catch_up = self._catch_up
        self._fastest_mib_s = 0.0
        self._samples = 0
        self._running = 0
        self._tight = False
        self._last: tuple[float, float] | None = None
        self._next_tick_s = 0.0
        self._next_sync_s = 0.0
        self._sync: asyncio.Future[None] | None = None
        self._told_problem = False
        self._told_blind = False

    async def run(self) -> None:
        """Sample for ever."""
        with start_left_alone():
            while True:
                self._look()
                with contextlib.suppress(RuntimeError):
                    # No thread can be started to sync the trace: memory is watched all the same.
                    self._keep_trace()
                await asyncio.sleep(self.period_s() / self._pace)

    def _look(self) -> None:
        self._looked_s = self._clock()
        try:
            self.sample()
        except Exception as error:  # noqa: BLE001 - whatever it is, the build must not go on unwatched
            self._blind(error)

    def _catch_up(self) -> None:
        """Before anything is decided."""
        if self._looked_s is not None and self._clock() - self._looked_s > STALE_S:
            self._look()

    def _blind(self, error: Exception) -> None:
        """Memory could not be looked at: nothing new starts beside what runs, until it can."""
        if not self._told_blind:
            self._told_blind = True
            self._session.tell(f"memory cannot be watched ({error!r}): phases run one at a time now", warning=True)
        self.pausing.release()
        everything = float("inf")
        self._session.decide(Sampled(rss_mib=(), headroom_mib=everything, budget_mib=0.0, reserve_mib=0.0))

    def sample(self) -> None:
        """One look: memory of the running phases, then the limits, then the governor's turn."""
        session = self._session
        looked = self._look_at_phases(everyone=self._tight or self._rereading.busy)
        if not self._tight and self._is_tight():
            looked = self._look_at_phases(everyone=True)
        self._tight = self._is_tight()
        self._measure(self.total_mib, busy=self._running > 0)
        session.accounts.peak_mib = max(session.accounts.peak_mib, self.total_mib)
        self._rereading.look(self.total_mib, self.reading, running=self._running > 0)
        killed = session.accounts.killed
        sampled = self._sampled(looked)
        session.decide(sampled)
        self._sharing.looked(sampled)
        self.pausing.looked(sampled)
        if session.accounts.killed > killed:
            # A pressure edge: what led to it must survive whatever comes next.
            self._next_sync_s = 0.0

    def _look_at_phases(self, *, everyone: bool) -> list[tuple[int, float]]:
        """The figures of those that were looked at, all but the resting ones; then the sum of all, and the limits."""
        session, now_s = self._session, self._clock()
        looked: list[tuple[int, float]] = []
        curves: list[records.PhaseCurve] = []
        running = [live for live in session.live.values() if live.admitted_at_s is not None]
        for live in running if everyone else [live for live in running if live.look_again_s <= now_s]:
            phase_id = live.phase.phase_id
            reported_mib = live.sample(session.root, session.processes, session.page_bytes)
            looked.append((phase_id, self._rereading.figure(phase_id, reported_mib)))
            live.looked(now_s, rest_s=self._rest_s)
            if live.curve_moved():
                curves.append(
                    records.PhaseCurve(at_s=session.at_s(), phase_id=phase_id, rss_mib=round(live.rss_mib, 1))
                )
        # Hundreds, twenty times a second: lists of one field each cost half of a loop.
        self._running, self.total_mib = len(running), sum([live.rss_mib for live in running])
        open_mib = OPEN_UNIT_MIB * len(session.units.open)
        self.reading = self._sensor.read(self.total_mib + open_mib + self.pausing.ungated_mib)
        # After both looks: a disk that answers slowly must not come between them, or the wrong one is ended.
        session.trace.write(*curves)
        return looked

    def _is_tight(self) -> bool:
        tightest = self.reading.tightest
        return tightest.headroom_mib < TIGHT_SHARE * tightest.limit_mib

    def _sampled(self, looked: list[tuple[int, float]]) -> Sampled:
        """What the governor is told: the tightest level as it is, or as it must be taken to be."""
        session, tightest, total_mib = self._session, self.reading.tightest, self.total_mib
        allowed = allowance(self.reading, total_mib)
        state = self._thrashing.look(
            headroom_share=tightest.headroom_mib / max(tightest.limit_mib, 1.0), running=self._running
        )
        headroom_mib, budget = allowed.kill_headroom_mib, allowed.budget_mib
        kept_mib = self.pausing.look(self.reading, allowed, phases_mib=total_mib)
        if state is ThrashState.ACT:
            headroom_mib = min(0.0, headroom_mib)
            budget = budget_mib(headroom_mib, total_mib, allowed.reserve_mib)
        budget = max(0.0, budget - kept_mib)
        suspects = [(phase_id, session.live[phase_id]) for phase_id in session.governor.suspects & session.live.keys()]
        cpu_s = [(phase_id, live.cpu_s(session.processes)) for phase_id, live in suspects]
        return Sampled(
            rss_mib=tuple(looked),
            headroom_mib=headroom_mib,
            budget_mib=min(budget, total_mib) if state is ThrashState.HOLD else budget,
            reserve_mib=allowed.reserve_mib,
            share_mib=min(
                self._sharing.look(self.reading, total_mib, own_budget_mib=budget), self.pausing.share_mib(budget)
            ),
            cpu_s=tuple((phase_id, seconds) for phase_id, seconds in cpu_s if seconds is not None),
            reason=self._thrashing.reason if state is ThrashState.ACT else "",
        )

    def period_s(self) -> float:
        """How long until the next look."""
        fill = UNMEASURED_FILL_MIB_S if self._samples < MEASURED_AFTER else max(2 * self._fastest_mib_s, 500.0)
        longest_s = WATCHING_S if self.pausing.watching else LONGEST_S
        period_s = min(longest_s, max(SHORTEST_S, self.reading.tightest.headroom_mib / (4 * fill)))
        return min(period_s, self._sharing.period_s)

    def _measure(self, total_mib: float, *, busy: bool) -> None:
        now_s = self._clock()
        if self._last is not None and now_s > self._last[0]:
            self._fastest_mib_s = max(self._fastest_mib_s, (total_mib - self._last[1]) / (now_s - self._last[0]))
        self._last = (now_s, total_mib)
        self._samples += busy

    def _left(self, at_s: float) -> TimeLeft | None:
        try:
            return build_left(self._session, self._planned(), self._session.accounts.start_s + at_s)
        except Exception:  # noqa: BLE001 - memory is watched here: no figure for a screen may end that
            return None

    def _keep_trace(self) -> None:
        session, at_s = self._session, self._session.at_s()
        if at_s >= self._next_tick_s:
            self._next_tick_s = at_s + TICK_EVERY_S
            left = self._left(at_s)
            session.trace.write(
                records.TickRecord(
                    at_s=at_s,
                    budget_mib=round(session.governor.budget_mib, 1),
                    limit_mib=round(self.reading.limit_mib, 1),
                    headroom_mib=round(self.reading.tightest.headroom_mib, 1),
                    ours_mib=round(self.total_mib, 1),
                    running=session.governor.running,
                    waiting=session.governor.waiting,
                    open_units=len(session.units.open) - len(session.holding),
                    held_units=len(session.holding),
                    oom_kills=session.evidence.total(),
                    planned=self._planned(),
                    left_s=(round(left.low_s, 1), round(left.high_s, 1)) if left is not None else None,
                )
            )
        if at_s >= self._next_sync_s and (self._sync is None or self._sync.done()):
            self._next_sync_s = at_s + SYNC_EVERY_S
            # A slow disk must not hold up the event loop.
            self._sync = asyncio.get_running_loop().run_in_executor(None, session.trace.sync)
        if session.trace.problem and not self._told_problem:
            self._told_problem = True
            session.tell(
                f"the trace cannot be written ({session.trace.problem}); the build goes on without it", warning=True
            )
