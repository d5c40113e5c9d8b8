"""The running set: phases that were admitted and have not ended, and what they need together. Pure.

Covers: the expected size of a running phase, its spread and its growth; the load of all of them.
Does *not* cover: whether another may start (``scheduler.admission``).

Hundreds are added up at each event, so what each adds is kept. Sums are made anew of kept parts, never carried on by
adding and subtracting: they are exact, whatever came and went.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

from builddoctor.core.events import Rise, Stall, Throttled
from builddoctor.core.past import Course
from builddoctor.core.phase import Estimate, Phase, PhaseKind

KINDS = tuple(PhaseKind)

OVERRUN_FACTOR = 1.2
"""A phase past its reservation is taken to want this much of what it holds."""


GROWTH_MEMORY = 0.8
"""Growth seen counts on, less by a fifth from sample to sample: compilers grow in steps, and a flat sample between two
of them is no calm."""

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

SHORT_S = 0.09
"""Growth is not told from looks nearer to each other than this, but from this one and the last but one: compilers take
memory in bursts, and `cudafe++` some 130 MiB in its first tenth of a second, which is no 1.5 GB/s."""


class Running(msgspec.Struct):
    """One phase that was admitted and has not ended."""

    phase: Phase
    estimate: Estimate
    admitted_at_s: float
    alone: bool
    budget_mib: float
    """the budget when it was admitted"""
    course: Course = ((1.0, 1.0),)
    """what it will hold while it runs, in shares of its peak, with slack"""
    left_after_s: float = 0.0
    """what its unit has still to do after it"""
    rss_mib: float = 0.0
    growth_mib_s: float = 0.0
    area_mib_s: float = 0.0
    """its size, added up over time"""
    looks: int = 0
    looked_s: float = 0.0
    """when it was last looked at"""
    looked_at: int = 0
    """and by which sample"""
    before_mib: float = 0.0
    """what it held at the look before that one"""
    before_s: float = 0.0
    """and when that was"""
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
        self._expect()

    def sampled(self, rss_mib: float, now_s: float, number: int) -> bool:
        """It holds this much; True when that has changed. ``number``: of the sample. A phase that rests is not looked
        at by each one: growth is since the last look at this phase. One that stands still grows when it goes on."""
        if self.suspended_at_s is not None:
            return False
        last_s = max(self.looked_s, self.admitted_at_s)
        passed_s = now_s - last_s
        growth_mib_s = self.growth_mib_s and self.growth_mib_s * GROWTH_MEMORY ** (number - self.looked_at)
        if passed_s > 0:
            if passed_s < SHORT_S:
                seen_mib_s = (rss_mib - self.before_mib) / max(SHORT_S, now_s - max(self.before_s, self.admitted_at_s))
            else:
                seen_mib_s = (rss_mib - self.rss_mib) / passed_s
            growth_mib_s = max(growth_mib_s, seen_mib_s)
            self.area_mib_s += rss_mib * passed_s
            self.before_mib, self.before_s = self.rss_mib, last_s
        else:
            # Two looks at one moment are one.
            self.before_mib = rss_mib
        self.growth_mib_s = growth_mib_s if growth_mib_s >= LEAST_GROWTH_MIB_S else 0.0
        self.looks += 1
        self.looked_s, self.looked_at = now_s, number
        if rss_mib == self.rss_mib:
            return False
        self.rss_mib = rss_mib
        self._expect()
        return True

    def held_mib_s(self, now_s: float) -> float:
        """Its size added up over time until now; since the last look it has not changed, as far as is known."""
        return self.area_mib_s + self.rss_mib * max(0.0, now_s - max(self.looked_s, self.admitted_at_s))

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
        """What it may take on so soon: no more than was set aside for it, as long as it behaves as expected."""
        growth_mib = self.growth_mib_s * ahead_s
        if self.rss_mib > self.estimate.reserve_mib or self.too_fast:
            return growth_mib
        return min(growth_mib, self.estimate.reserve_mib - self.rss_mib)

    def _expect(self) -> None:
        reserve_mib = self.estimate.reserve_mib
        if self.rss_mib <= self.estimate.peak_mib:
            self.expected_mib = self.estimate.peak_mib
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

    def with_one(self, estimate: Estimate, risk: float) -> Load:
        """As it would be with one phase more; ``risk``: see ``risk_share``."""
        return Load(
            self.count + 1,
            self.expected_mib + estimate.peak_mib,
            self.squares_mib2 + (risk * estimate.spread_mib) ** 2,
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
        self._risks: dict[PhaseKind, float] = {}
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
        self._add(run)

    def end(self, phase_id: int) -> Running | None:
        """A phase ended; None when it did not run."""
        self._killed.discard(phase_id)
        self._suspended.discard(phase_id)
        self._expected_mib.pop(phase_id, None)
        self._squares_mib2.pop(phase_id, None)
        return self.pop(phase_id, None)

    def kill(self, phase_id: int) -> Running:
        """It is to be killed; gives it."""
        run = self[phase_id]
        run.killed = True
        self._killed.add(phase_id)
        return run

    @property
    def suspended(self) -> list[Running]:
        """Those that stand still, in the order in which they started."""
        return [run for phase_id, run in self.items() if phase_id in self._suspended] if self._suspended else []

    def suspend(self, run: Running, now_s: float) -> None:
        """It stands still from now on."""
        run.suspended_at_s = now_s
        self._suspended.add(run.phase.phase_id)

    def resume(self, run: Running, now_s: float) -> None:
        """It works again, and grows as it did before."""
        run.stood_s += run.stands_s(now_s)
        run.suspended_at_s = None
        run.looked_s = run.before_s = now_s
        self._suspended.discard(run.phase.phase_id)

    def sampled(self, run: Running, rss_mib: float, now_s: float, number: int) -> None:
        """See ``Running.sampled``."""
        if run.sampled(rss_mib, now_s, number):
            self._add(run)

    def load(self, evenness: Callable[[PhaseKind], float]) -> Load:
        """All together, for the evenness of each kind (``risk_share``)."""
        risks = {kind: risk_share(evenness(kind)) for kind in KINDS}
        if risks != self._risks:
            before, self._risks = self._risks, risks
            for run in self.values():
                if risks[run.phase.kind] != before.get(run.phase.kind):
                    self._add(run)
        return Load(len(self), sum(self._expected_mib.values()), sum(self._squares_mib2.values()), self.killing)

    def _add(self, run: Running) -> None:
        phase = run.phase
        self._expected_mib[phase.phase_id] = run.expected_mib
        self._squares_mib2[phase.phase_id] = (self._risks.get(phase.kind, 0.0) * run.spread_mib) ** 2
