"""In which order units should come, when their phases' sizes and times are known: a search over priorities. Pure.

Covers: the length of the rest of a build that admits by priority with backfill, and a bounded local search for
priorities that make it shorter, in small pieces. Deterministic: the same calls give the same order.
Does *not* cover: admission itself (``policy.governor``), or what is known of units (``policy.planning``).

Why: admitting the longest remaining unit first is 4 to 8 % off the best order that a search finds where memory is tight
(DESIGN 2); the search closes most of that. It walks from priority to priority, not from schedule to schedule, so that
what it finds stays an order when phases take longer or come later than was thought.
"""

from __future__ import annotations

import heapq
import math
import random
from bisect import bisect_right
from collections.abc import Sequence

import msgspec

from builddoctor.model.phase import Estimate

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


class ExpectedPhase(msgspec.Struct, frozen=True):
    """One phase to come, or the rest of one that runs."""

    peak_mib: float
    spread_mib: float
    wall_s: float

    @property
    def estimate(self) -> Estimate:
        """Its size, as of a phase that asks."""
        return Estimate(peak_mib=self.peak_mib, spread_mib=self.spread_mib, source="")


class UnitToCome(msgspec.Struct, frozen=True, kw_only=True):
    """One unit with all that is still to come of it, in order."""

    unit_id: str
    phases: tuple[ExpectedPhase, ...]
    running: bool = False
    """the first of ``phases`` runs; its time is what is left of it"""

    @property
    def left_s(self) -> float:
        return sum(each.wall_s for each in self.phases)


class OrderSearch:
    """Looks for weights of units, a few trials at a time. Whose weight times remaining share is largest comes first."""

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
