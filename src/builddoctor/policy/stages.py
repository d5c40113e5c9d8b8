"""Units split into stages, each with one number of jobs that is safe whatever the order. Pure.

Covers: at most four stages ``light``, ``medium``, ``heavy``, ``solo``: units sorted by peak and cut into pieces, such
that the ``jobs`` largest units of a piece fit together, and that all pieces one after the other take the least time.
Optionally one such split for each set of architectures.
Does *not* cover: gates. A stage is a plain run of Ninja: two phases of two units may both be at their peaks at once.

The time of a piece is taken as its work over its jobs, or its longest unit. The search is dynamic programming over the
places where a piece can begin; of many units only the places where the number of jobs that is safe changes, and some
hundred more, are looked at.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Literal

import msgspec

MOST_CUTS = 200
"""Places where a stage may begin that are looked at."""

WORTH = 0.99
"""A split with more stages has to be this much shorter: each is another run of Ninja, with an end that is not full."""

ROUNDING = 1e-9
"""Of a sum of all units: the difference of two such sums is no surer."""

Weight = Literal["light", "medium", "heavy", "solo"]


class StageUnit(msgspec.Struct, frozen=True, kw_only=True):
    """One unit as a whole: what it may hold, how long it takes one core (or its threads)."""

    unit_id: str
    peak_mib: float
    work_s: float
    archs: tuple[str, ...] = ()


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """One stage."""

    weight: Weight
    jobs: int
    archs: tuple[str, ...] = ()
    unit_ids: tuple[str, ...]
    """longest first"""
    largest_mib: float
    peak_mib: float
    """of the ``jobs`` largest together"""
    least_s: float
    """work over jobs, or the longest unit"""


class Split(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    pieces: tuple[Piece, ...]
    """the light ones first"""
    too_big: tuple[str, ...] = ()
    """units that do not fit alone: in no stage"""

    @property
    def least_s(self) -> float:
        return sum(piece.least_s for piece in self.pieces)


def split(units: Sequence[StageUnit], *, budget_mib: float, cores: int, by_arch: bool = False) -> Split:
    """Stages for ``units``. ``cores``: the most jobs. Every unit is in one stage, or too big."""
    cores = max(1, cores)
    fitting = [unit for unit in units if unit.peak_mib <= budget_mib]
    groups: dict[tuple[str, ...], list[StageUnit]] = {}
    for unit in fitting:
        groups.setdefault(unit.archs if by_arch else (), []).append(unit)
    pieces = [
        piece
        for archs, group in sorted(groups.items())
        for piece in _pieces(group, archs, budget_mib=budget_mib, cores=cores)
    ]
    too_big = tuple(unit.unit_id for unit in units if not unit.peak_mib <= budget_mib)
    return Split(pieces=tuple(pieces), too_big=too_big)


def safe_jobs(peaks_mib: Sequence[float], *, budget_mib: float, cores: int) -> int:
    """The most units at once that fit whichever of them they are; 0 when the largest does not fit alone."""
    sums = list(accumulate(sorted(peaks_mib, reverse=True)))
    fit = bisect_right(sums, budget_mib)
    return max(1, cores) if fit == len(sums) else min(max(1, cores), fit)


def single(units: Sequence[StageUnit], *, budget_mib: float, cores: int) -> tuple[int, float]:
    """The best fixed number of jobs for all of them and its time, by the same measure; (0, inf) where none is safe."""
    jobs = safe_jobs([unit.peak_mib for unit in units], budget_mib=budget_mib, cores=cores)
    if not units or not jobs:
        return (jobs, 0.0 if not units else math.inf)
    return jobs, max(sum(unit.work_s for unit in units) / jobs, *(unit.work_s for unit in units))


class _Sorted:
    """Units from the largest peak down, with the sums that a search needs."""

    def __init__(self, units: Sequence[StageUnit], *, budget_mib: float, cores: int) -> None:
        self.units = sorted(units, key=lambda unit: (-unit.peak_mib, -unit.work_s, unit.unit_id))
        self.cores = cores
        self._peaks = [0.0, *accumulate(unit.peak_mib for unit in self.units)]
        self._work = [0.0, *accumulate(unit.work_s for unit in self.units)]
        self._budget_mib = budget_mib
        self.fit = [self._fit(at) for at in range(len(self.units))]

    def _fit(self, first: int) -> int:
        """Units from this one on that fit together. A difference of sums may be off by a rounding: then added anew."""
        count = bisect_right(self._peaks, self._budget_mib + self._peaks[first]) - 1 - first
        unsure_mib = ROUNDING * self._peaks[-1]
        while count > 1:
            held_mib = self._peaks[first + count] - self._peaks[first]
            if held_mib + unsure_mib < self._budget_mib or self.held_mib(first, first + count) <= self._budget_mib:
                break
            count -= 1
        return max(1, count)

    def held_mib(self, first: int, end: int) -> float:
        return math.fsum(unit.peak_mib for unit in self.units[first:end])

    def jobs(self, first: int, end: int) -> int:
        if end == len(self.units) and self.fit[first] >= end - first:
            return self.cores
        return min(self.cores, self.fit[first], end - first)

    def work_s(self, first: int, end: int) -> float:
        return max(0.0, self._work[end] - self._work[first])

    def cuts(self) -> list[int]:
        """Where a stage may begin, and the end."""
        number = len(self.units)
        if number <= MOST_CUTS:
            return list(range(number + 1))
        changes = [at for at in range(1, number) if min(self.fit[at], self.cores) != min(self.fit[at - 1], self.cores)]
        # Of very many changes some: between two of them jobs differ by little.
        half = MOST_CUTS // 2
        some = changes[:: max(1, math.ceil(len(changes) / half))]
        even = [number * part // half for part in range(half)]
        return sorted({0, *some, *even, number})


def _pieces(units: Sequence[StageUnit], archs: tuple[str, ...], *, budget_mib: float, cores: int) -> list[Piece]:
    table = _Sorted(units, budget_mib=budget_mib, cores=cores)
    bounds = _best(table)
    between = [pair for pair in bounds if 1 < table.jobs(*pair) < cores]
    pieces = []
    for first, end in bounds:
        jobs = table.jobs(first, end)
        weight: Weight
        if jobs == 1:
            weight = "solo"
        elif jobs == cores:
            weight = "light"
        else:
            weight = "heavy" if (first, end) == between[0] else "medium"
        members = table.units[first:end]
        longest_first = sorted(members, key=lambda unit: (-unit.work_s, unit.unit_id))
        pieces.append(
            Piece(
                weight=weight,
                jobs=jobs,
                archs=archs,
                unit_ids=tuple(unit.unit_id for unit in longest_first),
                largest_mib=members[0].peak_mib,
                peak_mib=table.held_mib(first, min(end, first + jobs)),
                least_s=max(table.work_s(first, end) / jobs, longest_first[0].work_s),
            )
        )
    return pieces[::-1]


_Found = tuple[float, tuple[int, ...]]
"""Time so far, and the cuts at which pieces began."""

MOST_BETWEEN = 2
"""``heavy`` and ``medium``."""


def _best(table: _Sorted) -> list[tuple[int, int]]:
    """The pieces, largest peaks first: a solo one, at most two between, a light one."""
    cuts = table.cuts()
    last = len(cuts) - 1
    # best[m][at]: the shortest way to have built all units before that cut, with m pieces between solo and light.
    best: list[dict[int, _Found]] = [{0: (0.0, ())}, {}, {}]
    longest = [max(unit.work_s for unit in table.units[a:b]) for a, b in pairwise(cuts)]
    finals: list[_Found] = []
    for at in range(last):
        begun = [rank.get(at) for rank in best]
        if not any(begun):
            continue
        longest_s = 0.0
        for to in range(at + 1, last + 1):
            longest_s = max(longest_s, longest[to - 1])
            jobs = table.jobs(cuts[at], cuts[to])
            cost_s = max(table.work_s(cuts[at], cuts[to]) / jobs, longest_s)
            if jobs == 1:
                more = None if at else 0
            elif jobs == table.cores:
                more = None if to < last else 0
            else:
                more = 1
            if more is None:
                continue
            for rank, known in enumerate(begun):
                if known is None or rank + more > MOST_BETWEEN:
                    continue
                found = (known[0] + cost_s, (*known[1], at))
                if to == last:
                    finals.append(found)
                elif _better(found, best[rank + more].get(to)):
                    best[rank + more][to] = found
    chosen = _worthwhile(finals)
    starts = [cuts[at] for at in chosen[1]]
    return list(zip(starts, [*starts[1:], len(table.units)], strict=True))


def _better(found: _Found, known: _Found | None) -> bool:
    return known is None or (found[0], len(found[1]), found[1]) < (known[0], len(known[1]), known[1])


def _worthwhile(finals: Sequence[_Found]) -> _Found:
    """The shortest; with fewer pieces where more gain next to nothing."""
    by_count: dict[int, _Found] = {}
    for found in finals:
        if _better(found, by_count.get(len(found[1]))):
            by_count[len(found[1])] = found
    counts = sorted(by_count)
    chosen = by_count[counts[0]]
    for count in counts[1:]:
        if by_count[count][0] < WORTH * chosen[0]:
            chosen = by_count[count]
    return chosen
