"""A batch job for Slurm: what to ask for, then the script. Pure."""

from __future__ import annotations

import math

from builddoctor.model.plan import Plan
from builddoctor.model.recipe import Recipe
from builddoctor.render.recipes.how import RenderWith
from builddoctor.render.recipes.needs import needs_of
from builddoctor.render.recipes.provenance import heading
from builddoctor.render.recipes.quoting import comments
from builddoctor.render.recipes.script import staged_body
from builddoctor.render.recipes.sh import about


def render(recipe: Recipe, plan: Plan, how: RenderWith) -> str:
    """The script for ``sbatch``. Raises MemoryBudgetError or RecipeError."""
    needs = needs_of(recipe, plan, how)
    spare_mib = math.ceil(plan.reserve_mib)
    memory_mib = needs.peak_mib + spare_mib
    minutes = math.ceil(needs.time_s / 60)
    lines = [
        "#!/bin/sh",
        f"#SBATCH --job-name=build-{_job_name(plan.project)}",
        "#SBATCH --nodes=1",
        "#SBATCH --ntasks=1",
        f"#SBATCH --cpus-per-task={plan.cores}",
        f"#SBATCH --mem={memory_mib}M",
        f"#SBATCH --time={minutes}",
        "#",
        *comments([heading(plan)]),
        "#",
        "# sbatch build.slurm [FOLDER]     from the folder with the sources, or with its path",
        "#",
        *comments(
            [
                f"--mem: {needs.peak_mib} MiB for compilers at the worst moment, {spare_mib} MiB free.",
                f"--time: {minutes} minutes: the upper end of what is expected, twenty of them for all but compilers.",
                "",
                *about(recipe, plan, how),
            ]
        ),
    ]
    # The job's script is a copy in a folder of Slurm's: the sources are where it was submitted.
    return "\n".join([*lines, staged_body(recipe, plan, how, folder="${SLURM_SUBMIT_DIR:-.}")])


def _job_name(project: str) -> str:
    return "".join(char if char.isascii() and (char.isalnum() or char in "._-") else "-" for char in project)[:60]
