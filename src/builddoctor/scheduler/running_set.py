"""The running set: phases that were admitted and have not ended, and what they need together. Pure.

Covers: the expected size of a running phase, its spread and its growth; the load of all of them.
Does *not* cover: whether another may start (``scheduler.admission``).

Hundreds are added up at each event, so what each adds is kept. Sums are made anew of kept parts, never carried on by
adding and subtracting: they are exact, whatever came and went.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from builddoctor.core.events import Rise, Stall, Throttled
from builddoctor.core.past import Course
from builddoctor.core.phase import Estimate, Phase, PhaseKind

OVERRUN_FACTOR = 1.2
"""A phase past its reservation is taken to want this much of what it holds."""


GROWTH_S = 0.3
"""Growth is what a phase took within this time: compilers grow in steps, `cudafe++` by 130 MiB in its first tenth of a
second, and that does not go on. Told from two looks simulated first builds were up to 14 % longer (docs/adr/0036)."""

FASTEST_MIB_S = 1700.0
"""No compiler grows faster: the example's host code by 1,400 MiB/s over a quarter of a second, `cudafe++` by 1,630 over
a tenth (AMD EPYC, 38 real builds in 2.6 and 3 GiB). What does has not been understood by its estimate. With 1,200 the
oldest phases were ended for what they do each time, and first builds of the example took 3 to 8 % longer (ADR 0035)."""

RISK = 0.9
RISK_GROWING = 0.35
"""Spreads are bounds that 95 of 100 phases stay below (1.64 standard deviations). Of the sum of many, this share is set
aside: 0.9 is exceeded once in fourteen times, if all were at their peaks at once. Phases that grow evenly are not, and
show in time what they will take: what is risked is the youngest's work so far, and not a kill by the kernel."""

SURE_SHARE = 0.1
"""Bounds this near are known from the past: such a phase may come to its size as fast as it likes."""

LEAST_GROWTH_MIB_S = 1.0
"""Less is none."""


class Running(msgspec.Struct):
    """One phase that was admitted and has not ended."""

    phase: Phase
    estimate: Estimate
    admitted_at_s: float
    alone: bool
    budget_mib: float
    """the budget when it was admitted: no more is set aside for it, whatever its bound (docs/adr/0037)"""
    course: Course = ((1.0, 1.0),)
    """what it will hold while it runs, in shares of its peak, with slack"""
    left_after_s: float = 0.0
    """what its unit has still to do after it"""
    unit_ends_s: float = 0.0
    """when its unit is expected to be done, if it waits for nothing"""
    rss_mib: float = 0.0
    growth_mib_s: float = 0.0
    area_mib_s: float = 0.0
    """its size, added up over time"""
    looks: int = 0
    seen: list[tuple[float, float]] = msgspec.field(default_factory=list)
    """(when it was looked at, MiB): the last of ``GROWTH_S``, and one before"""
    suspended_at_s: float | None = None
    """since when it stands still; None while it works"""
    stood_s: float = 0.0
    """how long it stood before"""
    killed: bool = False
    runaway: Rise | None = None
    """it was ended as a runaway, for this"""
    throttled: Throttled | None = None
    """it was ended at ``memory.high``, beyond which it gets no further"""
    standstill: Stall | None = None
    """it was ended alone at the limit, where it stood still"""
    expected_mib: float = 0.0
    """what it is taken to need at most, without its spread"""
    spread_mib: float = 0.0
    """how far above that it may go: nothing is left of it once it went there"""

    def __post_init__(self) -> None:
        self.seen.append((self.admitted_at_s, self.rss_mib))
        self._expect()

    def sampled(self, rss_mib: float, now_s: float) -> bool:
        """It holds this much; True when that has changed. One that stands still grows when it goes on."""
        if self.suspended_at_s is not None:
            return False
        passed_s = now_s - self.seen[-1][0]
        if passed_s <= 0:
            # Two looks at one moment are one.
            self.seen.pop()
        self.seen.append((now_s, rss_mib))
        self.area_mib_s += rss_mib * max(0.0, passed_s)
        self.looks += 1
        growth_mib_s = self._growth_mib_s(now_s)
        self.growth_mib_s = growth_mib_s if growth_mib_s >= LEAST_GROWTH_MIB_S else 0.0
        if rss_mib == self.rss_mib:
            return False
        self.rss_mib = rss_mib
        self._expect()
        return True

    def _growth_mib_s(self, now_s: float) -> float:
        """Between two looks it grew evenly, as far as is known."""
        from_s, seen = now_s - GROWTH_S, self.seen
        while len(seen) > 1 and seen[1][0] <= from_s:
            del seen[0]
        begin_s, begin_mib = seen[0]
        if begin_s < from_s:
            next_s, next_mib = seen[1]
            begin_mib += (next_mib - begin_mib) * (from_s - begin_s) / (next_s - begin_s)
        return (seen[-1][1] - begin_mib) / GROWTH_S

    def goes_on(self, now_s: float) -> None:
        """It works again after it stood, and grows as it did before."""
        stood_s = self.stands_s(now_s)
        self.stood_s += stood_s
        self.suspended_at_s = None
        self.seen = [(at_s + stood_s, mib) for at_s, mib in self.seen]

    def held_mib_s(self, now_s: float) -> float:
        """Its size added up over time until now; since the last look it has not changed, as far as is known."""
        return self.area_mib_s + self.rss_mib * max(0.0, now_s - self.seen[-1][0])

    def ran_s(self, now_s: float) -> float:
        """How long it has worked."""
        return now_s - self.admitted_at_s - self.stood_s - self.stands_s(now_s)

    def stands_s(self, now_s: float) -> float:
        """How long it has stood still, this time."""
        return 0.0 if self.suspended_at_s is None else now_s - self.suspended_at_s

    @property
    def sure(self) -> bool:
        """Its size is known from the past."""
        return self.estimate.spread_mib <= SURE_SHARE * self.estimate.peak_mib

    @property
    def too_fast(self) -> bool:
        """It grows as no compiler does, and is not known from the past to."""
        return self.growth_mib_s > FASTEST_MIB_S and not self.sure

    def growth_within_mib(self, ahead_s: float) -> float:
        """What it may take on so soon: no more than was set aside for it, where its size is known. A guess stops none:
        phases that were near to theirs went on to the limit (docs/adr/0036)."""
        growth_mib = self.growth_mib_s * ahead_s
        if not self.sure or self.rss_mib > self.estimate.reserve_mib:
            return growth_mib
        return min(growth_mib, self.estimate.reserve_mib - self.rss_mib)

    def _expect(self) -> None:
        peak_mib = self.estimate.peak_mib
        reserve_mib = peak_mib + self.estimate.spread_within_mib(self.budget_mib)
        if self.rss_mib <= peak_mib:
            self.expected_mib = peak_mib
        else:
            self.expected_mib = self.rss_mib if self.rss_mib <= reserve_mib else self.rss_mib * OVERRUN_FACTOR
        self.spread_mib = max(0.0, reserve_mib - self.expected_mib)


class Load(msgspec.Struct, frozen=True):
    """All running phases together, taken once and asked many times."""

    count: int = 0
    expected_mib: float = 0.0
    squares_mib2: float = 0.0
    """sum of the squares of what each adds to the risk: many phases do not all go to their bounds at once"""
    killing: bool = False
    """one of them was ended, and its memory is not back yet"""

    @property
    def committed_mib(self) -> float:
        """What they hold or may still take."""
        return self.expected_mib + self.risk_mib

    @property
    def risk_mib(self) -> float:
        """Set aside for all spreads together."""
        return math.sqrt(self.squares_mib2)

    def with_one(self, estimate: Estimate, risk: float, *, budget_mib: float) -> Load:
        """As it would be with one phase more; ``risk``: see ``risk_share``."""
        return Load(
            self.count + 1,
            self.expected_mib + estimate.peak_mib,
            self.squares_mib2 + (risk * estimate.spread_within_mib(budget_mib)) ** 2,
            self.killing,
        )


def risk_share(evenness: float) -> float:
    """Share of a spread that is set aside. ``evenness``: 0 for a phase that may be full at once, 1 for an even ramp."""
    return RISK + (RISK_GROWING - RISK) * evenness


class RunningSet(dict[int, Running]):
    """By phase id, in the order in which they started. Changed by the methods below alone."""

    def __init__(self) -> None:
        super().__init__()
        self._expected_mib: dict[int, float] = {}
        self._squares_mib2: dict[int, float] = {}
        self._units_end_s: dict[int, float] = {}
        self._risks = dict.fromkeys(PhaseKind, risk_share(0.0))
        self._killed: set[int] = set()
        self._suspended: set[int] = set()

    @property
    def killing(self) -> bool:
        """One of them was killed, and its memory is not back yet."""
        return bool(self._killed)

    def start(self, run: Running) -> None:
        """A phase was admitted."""
        if len(self) == 1:
            # The one that ran alone has company now; of several none did.
            for other in self.values():
                other.alone = False
        self[run.phase.phase_id] = run
        self._units_end_s[run.phase.phase_id] = run.unit_ends_s
        self._add(run)

    def end(self, phase_id: int) -> Running | None:
        """A phase ended; None when it did not run."""
        self._killed.discard(phase_id)
        self._suspended.discard(phase_id)
        self._expected_mib.pop(phase_id, None)
        self._squares_mib2.pop(phase_id, None)
        self._units_end_s.pop(phase_id, None)
        return self.pop(phase_id, None)

    def kill(self, phase_id: int) -> Running:
        """It is to be killed; gives it."""
        run = self[phase_id]
        run.killed = True
        self._killed.add(phase_id)
        return run

    def decisive_end_s(self, waiting_s: float, *, places: int, now_s: float) -> float:
        """When the unit that takes longest is done, where all that run and what waits (``waiting_s`` of work) are done
        sooner on so many places; -inf where no unit decides the end like that."""
        ends_s = self._units_end_s.values()
        # One that takes longer than was expected has not done the work of others.
        last_s, left_s = max(ends_s), sum(end_s - now_s for end_s in ends_s if end_s > now_s)
        return last_s if (last_s - now_s) * places >= left_s + waiting_s else -math.inf

    @property
    def suspended(self) -> list[Running]:
        """Those that stand still, in the order in which they started."""
        return [run for phase_id, run in self.items() if phase_id in self._suspended] if self._suspended else []

    def suspend(self, run: Running, now_s: float) -> None:
        """It stands still from now on."""
        run.suspended_at_s = now_s
        self._suspended.add(run.phase.phase_id)

    def resume(self, run: Running, now_s: float) -> None:
        """It works again."""
        run.goes_on(now_s)
        self._suspended.discard(run.phase.phase_id)

    def sampled(self, run: Running, rss_mib: float, now_s: float) -> None:
        """See ``Running.sampled``."""
        if run.sampled(rss_mib, now_s):
            self._add(run)

    def set_aside(self, evenness: Mapping[PhaseKind, float]) -> None:
        """How much of spreads is set aside from now on: by how evenly each kind grows (``risk_share``)."""
        risks = {kind: risk_share(even) for kind, even in evenness.items()}
        if risks != self._risks:
            before, self._risks = self._risks, risks
            for run in self.values():
                if risks[run.phase.kind] != before[run.phase.kind]:
                    self._add(run)

    def risk(self, kind: PhaseKind) -> float:
        """Share of the spread of a phase of this kind that is set aside."""
        return self._risks[kind]

    def load(self) -> Load:
        """All together."""
        return Load(len(self), sum(self._expected_mib.values()), sum(self._squares_mib2.values()), self.killing)

    def _add(self, run: Running) -> None:
        phase = run.phase
        self._expected_mib[phase.phase_id] = run.expected_mib
        self._squares_mib2[phase.phase_id] = (self._risks[phase.kind] * run.spread_mib) ** 2
