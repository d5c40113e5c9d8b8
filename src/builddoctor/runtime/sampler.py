"""The sampler: looks at memory while the build runs, and says what it saw as events.

Covers: the order of reads, which phases are worth a look, pressure, the once-a-second status; the thresholds of all
that is looked for.
Does *not* cover: what follows from it (``scheduler``), how soon to look again (``scheduler.look_period``), or single
sources of figures that headroom alone does not show (``runtime.rss_recheck``, ``runtime.ungated_watch``,
``runtime.sharing``).
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from functools import partial

import msgspec

from builddoctor.core.events import Fact, HighLevel, MemorySampled, PressureSampled, Status
from builddoctor.core.limits import MemoryReading
from builddoctor.core.settings import RunawayRules, ThrashRules
from builddoctor.runtime.phases import LivePhases
from builddoctor.runtime.rss_recheck import CrossCheckRules, RssRecheck
from builddoctor.runtime.sharing import Sharing
from builddoctor.runtime.ungated_watch import WATCHING_S, UngatedWatch
from builddoctor.scheduler.budget import OPEN_UNIT_MIB, Allowance, allowance
from builddoctor.scheduler.look_period import LONGEST_S, LookPeriod
from builddoctor.scheduler.scheduler import Scheduler
from builddoctor.system.memory_sensor import MemorySensor
from builddoctor.system.pressure import PressureSensor
from builddoctor.system.process import Processes
from builddoctor.system.root import Clock, SystemRoot

PRESSURE_EVERY_S = 1.0
TIGHT_SHARE = 0.15
"""With less of the tightest limit left, resting phases are looked at each time too: they may be ended any moment."""

QUIET_AFTER_S = 60.0
QUIET_EVERY_S = 10.0
"""So long after the last compiler looks at memory are told this seldom, and at once when one asks: a server that
compiles nothing runs for weeks, and a trace of all looks would grow by 60 to 500 MB a day."""

STALE_S = 1.5
"""A look this long ago was before we were stopped, or starved: nothing is decided on what was seen then."""


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """Thresholds of what is seen beside headroom, in one place: production's defaults, and shorter ones in tests."""

    runaway: RunawayRules = RunawayRules()
    thrash: ThrashRules = ThrashRules()
    crosscheck: CrossCheckRules = CrossCheckRules()
    pace: float = 1.0
    """seconds of the clock for each that passes: more than one where a recorded build is replayed in less time"""
    rest_s: float = 0.75
    """a phase whose memory holds still is looked at again after this time, unless memory is short"""


class Sampler:
    """One build's looks at memory. ``reading``: the last look at the limits."""

    def __init__(
        self,
        scheduler: Scheduler,
        phases: LivePhases,
        sensor: MemorySensor,
        *,
        recheck: RssRecheck,
        ungated: UngatedWatch,
        sharing: Sharing,
        processes: Processes,
        root: SystemRoot,
        clock: Clock,
        reading: MemoryReading,
        rules: Rules,
    ) -> None:
        self.reading = reading
        self.held_mib = 0.0
        """what all running phases held at the last look"""
        self._scheduler = scheduler
        self._phases = phases
        self._sensor = sensor
        self._recheck = recheck
        self._ungated = ungated
        self._sharing = sharing
        self._processes = processes
        self._root = root
        self._page_bytes = root.page_bytes()
        self._clock = clock
        self._rest_s = rules.rest_s
        self._pressure = PressureSensor(root, page_bytes=self._page_bytes)
        self._pressure_s = float("-inf")
        self._looked_s: float | None = None
        self._period = LookPeriod()
        self._running = 0
        self._tight = False
        self._busy_s = clock()

    @property
    def is_stale(self) -> bool:
        """Memory has to be looked at before anything is decided."""
        return self._looked_s is not None and self._clock() - self._looked_s > STALE_S

    @property
    def is_quiet(self) -> bool:
        """Nothing has compiled for a while, or waited to."""
        return self.quiet_s >= QUIET_AFTER_S

    @property
    def quiet_s(self) -> float:
        """So long ago was the last look that saw anything compile, or wait to."""
        return self._clock() - self._busy_s

    def look(self, at_s: float, *, open_units: int) -> Iterator[Fact]:
        """One look: memory of the running phases, then the limits, then everything that qualifies them, and at last the
        sample. Each fact is to be decided upon before the next is asked for."""
        self._looked_s = self._clock()
        if self._phases or open_units:
            self._busy_s = self._looked_s
        looked = self._look_at_phases(open_units, everyone=self._tight or self._recheck.busy)
        if not self._tight and self._is_tight():
            looked = self._look_at_phases(open_units, everyone=True)
        self._tight = self._is_tight()
        self._period.saw(self.held_mib, self._clock(), busy=self._running > 0)
        self._recheck.look(self.held_mib, self.reading, running=self._running > 0)
        allowed = allowance(self.reading, self.held_mib)
        if (pressure := self._look_at_pressure(at_s)) is not None:
            yield pressure
        ungated = self._ungated.look(self.reading, allowed, phases_mib=self.held_mib, open_units=open_units, at_s=at_s)
        if ungated is not None:
            yield ungated
            self._ungated.let_go()
        demand = partial(
            self._scheduler.demand,
            headroom_mib=allowed.kill_headroom_mib,
            own_budget_mib=allowed.budget_mib,
            held_mib=self.held_mib,
            reserve_mib=allowed.reserve_mib,
        )
        if (share := self._sharing.look(self.reading, demand, held_mib=self.held_mib, at_s=at_s)) is not None:
            yield share
        yield self._sample(looked, allowed, at_s)

    def _sample(self, looked: list[tuple[int, float]], allowed: Allowance, at_s: float) -> MemorySampled:
        suspects = [(phase_id, self._phases[phase_id]) for phase_id in self._scheduler.suspects & self._phases.keys()]
        cpu_s = [(phase_id, live.cpu_s(self._processes)) for phase_id, live in suspects]
        return MemorySampled(
            at_s=at_s,
            rss_mib=tuple(looked),
            held_mib=round(self.held_mib, 1),
            headroom_mib=round(allowed.kill_headroom_mib, 1),
            budget_mib=round(allowed.budget_mib, 1),
            reserve_mib=round(allowed.reserve_mib, 1),
            cpu_s=tuple((phase_id, round(seconds, 2)) for phase_id, seconds in cpu_s if seconds is not None),
        )

    def _look_at_phases(self, open_units: int, *, everyone: bool) -> list[tuple[int, float]]:
        """The figures of phases that were looked at, all but the resting ones; then the sum of all, and the limits."""
        now_s = self._clock()
        looked: list[tuple[int, float]] = []
        running = self._phases.running
        for live in running if everyone else [live for live in running if live.look_again_s <= now_s]:
            phase_id = live.phase.phase_id
            reported_mib = live.sample(self._root, self._processes, self._page_bytes)
            looked.append((phase_id, round(self._recheck.figure(phase_id, reported_mib), 1)))
            live.looked(now_s, rest_s=self._rest_s)
        # Hundreds, twenty times a second: lists of one field each cost half of a loop.
        self._running, self.held_mib = len(running), sum([live.rss_mib for live in running])
        open_mib = OPEN_UNIT_MIB * open_units
        self.reading = self._sensor.read(self.held_mib + open_mib + self._ungated.ungated_mib)
        return looked

    def _look_at_pressure(self, at_s: float) -> PressureSampled | None:
        if at_s < self._pressure_s + (QUIET_EVERY_S if self.is_quiet else PRESSURE_EVERY_S):
            return None
        self._pressure_s = at_s
        seen, tightest, high = self._pressure.read(), self.reading.tightest, _high_level(self.reading)
        return PressureSampled(
            at_s=at_s,
            some_s=None if seen.some_s is None else round(seen.some_s, 3),
            full_s=None if seen.full_s is None else round(seen.full_s, 3),
            refault_mib=None if seen.refault_mib is None else round(seen.refault_mib, 1),
            fullness=None if seen.fullness is None else round(seen.fullness, 3),
            headroom_share=round(tightest.headroom_mib / max(tightest.limit_mib, 1.0), 4),
            high_events=seen.high_events,
            high=high,
            held_mib=0.0 if high is None else round(self.held_mib, 1),
        )

    def _is_tight(self) -> bool:
        tightest = self.reading.tightest
        return tightest.headroom_mib < TIGHT_SHARE * tightest.limit_mib

    @property
    def period_s(self) -> float:
        """How long until the next look."""
        longest_s = WATCHING_S if self._ungated.watching else LONGEST_S
        headroom_mib = self.reading.tightest.headroom_mib
        period_s = self._period.next_s(headroom_mib, longest_s=longest_s, quiet=self.is_quiet)
        return min(period_s, self._sharing.period_s(waiting=self._scheduler.waiting > 0))

    def status(
        self,
        at_s: float,
        *,
        open_units: int,
        held_units: int,
        oom_kills: int | None,
        planned: int | None,
        left_s: tuple[float, float] | None,
    ) -> Status:
        """The whole picture, once a second."""
        tightest, scheduler = self.reading.tightest, self._scheduler
        return Status(
            at_s=at_s,
            budget_mib=round(scheduler.budget_mib, 1),
            limit_mib=round(self.reading.limit_mib, 1),
            headroom_mib=round(tightest.headroom_mib, 1),
            ours_mib=round(self.held_mib, 1),
            running=scheduler.running,
            waiting=scheduler.waiting,
            open_units=open_units - held_units,
            held_units=held_units,
            oom_kills=oom_kills,
            planned=planned,
            left_s=left_s,
            committed_mib=round(scheduler.committed_mib, 1),
            limited_by=tightest.source,
        )


@contextlib.contextmanager
def collector_held_back() -> Iterator[None]:
    """Python's collector of cycles passes over what is there at the start: 47,000 objects after our imports, which take
    20 to 30 ms. Gates wait meanwhile, and a compiler takes on 2 GB/s. See ``gc.freeze`` in Python's documentation."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _high_level(reading: MemoryReading) -> HighLevel | None:
    """The ``memory.high`` with the least headroom; None where none is set."""
    throttling = [level for level in reading.levels if level.throttles]
    if not throttling:
        return None
    level = min(throttling, key=lambda each: each.headroom_mib)
    return HighLevel(
        source=level.source, limit_mib=round(level.limit_mib, 1), headroom_mib=round(level.headroom_mib, 1)
    )
