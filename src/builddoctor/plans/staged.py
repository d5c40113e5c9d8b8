"""What a build takes without builddoctor: stages, and one fixed number of jobs. Safe in the worst case. Pure.

Covers: stages with their targets and times, the last stage for whatever is left; the best ``MAX_JOBS`` with nvcc's
threads. In the worst case all jobs are at their largest phase at once: nothing holds a phase back there.
Units sorted by peak are cut into at most four stages ``light``, ``medium``, ``heavy``, ``solo``, such that the ``jobs``
largest units of each fit together, and that all stages one after the other take the least time; optionally one such
split for each set of architectures.
Does *not* cover: running stages (``ui.staged``).

Jobs times threads never exceed the cores, so that units do not share any, and what ninja would do is a plain list: the
next unit begins where one has ended (the same as ``simulate.baselines.fixed``, in no time). For the split, the time of
a piece is taken as its work over its jobs, or its longest unit. The search is dynamic programming over the places where
a piece can begin; of many units only the places where the number of jobs that is safe changes, and some hundred more,
are examined.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Literal

import msgspec

from builddoctor.core.plan import Stage, StaticPair
from builddoctor.core.recipe import Recipe
from builddoctor.plans.inputs import PlanHost
from builddoctor.simulate.of_recipe import workload

THREADS = (1, 2, 4, 8)
"""of nvcc that are tried"""

WORTH = 0.99
"""More threads take more memory at once, and each further stage is another run of Ninja, with an end that is not full:
they have to make a build this much shorter."""

GAP_S = 0.03
"""Between two phases of a unit without gates: nvcc and a shell (docs/adr/0011: 40 ms with a gate)."""

BEGIN_S = 0.3
"""Start of another run of Ninja: it reads its files and checks what is built."""


MOST_CUTS = 200
"""Places where a stage may begin that are tried."""

ROUNDING = 1e-9
"""Of a sum of all units: the difference of two such sums is no surer."""

Weight = Literal["light", "medium", "heavy", "solo"]

_Found = tuple[float, tuple[int, ...]]
"""Time so far, and the cuts at which pieces began."""

MOST_BETWEEN = 2
"""``heavy`` and ``medium``."""


class Timed(msgspec.Struct, frozen=True, kw_only=True):
    """One unit of the recipe as a whole."""

    at: int
    """its place in the recipe"""
    peak_mib: float
    work_s: float
    archs: tuple[str, ...]
    after_all: bool
    target: str

    def counted_mib(self, host: PlanHost) -> float:
        """Its peak in a sum of units; the whole budget for a unit that needs more and fits only alone."""
        return min(self.peak_mib, host.budget_mib)


class Staged(msgspec.Struct, frozen=True, kw_only=True):
    """All stages."""

    stages: tuple[Stage, ...]
    makespan_s: float


class UngatedWork:
    """One recipe's units, for any machine with pages of one size."""

    def __init__(self, recipe: Recipe, *, allowance_mib: float) -> None:
        self._recipe = recipe
        self._allowance_mib = allowance_mib
        self._timed: dict[int, list[Timed]] = {}
        archs = ({phase.arch for phase in unit.phases if phase.arch} for unit in recipe.units)
        self._archs = max(map(len, archs), default=1)
        self._units = sum(bool(unit.phases) for unit in recipe.units)

    def fitting(self, host: PlanHost, *, threads: int, free_mib: float) -> list[Timed]:
        """Units that fit alone, in the recipe's order. What only fits because all else is free gets one thread."""
        most_mib = free_mib if threads == 1 else host.budget_mib
        return [unit for unit in self._all(threads) if unit.peak_mib <= most_mib]

    def staged(self, host: PlanHost, *, free_mib: float, by_arch: bool) -> Staged:
        """The fastest stages of all numbers of threads; the first stage is the lightest, the last one is the rest."""
        best: Staged | None = None
        for threads in self._thread_numbers(host):
            units = self.fitting(host, threads=threads, free_mib=free_mib)
            if threads > 1 and len(units) < self._units:
                # Some only fit with fewer.
                continue
            found = _staged(units, host, threads=threads, by_arch=by_arch)
            if best is None or found.makespan_s < WORTH * best.makespan_s:
                best = found
        assert best is not None, "one thread is always tried"
        return best

    def best_static(self, host: PlanHost, *, free_mib: float) -> StaticPair | None:
        """The fastest safe pair; None where not even one job is safe."""
        best: StaticPair | None = None
        for threads in self._thread_numbers(host):
            units = self.fitting(host, threads=threads, free_mib=free_mib)
            peaks = [unit.counted_mib(host) for unit in units]
            jobs = safe_jobs(peaks, budget_mib=host.budget_mib, cores=max(1, host.cores // threads))
            if len(units) < self._units or not jobs:
                continue
            time_s = _build_s(units, jobs)
            if best is None or time_s < WORTH * best.makespan_s:
                best = StaticPair(
                    jobs=jobs,
                    threads=threads,
                    peak_mib=round(_together_mib(units, jobs), 1),
                    makespan_s=round(time_s, 1),
                )
        return best

    def _all(self, threads: int) -> list[Timed]:
        if threads not in self._timed:
            units = self._recipe.units
            work = workload(self._recipe, threads=threads, allowance_mib=self._allowance_mib)
            # The workload has links last; so has this, and among equals the order stays.
            order = sorted(range(len(units)), key=lambda at: units[at].after_all)
            found = [
                Timed(
                    at=at,
                    peak_mib=unit.peak_mib,
                    work_s=unit.wall_s + GAP_S * len(unit.phases),
                    archs=unit.archs,
                    after_all=unit.after_all,
                    target=units[at].target,
                )
                for at, unit in zip(order, work.units, strict=True)
                if unit.phases
            ]
            self._timed[threads] = sorted(found, key=lambda unit: unit.at)
        return self._timed[threads]

    def _thread_numbers(self, host: PlanHost) -> list[int]:
        """1, 2, 4 …: as many as some unit has architectures, and the machine cores."""
        return [number for number in THREADS if number == 1 or number <= min(self._archs, host.cores)]


def _staged(units: Sequence[Timed], host: PlanHost, *, threads: int, by_arch: bool) -> Staged:
    by_id = {str(unit.at): unit for unit in units if unit.target and not unit.after_all}
    found = split(
        [
            StageUnit(unit_id=key, peak_mib=unit.counted_mib(host), work_s=unit.work_s, archs=unit.archs)
            for key, unit in by_id.items()
        ],
        budget_mib=host.budget_mib,
        cores=max(1, host.cores // threads),
        by_arch=by_arch,
    )
    stages = [_stage(piece, [by_id[key] for key in piece.unit_ids], threads, by_arch) for piece in found.pieces]
    stages.append(_rest([unit for unit in units if str(unit.at) not in by_id], units, host))
    return Staged(stages=tuple(stages), makespan_s=sum(stage.makespan_s for stage in stages))


def _stage(piece: Piece, units: Sequence[Timed], threads: int, by_arch: bool) -> Stage:
    return Stage(
        name=f"{piece.weight} {' '.join(piece.archs) or 'host'}" if by_arch else piece.weight,
        weight=piece.weight,
        jobs=piece.jobs,
        threads=threads,
        archs=piece.archs,
        targets=tuple(unit.target for unit in units),
        units=len(units),
        largest_mib=max(unit.peak_mib for unit in units),
        peak_mib=_together_mib(units, piece.jobs),
        makespan_s=BEGIN_S + listed_s((unit.work_s for unit in units), piece.jobs),
    )


def _rest(left: Sequence[Timed], units: Sequence[Timed], host: PlanHost) -> Stage:
    """Links, and units that the recipe has no target of. What it does not know may be as large as the largest."""
    largest_mib = max((unit.counted_mib(host) for unit in units), default=0.0)
    jobs = int(min(host.cores, max(1.0, host.budget_mib / largest_mib))) if largest_mib > 0 else 1
    return Stage(
        name="rest",
        weight="rest",
        jobs=jobs,
        targets=(),
        units=len(left),
        largest_mib=max((unit.peak_mib for unit in left), default=0.0),
        peak_mib=_together_mib(left, jobs),
        makespan_s=BEGIN_S + _build_s(left, jobs),
    )


def _build_s(units: Sequence[Timed], jobs: int) -> float:
    """Units in the recipe's order, links after all of them."""
    compiled = listed_s((unit.work_s for unit in units if not unit.after_all), jobs)
    return compiled + listed_s((unit.work_s for unit in units if unit.after_all), jobs)


def _together_mib(units: Iterable[Timed], jobs: int) -> float:
    return sum(sorted((unit.peak_mib for unit in units), reverse=True)[:jobs])


def listed_s(times: Iterable[float], jobs: int) -> float:
    """When the last has ended, where each begins as soon as one of ``jobs`` is free."""
    ends = [0.0] * max(1, jobs)
    for time_s in times:
        heapq.heapreplace(ends, ends[0] + time_s)
    return max(ends)


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
