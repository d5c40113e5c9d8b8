"""Looks at memory while the build runs: announced processes, limits, and a line in the trace each second.

Covers: the period (by headroom and measured growth), the order of reads, syncing the trace.
Does *not* cover: what follows from it (``policy.governor``).

Period: headroom / (4 x fastest growth seen), between 50 ms and 1 s; before anything was seen, memory is taken to fill
at 6000 MiB/s, as earlyoom and nohang do.
"""

from __future__ import annotations

import asyncio

from builddoctor.model.limits import MemoryReading
from builddoctor.policy.budget import OPEN_UNIT_MIB, budget_mib, reserve_mib
from builddoctor.policy.events import Sampled
from builddoctor.sensors.limits import MemorySensor
from builddoctor.sensors.root import Clock
from builddoctor.supervise.session import Session
from builddoctor.trace import records

SHORTEST_S, LONGEST_S = 0.05, 1.0
UNMEASURED_FILL_MIB_S = 6000.0
MEASURED_AFTER = 20
SYNC_EVERY_S = 1.0
TICK_EVERY_S = 1.0


class Sampler:
    """Samples until cancelled. ``reading`` is the last look at the limits."""

    def __init__(self, session: Session, sensor: MemorySensor, *, clock: Clock, reading: MemoryReading) -> None:
        self.reading = reading
        self.total_mib = 0.0
        self._session = session
        self._sensor = sensor
        self._clock = clock
        self._fastest_mib_s = 0.0
        self._samples = 0
        self._last: tuple[float, float] | None = None
        self._next_tick_s = 0.0
        self._next_sync_s = 0.0
        self._sync: asyncio.Future[None] | None = None
        self._told_problem = False

    async def run(self) -> None:
        """Sample for ever."""
        while True:
            self.sample()
            self._keep_trace()
            await asyncio.sleep(self.period_s())

    def sample(self) -> None:
        """One look: memory of every running phase, then the limits, then the governor's turn."""
        session = self._session
        rss: list[tuple[int, float]] = []
        total_mib = 0.0
        for phase_id, live in session.live.items():
            if live.admitted_at_s is None:
                continue
            held_mib = live.sample(session.root, session.processes, session.page_bytes)
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
        headroom_mib = self.reading.tightest.headroom_mib
        reserve = reserve_mib(self.reading.limit_mib)
        killed = session.accounts.killed
        session.decide(
            Sampled(
                rss_mib=tuple(rss),
                headroom_mib=headroom_mib,
                budget_mib=budget_mib(headroom_mib, total_mib, reserve),
                reserve_mib=reserve,
            )
        )
        if session.accounts.killed > killed:
            # A pressure edge: what led to it must survive whatever comes next.
            self._next_sync_s = 0.0

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
