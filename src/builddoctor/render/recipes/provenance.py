"""What a rendered file says of its numbers: from which recipe and machine, how they were found, what is known to fail.

Plain sentences, without comment signs. Does *not* cover: what a build does with the numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from builddoctor.model.plan import Plan, Stage
from builddoctor.model.recipe import Recipe
from builddoctor.units import format_clock, format_mib


def counted(number: int, what: str) -> str:
    """``1 core``, ``2 cores``."""
    return f"{number} {what}{'s' * (number != 1)}"


def heading(plan: Plan) -> str:
    """What is built, for what, and where."""
    what = " ".join(part for part in (plan.project, plan.version) if part)
    size = f"{counted(plan.cores, 'core')} and {format_mib(plan.memory_mib)}"
    return f"{what}{_for(plan.archs)} on {plan.machine}{'' if size in plan.machine else f', {size}'}."


def sources(recipe: Recipe, plan: Plan) -> list[str]:
    """Where the numbers come from."""
    origin = recipe.origin
    where = ", ".join(part for part in (origin.machine, origin.date) if part)
    by = f"builddoctor {origin.builddoctor}" if origin.builddoctor else ""
    lines = [
        f"Numbers: recipe {plan.recipe}, {plan.provenance} in {counted(plan.runs, 'run')}"
        + (f" with {by}" if by else "")
        + (f" ({where})" if where else "")
        + "."
    ]
    if origin.how:
        lines.append(origin.how)
    kinds = Counter(phase.provenance or origin.provenance for unit in recipe.units for phase in unit.phases)
    if len(kinds) > 1:
        lines.append("Of its phases: " + ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items())) + ".")
    toolchain = [
        *([f"nvcc {recipe.fingerprint.nvcc}"] if recipe.fingerprint.nvcc else []),
        *([f"gcc {recipe.fingerprint.host_compiler}"] if recipe.fingerprint.host_compiler else []),
        *([recipe.fingerprint.host_arch] if recipe.fingerprint.host_arch else []),
        f"{recipe.fingerprint.page_kib} KiB pages",
    ]
    lines.append(f"They hold for {', '.join(toolchain)}.")
    lines += [f"Differs from the recipe: {each}." for each in plan.differs]
    if plan.page_allowance_mib:
        lines.append(
            f"Pages of {plan.page_kib} KiB: {format_mib(plan.page_allowance_mib)} were added to every compiler phase."
        )
    return lines


def memory(plan: Plan) -> str:
    """What the plan hands out, and what it keeps free."""
    return (
        f"Compilers may hold {format_mib(plan.budget_mib)} together; {format_mib(plan.reserve_mib)} of "
        f"{format_mib(plan.memory_mib)} stay free."
    )


def stage_lines(plan: Plan) -> list[str]:
    """A line a stage."""
    staged = f" in all about {format_clock(plan.staged_s)}" if plan.staged_s is not None else ""
    return [f"Stages, one after the other,{staged}:" if staged else "Stages, one after the other:"] + [
        _stage(each) for each in plan.stages
    ]


def known(plan: Plan) -> list[str]:
    """Hazards, and what a person should know."""
    hazards = [f"Known: {each.text}" + (f" ({each.source})" if each.source else "") for each in plan.hazards]
    return [*hazards, *(f"Note: {each}" for each in plan.notes)]


def _stage(stage: Stage) -> str:
    what = counted(stage.units, "unit") if stage.targets or stage.weight != "rest" else "whatever is left, and links"
    memory = (
        f", the largest takes {format_mib(stage.largest_mib)}, all of them {format_mib(stage.peak_mib)}"
        if stage.largest_mib > 0
        else ""
    )
    return (
        f"- {stage.name}: {what}, {counted(stage.jobs, 'job')} at once{memory}; about {format_clock(stage.makespan_s)}"
    )


def _for(archs: Iterable[str]) -> str:
    names = ", ".join(archs)
    return f" for {names}" if names else ""
