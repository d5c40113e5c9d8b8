"""What a build takes without builddoctor: stages, and one fixed number of jobs. Safe in the worst case, so slower.

Covers: stages with their targets and times, the last stage for whatever is left, and the best ``MAX_JOBS`` with nvcc's
threads. In the worst case all jobs are at their largest phase at once: nobody holds a phase back there.
Does *not* cover: the split itself (``policy.stages``), or running stages (``render.staged``).

Jobs times threads never exceed the cores, so that units do not share any, and what ninja would do is a plain list: the
next unit begins where one has ended (the same as ``simulate.baselines.fixed``, in no time).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

import msgspec

from builddoctor.model.plan import Stage, StaticPair
from builddoctor.model.recipe import Recipe
from builddoctor.plans.hosts import PlanHost
from builddoctor.policy.stages import Piece, StageUnit, safe_jobs, split
from builddoctor.simulate.of_recipe import workload

THREADS = (1, 2, 4, 8)
"""of nvcc that are tried"""

WORTH = 0.99
"""More threads take more memory at once: they have to make it this much shorter."""

GAP_S = 0.03
"""Between two phases of a unit without gates: nvcc and a shell (docs/adr/0011: 40 ms with a gate)."""

BEGIN_S = 0.3
"""Another run of Ninja: it reads its files and looks at what is there."""


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
        """What a sum takes it for: all of the budget where it needs more than that and fits all the same, alone."""
        return min(self.peak_mib, host.budget_mib)


class Staged(msgspec.Struct, frozen=True, kw_only=True):
    """All stages."""

    stages: tuple[Stage, ...]
    makespan_s: float


class Plain:
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
