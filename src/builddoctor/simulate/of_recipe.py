"""A recipe as the simulator takes it. Pure.

Covers: processor time as time, links last, an allowance on top of each peak, and ``--threads``: with more than one, the
architectures of a unit (preprocess, cicc and ptxas of each) run side by side, and become one phase here, which holds
the largest of them at once and takes as long as so many lanes do.
Does *not* cover: what is expected of other machines (``plans``). Times are those of the recipe's machine.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

import msgspec

from builddoctor.core.phase import PhaseKind
from builddoctor.core.recipe import PhaseFigures, Recipe, RecipeUnit
from builddoctor.estimation.course import course_of_text
from builddoctor.simulate.workload import PhaseWork, UnitWork, Workload

DEVICE = (PhaseKind.CICC, PhaseKind.PTXAS)

AROUND_S = 0.025
"""Processor time around each phase that no phase counts: gate, nvcc, shell, fatbinary, ninja. Measured on full cores:
the example's 60.1 s of phases filled two cores for 31.5 s, 95 phases, so 30 ms each; 26 ms with 133 phases."""


def workload(
    recipe: Recipe, *, threads: int = 1, cores: int | None = None, allowance_mib: float = 0.0, around_s: float = 0.0
) -> Workload:
    """All units, links last; otherwise as in the recipe. A unit's name is its place.

    ``threads``: nvcc's, for all units alike. ``cores``: at most ``threads``, and no more than the unit's share of so
    many cores, as builddoctor sets it when it opens a unit (``scheduler.unit_release``).
    """
    shares = _shares(recipe, threads, cores)
    units = [_unit(unit, share, allowance_mib, around_s) for unit, share in zip(recipe.units, shares, strict=True)]
    return Workload(name=recipe.project.name, units=tuple(sorted(units, key=lambda unit: unit.after_all)))


def _shares(recipe: Recipe, threads: int, cores: int | None) -> list[int]:
    """Threads of each unit."""
    if cores is None:
        return [max(1, threads)] * len(recipe.units)
    times = [sum(phase.cpu_s for phase in unit.phases) for unit in recipe.units]
    whole_s = sum(times)
    return [max(1, min(threads, math.ceil(cores * time_s / whole_s - 1e-9))) if whole_s > 0 else 1 for time_s in times]


def _unit(unit: RecipeUnit, threads: int, allowance_mib: float, around_s: float) -> UnitWork:
    phases = [_phase(each, allowance_mib, around_s) for each in unit.phases]
    archs = unit.archs or tuple(sorted({each.arch for each in phases if each.kind in DEVICE and each.arch}))
    return UnitWork(
        name=unit.place,
        source="" if unit.after_all else unit.place,
        archs=archs,
        phases=tuple(phases if threads < 2 else _side_by_side(phases, threads)),
        after_all=unit.after_all,
    )


def _phase(figures: PhaseFigures, allowance_mib: float, around_s: float) -> PhaseWork:
    return PhaseWork(
        kind=figures.kind,
        arch=figures.arch,
        input_mib=figures.input_mib,
        peak_mib=figures.peak_mib + allowance_mib,
        wall_s=figures.cpu_s + around_s,
        tool=figures.tool,
        steps=course_of_text(figures.course),
    )


def _side_by_side(phases: Sequence[PhaseWork], threads: int) -> list[PhaseWork]:
    """The phases of a unit, those of its architectures as one."""
    chains: dict[str, list[PhaseWork]] = {}
    before: list[PhaseWork] = []
    after: list[PhaseWork] = []
    for at, phase in enumerate(phases):
        follower = phases[at + 1] if at + 1 < len(phases) else None
        leads = phase.kind is PhaseKind.PREPROCESS and follower is not None and follower.kind is PhaseKind.CICC
        if phase.kind in DEVICE or leads:
            arch = follower.arch if leads and follower is not None else phase.arch
            chains.setdefault(arch, []).append(phase)
        else:
            (after if chains else before).append(phase)
    if len(chains) < 2:
        return list(phases)
    lanes = min(threads, len(chains))
    largest = sorted((max(each.peak_mib for each in chain) for chain in chains.values()), reverse=True)
    joined = PhaseWork(
        kind=PhaseKind.CICC,
        input_mib=max(each.input_mib for chain in chains.values() for each in chain),
        peak_mib=sum(largest[:lanes]),
        wall_s=_makespan_s([sum(each.wall_s for each in chain) for chain in chains.values()], lanes),
        tool=PhaseKind.CICC.value,
    )
    return [*before, joined, *after]


def _makespan_s(times: Sequence[float], lanes: int) -> float:
    """Longest first, each to the lane that is free first."""
    ends = [0.0] * lanes
    for time_s in sorted(times, reverse=True):
        heapq.heappush(ends, heapq.heappop(ends) + time_s)
    return max(ends)


def capped(work: Workload, *, most_phases: int) -> tuple[Workload, float]:
    """A part of a large build that stands for all of it, and how many times as much the whole is.

    Units by size, every n-th: so that heavy and light ones are in it as they are in the whole. Links stay.
    """
    if work.phases <= most_phases:
        return work, 1.0
    units = [(at, unit) for at, unit in enumerate(work.units) if not unit.after_all]
    units.sort(key=lambda each: -each[1].peak_mib)
    step = max(1, math.ceil(sum(len(unit.phases) for _, unit in units) / most_phases))
    kept = sorted(units[step // 2 :: step], key=lambda each: each[0])
    links = [unit for unit in work.units if unit.after_all]
    part = msgspec.structs.replace(work, units=(*(unit for _, unit in kept), *links[:most_phases]))
    whole_s = sum(unit.wall_s for _, unit in units)
    part_s = sum(unit.wall_s for _, unit in kept)
    return part, whole_s / part_s if part_s > 0 else 1.0
