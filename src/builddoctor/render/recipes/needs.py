"""What a plan's stages need of a machine, and whether anything can be rendered from it at all. Pure.

Covers: memory of the stages, the least with which any of them can run, time for a batch system; refusing plans in which
a unit does not fit alone. Sizes in MiB, times in seconds.
"""

from __future__ import annotations

import math

import msgspec

from builddoctor.errors import MemoryBudgetError
from builddoctor.model.plan import Plan
from builddoctor.model.recipe import Recipe
from builddoctor.render.recipes.how import RenderWith
from builddoctor.units import escaped, format_mib

SPARE_PERCENT = 10
"""Percent of the memory that is kept free at most, as in a gated build (docs/adr/0006)."""

AROUND_S = 1200.0
"""For what no recipe knows: configuring, packing, a slow file system."""


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """In whole MiB and seconds, rounded up."""

    peak_mib: int
    """all compilers together, in the stage that takes most"""
    largest_mib: int
    """of one unit: with less nothing goes"""
    spare_mib: int
    """kept free on top: half of what the plan keeps free, the other half being for what runs there already"""
    least_mib: int
    """a machine has to have that much free"""
    threads: int
    jobs: int
    """for what is not run by Ninja, and so not in stages"""
    time_s: int

    @property
    def wanted_mib(self) -> int:
        """Free memory that the plan counts on."""
        return self.peak_mib + self.spare_mib


def needs_of(recipe: Recipe, plan: Plan, how: RenderWith) -> Needs:
    """The needs of the plan's stages, or of the gated build. Raises MemoryBudgetError where a unit does not fit."""
    refuse_too_big(recipe, plan)
    largest = max((stage.largest_mib for stage in plan.stages), default=0.0)
    peak = max((stage.peak_mib for stage in plan.stages), default=0.0)
    if how.with_builddoctor or not plan.stages:
        peak = max(plan.peak_range_mib.high, plan.peak_mib)
    # A unit that runs alone may take of what should stay free: then less than half of that is left.
    spare = min(plan.reserve_mib, max(0.0, plan.memory_mib - max(peak, largest))) / 2
    return Needs(
        peak_mib=math.ceil(max(peak, largest)),
        largest_mib=math.ceil(largest),
        spare_mib=math.ceil(spare),
        least_mib=_least(largest, spare),
        threads=min((stage.threads for stage in plan.stages), default=plan.threads),
        jobs=plan.static.jobs if plan.static is not None else 1,
        time_s=math.ceil(_longest_s(plan, how) + AROUND_S),
    )


def refuse_too_big(recipe: Recipe, plan: Plan) -> None:
    """Raises MemoryBudgetError: no number of jobs helps a unit that does not fit alone."""
    if not plan.too_big:
        return
    tallest = max((max(phase.peak_mib, phase.high_mib) for unit in recipe.units for phase in unit.phases), default=0.0)
    least = _least(tallest + plan.page_allowance_mib, plan.reserve_mib)
    shown = "; ".join(escaped(each) for each in plan.too_big[:3])
    more = f" and {len(plan.too_big) - 3} more" if len(plan.too_big) > 3 else ""
    raise MemoryBudgetError(
        f"nothing to render: with {format_mib(plan.memory_mib)} there is no number of jobs that works, for what does "
        f"not fit alone: {shown}{more}",
        hint=f"it takes {format_mib(least)}: `--memory {math.ceil(least / 1024)}GiB`",
    )


def _least(largest_mib: float, spare_mib: float) -> int:
    """The least memory M with M less what is kept of it (at most a tenth) at least the largest unit."""
    return math.ceil(min(largest_mib + spare_mib, largest_mib / (1 - SPARE_PERCENT / 100)))


def _longest_s(plan: Plan, how: RenderWith) -> float:
    """The upper end of what is expected."""
    if how.with_builddoctor or plan.staged_s is None:
        return plan.makespan_range_s.high
    widening = plan.makespan_range_s.high / plan.makespan_s if plan.makespan_s > 0 else 1.0
    return plan.staged_s * max(1.0, widening)
