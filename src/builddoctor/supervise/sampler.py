"""Looks at memory while the build runs: announced processes, limits, and a line in the trace each second.

Covers: the period (by headroom and measured growth), the order of reads, syncing the trace.
Does *not* cover: what follows from it (``policy.governor``), or what headroom alone does not show
(``supervise.rereading``, ``supervise.thrashing``).

Period: headroom / (4 x fastest growth seen), between 50 ms and 1 s; before anything was seen, memory is taken to fill
at 6000 MiB/s, as earlyoom and nohang do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from builddoctor.model.limits import MemoryReading
from builddoctor.policy.budget import OPEN_UNIT_MIB, allowance, budget_mib
from builddoctor.policy.events import Sampled
from builddoctor.policy.rules import Rules
from builddoctor.policy.thrash import ThrashState
from builddoctor.sensors.limits import MemorySensor
from builddoctor.sensors.root import Clock
from builddoctor.supervise.rereading import Rereading
from builddoctor.supervise.session import Session
from builddoctor.supervise.thrashing import Thrashing
from builddoctor.trace import records

SHORTEST_S, LONGEST_S = 0.05, 1.0
UNMEASURED_FILL_MIB_S = 6000.0
MEASURED_AFTER = 20
SYNC_EVERY_S = 1.0
TICK_EVERY_S = 1.0


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
        planned: Callable[[], int | None] = lambda: None,
    ) -> None:
        self.reading = reading
        self.total_mib = 0.0
        self._session = session
        self._sensor = sensor
        self._clock = clock
        self._planned = planned
        self._rereading = Rereading(session, rules.crosscheck, clock=clock)
        self._thrashing = Thrashing(session, rules.thrash, clock=clock)
        self._fastest_mib_s = 0.0
        self._samples = 0
        self._last: tuple[float, float] | None = None
        self._next_tick_s = 0.0
        self._next_sync_s = 0.0
        self._sync: asyncio.Future[None] | None = None
        self._told_problem = False
        self._told_blind = False

    async def run(self) -> None:
        """Sample for ever."""
        while True:
            try:
                self.sample()
            except Exception as error:  # noqa: BLE001 - whatever it is, the build must not go on unwatched
                self._blind(error)
            self._keep_trace()
            await asyncio.sleep(self.period_s())

    def _blind(self, error: Exception) -> None:
        """Memory could not be looked at: nothing new starts beside what runs, until it can."""
        if not self._told_blind:
            self._told_blind = True
            self._session.tell(f"memory cannot be watched ({error!r}): phases run one at a time now", warning=True)
        everything = float("inf")
        self._session.decide(Sampled(rss_mib=(), headroom_mib=everything, budget_mib=0.0, reserve_mib=0.0))

    def sample(self) -> None:
        """One look: memory of every running phase, then the limits, then the governor's turn."""
        session = self._session
        reported: list[tuple[int, float]] = []
        rss: list[tuple[int, float]] = []
        total_mib = 0.0
        for phase_id, live in session.live.items():
            if live.admitted_at_s is None:
                continue
            reported_mib = live.sample(session.root, session.processes, session.page_bytes)
            held_mib = self._rereading.figure(phase_id, reported_mib)
            reported.append((phase_id, reported_mib))
            rss.append((phase_id, held_mib))
            total_mib += held_mib
            if live.curve_moved():
                session.trace.write(
                    records.PhaseCurve(at_s=session.at_s(), phase_id=phase_id, rss_mib=round(held_mib, 1))
                )
        self._measure(total_mib, busy=bool(rss))
        self.total_mib = total_mib
        self.reading = self._sensor.read(total_mib + OPEN_UNIT_MIB * len(session.units.open))
        session.accounts.peak_mib = max(session.accounts.peak_mib, total_mib)
        self._rereading.look(reported, total_mib, self.reading)
        killed = session.accounts.killed
        session.decide(self._sampled(rss, total_mib))
        if session.accounts.killed > killed:
            # A pressure edge: what led to it must survive whatever comes next.
            self._next_sync_s = 0.0

    def _sampled(self, rss: list[tuple[int, float]], total_mib: float) -> Sampled:
        """What the governor is told: the tightest level as it is, or as it must be taken to be."""
        session, tightest = self._session, self.reading.tightest
        allowed = allowance(self.reading, total_mib)
        state = self._thrashing.look(
            headroom_share=tightest.headroom_mib / max(tightest.limit_mib, 1.0), running=len(rss)
        )
        headroom_mib, budget = allowed.kill_headroom_mib, allowed.budget_mib
        if state is ThrashState.ACT:
            headroom_mib = min(0.0, headroom_mib)
            budget = budget_mib(headroom_mib, total_mib, allowed.reserve_mib)
        suspects = [(phase_id, session.live[phase_id]) for phase_id in session.governor.suspects & session.live.keys()]
        cpu_s = [(phase_id, live.cpu_s(session.processes)) for phase_id, live in suspects]
        return Sampled(
            rss_mib=tuple(rss),
            headroom_mib=headroom_mib,
            budget_mib=min(budget, total_mib) if state is ThrashState.HOLD else budget,
            reserve_mib=allowed.reserve_mib,
            cpu_s=tuple((phase_id, seconds) for phase_id, seconds in cpu_s if seconds is not None),
            reason=self._thrashing.reason if state is ThrashState.ACT else "",
        )

    def period_s(self) -> float:
        """How long until the next look."""
        fill = UNMEASURED_FILL_MIB_S if self._samples < MEASURED_AFTER else max(2 * self._fastest_mib_s, 500.0)
        return min(LONGEST_S, max(SHORTEST_S, self.reading.tightest.headroom_mib / (4 * fill)))

    def _measure(self, total_mib: float, *, busy: bool) -> None:
        now_s = self._clock()
        if self._last is not None and now_s > self._last[0]:
            self._fastest_mib_s = max(self._fastest_mib_s, (total_mib - self._last[1]) / (now_s - self._last[0]))
        self._last = (now_s, total_mib)
        self._samples += busy

    def _keep_trace(self) -> None:
        session, at_s = self._session, self._session.at_s()
        if at_s >= self._next_tick_s:
            self._next_tick_s = at_s + TICK_EVERY_S
            session.trace.write(
                records.TickRecord(
                    at_s=at_s,
                    budget_mib=round(session.governor.budget_mib, 1),
                    limit_mib=round(self.reading.limit_mib, 1),
                    headroom_mib=round(self.reading.tightest.headroom_mib, 1),
                    ours_mib=round(self.total_mib, 1),
                    running=session.governor.running,
                    waiting=session.governor.waiting,
                    open_units=len(session.units.open),
                    oom_kills=session.evidence.total(),
                    planned=self._planned(),
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
