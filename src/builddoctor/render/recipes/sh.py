"""A script that builds in stages: ``sh build.sh [FOLDER] [-- COMMAND…]``. Pure."""

from __future__ import annotations

from builddoctor.model.plan import Plan
from builddoctor.model.recipe import Recipe
from builddoctor.render.recipes.how import RenderWith
from builddoctor.render.recipes.provenance import heading, known, memory, sources, stage_lines
from builddoctor.render.recipes.quoting import comments
from builddoctor.render.recipes.script import staged_body

_USE = (
    "sh build.sh [FOLDER]              builds the sources in FOLDER (without it: in the current one)",
    "sh build.sh [FOLDER] -- COMMAND   likewise, by another command that uses Ninja",
    "MEMORY_MIB=N sh build.sh          takes N MiB as what is free, and does not look",
)
_STAGED = "It can be run again after anything: Ninja goes on where it stopped. Wheels go to FOLDER/dist, or $WHEELS."


def render(recipe: Recipe, plan: Plan, how: RenderWith) -> str:
    """The script. Raises MemoryBudgetError or RecipeError."""
    lines = ["#!/bin/sh", *comments([heading(plan)]), "#", *(f"# {line}" for line in _USE), "#"]
    lines += comments([_STAGED, "", *about(recipe, plan, how)])
    return "\n".join([*lines, staged_body(recipe, plan, how)])


def about(recipe: Recipe, plan: Plan, how: RenderWith) -> list[str]:
    """Where the numbers come from, and what is done with them, in sentences."""
    stages = [] if how.with_builddoctor else stage_lines(plan)
    made = (
        "Runs under builddoctor, which is installed where it is missing."
        if how.with_builddoctor
        else ("Made by builddoctor (recipe render), which is not needed to run it.")
    )
    return [made, *sources(recipe, plan), memory(plan), *stages, *known(plan)]
