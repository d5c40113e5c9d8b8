"""The order of units: the longest remaining path first, or better, once units' pasts are known. Pure.

Covers: priorities of phases and units; a bounded local search for priorities that make the rest of the build shorter, a
few trials between two samples; what is given to that search. Deterministic: the same calls give the same order.
Does *not* cover: admission itself (``scheduler.admission``), or what is expected of units (``estimation.estimator``).

Why: admitting the longest remaining unit first is 4 to 8 % off the best order that a search finds where memory is tight
(docs/adr/0015); the search closes most of that. It walks from priority to priority, not from schedule to schedule, so
that what it finds stays an order when phases take longer or come later than was expected. Looking costs processor time
that the build could have: about one hundredth of a core on average.
"""

from __future__ import annotations

import heapq
import math
import random
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from builddoctor.core.phase import ExpectedPhase, Phase, PhaseKind, Unit
from builddoctor.estimation.estimator import Estimator
from builddoctor.scheduler.running_set import Running, risk_share
from builddoctor.scheduler.wait_queue import Waiting

RULES = ((0.0, 0.0), (0.5, 0.0), (1.0, 0.0), (2.0, 0.0), (4.0, 0.0), (0.0, 1.0), (0.5, 1.0), (2.0, 1.0))
"""Starting points: how much a unit's memory-time counts beside its time, and the larger of the two once more."""

GOOD_ENOUGH = 1.005
"""Within this of a bound that no order beats, there is nothing to look for."""

LEAST_S = 1e-3
SLACK_MIB = 1e-6
"""Of the quick answer, for rounding; the exact one follows."""

MOST_MEAN = 1e3
"""Weights that have come so far begin anew at one, in the same order."""

MOST_SLOPE = 1e9
"""Beyond this, and below its inverse, more makes no other order."""

PHASES_A_LOOK = 1600
"""Phases placed in thought between two samples: about 4 ms."""

TRIALS = 600
"""Orders tried before a search is over; more gain less than a thousandth."""

NEWS_AFTER_S = 1.0
"""Units come one by one: the next search waits for a few."""

AGAIN_AFTER_S = 5.0
AGAIN_SHARE = 0.02
"""A new search begins after this, or after this share of what is left of the build: what is left has changed."""

CRITICAL_SHARE = 0.85
LEAST_REST_S = 1.0
"""A unit that takes this much of the rest of the build must not wait."""

MOST_PHASES = PHASES_A_LOOK
"""With more phases to come any order by length packs well, and a trial takes longer than a gate should wait."""

MANY_UNITS = 128
"""Of so many any order is as good until the last of them, unless memory is short."""


class UnitToCome(msgspec.Struct, frozen=True, kw_only=True):
    """One unit with all that is still to come of it, in order."""

    unit_id: str
    phases: tuple[ExpectedPhase, ...]
    running: bool = False
    """the first of ``phases`` runs; its time is what is left of it"""

    @property
    def left_s(self) -> float:
        return sum(each.wall_s for each in self.phases)


UnitsToCome = Callable[[], Sequence[UnitToCome]]


def worth_a_search(units: int, *, short: bool) -> bool:
    """``short``: something waits for memory."""
    return short or units <= MANY_UNITS


class BuildOrder:
    """Priorities of one build's units."""

    def __init__(
        self,
        remaining_s: Callable[[Phase], float],
        *,
        slots: int,
        searches: bool = True,
    ) -> None:
        self._remaining_s = remaining_s
        self._slots = slots
        self._searches = searches
        self._slopes: dict[str, float] = {}
        self._search: OrderSearch | None = None
        self._trials = 0
        self._news = False
        self._next_s = 0.0
        self._end_s = math.inf
        self._began_s = -NEWS_AFTER_S

    def priority(self, phase: Phase) -> float:
        """Higher starts first: seconds of the unit that remain, by the unit's weight in the order found."""
        return self.urgency(phase.unit_id, self._remaining_s(phase))

    def urgency(self, unit_id: str, left_s: float) -> float:
        """Priority of a unit with this much to go."""
        return self._slopes.get(unit_id, 1.0) * left_s

    def hangs_on(self, left_s: float, now_s: float) -> bool:
        """A unit with this much to go is what the build's end hangs on, as far as the order found says."""
        return left_s >= CRITICAL_SHARE * max(self._end_s - now_s, LEAST_REST_S)

    def unit_came(self) -> None:
        """There is a unit that the last search did not know."""
        self._news = True

    def think(self, to_come: UnitsToCome, *, budget_mib: float, now_s: float, worth: bool = True) -> bool:
        """Look a little further for a better order; True when priorities have changed. ``worth``: begin to, if it is
        time (see ``worth_a_search``).
        """
        if self._search is None:
            next_s = min(self._next_s, self._began_s + NEWS_AFTER_S) if self._news else self._next_s
            if not worth or now_s < next_s:
                return False
            self._begin(list(to_come()), budget_mib, now_s)
        if self._search is None:
            return False
        better = False
        for _ in range(max(1, PHASES_A_LOOK // max(1, self._search.phases))):
            better = self._search.look() or better
            self._trials += 1
            if self._search.done or self._trials >= TRIALS:
                return self._end(now_s)
        if better:
            self._adopt()
        return better

    def _begin(self, units: Sequence[UnitToCome], budget_mib: float, now_s: float) -> None:
        self._news = False
        self._began_s = now_s
        self._next_s = now_s + AGAIN_AFTER_S
        if not self._searches or len(units) < 2 or sum(len(unit.phases) for unit in units) > MOST_PHASES:
            return
        slopes = [self._slopes.get(unit.unit_id) for unit in units]
        before = [None if slope is None else slope * unit.left_s for slope, unit in zip(slopes, units, strict=True)]
        self._search = OrderSearch(units, slots=self._slots, budget_mib=budget_mib, before=before)
        self._trials = 0

    def _end(self, now_s: float) -> bool:
        assert self._search is not None
        self._adopt()
        self._next_s = now_s + max(AGAIN_AFTER_S, AGAIN_SHARE * self._search.best_s)
        self._search = None
        return True

    def _adopt(self) -> None:
        assert self._search is not None
        self._slopes = self._search.slopes()
        self._end_s = self._began_s + self._search.best_s


def whole_s(estimator: Estimator, unit: Unit) -> float:
    """Time that a unit takes, its phases one after the other."""
    if known := estimator.outlook(unit.unit_id, None):
        return sum(each.wall_s for each in known)
    first = Phase(phase_id=0, unit_id=unit.unit_id, kind=PhaseKind.PREPROCESS, source=unit.source)
    return estimator.remaining_s(first)


def rest_of_units(
    running: Iterable[Running],
    waiting: Iterable[Waiting],
    units: AbstractSet[str],
    estimator: Estimator,
    *,
    evenness: Callable[[PhaseKind], float],
    now_s: float,
) -> list[UnitToCome]:
    """By unit, in the order of their names: the rest of what runs, what waits, and what follows as far as known.

    Of spreads only what admission sets aside for them.
    """

    def expected(kind: PhaseKind, peak_mib: float, spread_mib: float, wall_s: float) -> ExpectedPhase:
        return ExpectedPhase(peak_mib, risk_share(evenness(kind)) * spread_mib, wall_s)

    def outlook(unit_id: str, phase: Phase | None) -> list[ExpectedPhase]:
        # What comes is taken to grow as what is there does: its own kind is not told.
        kind = PhaseKind.PREPROCESS if phase is None else phase.kind
        return [
            expected(kind, each.peak_mib, each.spread_mib, each.wall_s) for each in estimator.outlook(unit_id, phase)
        ]

    begun: dict[str, list[ExpectedPhase]] = {}
    runs: set[str] = set()
    for run in running:
        phase = run.phase
        left_s = max(0.0, estimator.wall_s(phase) - run.ran_s(now_s))
        own = expected(phase.kind, run.expected_mib, run.spread_mib, left_s)
        runs.add(phase.unit_id)
        begun[phase.unit_id] = [own, *outlook(phase.unit_id, phase)]
    for each in waiting:
        phase = each.phase
        if phase.unit_id not in begun:
            estimate = each.estimate
            own = expected(phase.kind, estimate.peak_mib, estimate.spread_mib, estimator.wall_s(phase))
            begun[phase.unit_id] = [own, *outlook(phase.unit_id, phase)]
    for unit_id in units - begun.keys():
        begun[unit_id] = outlook(unit_id, None)
    return [
        UnitToCome(unit_id=unit_id, phases=tuple(phases), running=unit_id in runs)
        for unit_id, phases in sorted(begun.items())
        if phases
    ]


class OrderSearch:
    """Looks for weights of units, a few trials at a time. The unit with the
    largest weight times remaining share comes first."""

    def __init__(
        self, units: Sequence[UnitToCome], *, slots: int, budget_mib: float, before: Sequence[float | None] = ()
    ) -> None:
        """``before``: weights that an earlier search found, for each unit; None where it had none."""
        self._trial = _Trial(units, slots=max(1, slots), budget_mib=max(budget_mib, 1.0))
        self._ids = [unit.unit_id for unit in units]
        self._chance = random.Random(len(units))  # noqa: S311 - a fixed seed: no secret, the same answer each time
        self._starts = self._trial.starts()
        if any(weight is not None for weight in before):
            times = [unit.left_s for unit in units]
            pairs = zip(before, times, strict=True)
            self._starts.insert(0, [time_s if weight is None else weight for weight, time_s in pairs])
        self._best_s = math.inf
        self._weights = self._starts[0] if self._starts else []

    @property
    def phases(self) -> int:
        """What one trial costs: phases placed."""
        return self._trial.phase_count

    @property
    def best_s(self) -> float:
        """Length of the rest of the build in the best order found so far."""
        return self._best_s

    @property
    def done(self) -> bool:
        """Nothing is left to look for."""
        return not self._ids or self._best_s <= self._trial.bound_s * GOOD_ENOUGH

    def look(self) -> bool:
        """Try one order; True when it is better than those before."""
        if self._starts:
            weights = self._starts.pop(0)
        else:
            weights = list(self._weights)
            for _ in range(self._chance.choice((1, 1, 2, 4))):
                at = self._chance.randrange(len(weights))
                weights[at] *= self._chance.uniform(0.3, 3.0)
        length_s = self._trial.length_s(weights, stop_s=self._best_s)
        if length_s > self._best_s:
            return False
        better = length_s < self._best_s
        self._best_s, self._weights = length_s, weights
        return better

    def slopes(self) -> dict[str, float]:
        """By unit: priority per second that remains; a unit that no search knew has one.

        Weights only mean something beside each other, and walk upwards from search to search: left alone, those of a
        long build end at infinity, and infinity times nothing is no priority at all.
        """
        lefts = [max(left_s, LEAST_S) for left_s in self._trial.lefts_s]
        mean = sum(self._weights) / max(sum(lefts), LEAST_S)
        scale = 1.0 if mean <= MOST_MEAN else 1.0 / mean
        return {
            unit_id: min(max(scale * weight / left_s, 1 / MOST_SLOPE), MOST_SLOPE)
            for unit_id, weight, left_s in zip(self._ids, self._weights, lefts, strict=True)
        }

    def weights(self) -> dict[str, float]:
        """By unit, for a later search."""
        return dict(zip(self._ids, self._weights, strict=True))


class _Trial:
    """Builds the units in thought, with any weights."""

    def __init__(self, units: Sequence[UnitToCome], *, slots: int, budget_mib: float) -> None:
        self._phases = [
            tuple((each.peak_mib, each.spread_mib**2, max(each.wall_s, LEAST_S)) for each in unit.phases)
            for unit in units
        ]
        self._slots = slots
        self._budget_mib = budget_mib
        self._remaining = [_tail_sums([wall for _, _, wall in phases]) for phases in self._phases]
        self._begun = [at for at, unit in enumerate(units) if unit.running and unit.phases]
        self._waiting = [at for at, unit in enumerate(units) if not unit.running and unit.phases]
        self.lefts_s = [remaining[0] for remaining in self._remaining]
        self.phase_count = sum(len(phases) for phases in self._phases)
        self._area_s = [sum(peak * wall for peak, _, wall in phases) / budget_mib for phases in self._phases]
        self.bound_s = max(sum(self.lefts_s) / slots, sum(self._area_s), max(self.lefts_s, default=0.0))

    def starts(self) -> list[list[float]]:
        """Weights by rule: a unit's time, and its memory-time in cores."""
        found = []
        for share, larger in RULES:
            pairs = zip(self.lefts_s, (area_s * self._slots for area_s in self._area_s), strict=True)
            found.append([time_s + share * area + larger * max(time_s, area) for time_s, area in pairs])
        return found

    def length_s(self, weights: Sequence[float], *, stop_s: float = math.inf) -> float:
        """Length of the build that always starts the heaviest waiting unit that fits; inf when beyond ``stop_s``."""
        phases, remaining, slots, budget_mib = self._phases, self._remaining, self._slots, self._budget_mib
        slopes = [weight / max(left, LEAST_S) for weight, left in zip(weights, self.lefts_s, strict=True)]
        done = [0] * len(phases)
        used_mib = squares = now_s = 0.0
        running: list[tuple[float, int]] = []
        for unit in self._begun:
            peak_mib, square, wall_s = phases[unit][0]
            used_mib += peak_mib
            squares += square
            running.append((wall_s, unit))
        heapq.heapify(running)
        # By priority; a unit that runs is not in it.
        waiting = sorted((-weights[unit], unit) for unit in self._waiting)
        # Most of those that wait do not fit, at each end of another: they are passed over by this figure alone.
        peaks_mib = [phases[unit][0][0] for _, unit in waiting]
        while waiting or running:
            if waiting and len(running) < slots:
                free_mib = budget_mib - used_mib
                most_mib = free_mib - math.sqrt(squares) + SLACK_MIB if running else math.inf
                started: list[int] = []
                for at, peak_mib in enumerate(peaks_mib):
                    if peak_mib > most_mib:
                        continue
                    unit = waiting[at][1]
                    _, square, wall_s = phases[unit][done[unit]]
                    if running and peak_mib + math.sqrt(squares + square) > free_mib:
                        continue
                    used_mib += peak_mib
                    squares += square
                    free_mib -= peak_mib
                    most_mib = free_mib - math.sqrt(squares) + SLACK_MIB
                    heapq.heappush(running, (now_s + wall_s, unit))
                    started.append(at)
                    if len(running) >= slots:
                        break
                for at in reversed(started):
                    del waiting[at], peaks_mib[at]
            now_s, unit = heapq.heappop(running)
            if now_s > stop_s:
                return math.inf
            peak_mib, square, _ = phases[unit][done[unit]]
            used_mib -= peak_mib
            squares = max(0.0, squares - square)
            done[unit] += 1
            if done[unit] < len(phases[unit]):
                again = (-slopes[unit] * remaining[unit][done[unit]], unit)
                at = bisect_right(waiting, again)
                waiting.insert(at, again)
                peaks_mib.insert(at, phases[unit][done[unit]][0])
        return now_s


def _tail_sums(values: Sequence[float]) -> list[float]:
    sums = [0.0] * (len(values) + 1)
    for at in range(len(values) - 1, -1, -1):
        sums[at] = sums[at + 1] + values[at]
    return sums
