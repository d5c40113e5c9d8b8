"""Files for a shell: a script, conda's ``build.sh``, a batch job of Slurm, and a file of variables. Pure.

Covers: their heads, which say what to ask for; the script itself is ``staged_script``, a job of many builds
``slurm_array``. Every function raises
MemoryBudgetError for a plan with units that do not fit, RecipeError for what must not be in a script.
"""

from __future__ import annotations

import math
import re

import msgspec

from builddoctor.core.errors import MemoryBudgetError
from builddoctor.core.plan import Plan
from builddoctor.core.recipe import Recipe
from builddoctor.core.units import format_clock, format_mib
from builddoctor.ui.scripts.render_request import WHEEL, RenderWith, Variable, needs_of, refuse_too_big
from builddoctor.ui.scripts.safe_text import comments, heading, known, memory, sources, stage_lines, variable_name, word
from builddoctor.ui.scripts.staged_script import staged_body

_USE = (
    "sh build.sh [FOLDER]              builds the sources in FOLDER (without it: in the current one)",
    "sh build.sh [FOLDER] -- COMMAND   likewise, by another command that uses Ninja",
    "MEMORY_MIB=N sh build.sh          takes N MiB as what is free, and does not look",
)
_STAGED = "It can be run again after anything: Ninja goes on where it stopped. Wheels go to FOLDER/dist, or $WHEELS."


INSTALL = ("{python}", "-m", "pip", "install", "--no-build-isolation", "--no-deps", "-vv", "{source}")
"""Into the environment that conda-build packs."""

_META = """\
# build.sh of a conda recipe. It sets everything itself; in meta.yaml it needs, besides the project's own requirements:
#
#   requirements:
#     build:
#       - ninja
#       - cmake
#       - {{ compiler('cxx') }}
#       - {{ compiler('cuda') }}
#
# conda-build has no option for memory: what this script finds free is what it goes by, so it is right in a container
# with a limit too. MEMORY_MIB gets through to it with `build: script_env: [MEMORY_MIB]`."""

_PLAIN = re.compile(r"[A-Za-z0-9_.+:,@%/-]+\Z")
"""What neither of both readers takes for more than itself."""


def render_script(recipe: Recipe, plan: Plan, how: RenderWith) -> str:
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


def render_conda(recipe: Recipe, plan: Plan, how: RenderWith) -> str:
    """The script. Raises MemoryBudgetError or RecipeError."""
    if how.command == WHEEL:
        how = msgspec.structs.replace(how, command=INSTALL)
    lines = ["#!/bin/bash", _META, "#", *comments([heading(plan), "", *about(recipe, plan, how)])]
    return "\n".join([*lines, staged_body(recipe, plan, how, folder="${SRC_DIR:-.}")])


def render_slurm(recipe: Recipe, plan: Plan, how: RenderWith) -> str:
    """The script for ``sbatch``. Raises MemoryBudgetError or RecipeError."""
    needs = needs_of(recipe, plan, how)
    spare_mib = math.ceil(plan.reserve_mib)
    memory_mib, others = needs.peak_mib + needs.beside_mib + spare_mib, needs.beside_words
    minutes = math.ceil(needs.time_s / 60)
    lines = [
        "#!/bin/sh",
        f"#SBATCH --job-name=build-{job_name(plan.project)}",
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
                f"--mem: {needs.peak_mib} MiB for compilers at the worst moment, {others}{spare_mib} MiB free.",
                f"--time: {minutes} minutes: the upper end of what is expected, twenty of them for all but compilers.",
                "",
                *about(recipe, plan, how),
            ]
        ),
    ]
    # The job's script is a copy in a folder of Slurm's: the sources are where it was submitted.
    return "\n".join([*lines, staged_body(recipe, plan, how, folder="${SLURM_SUBMIT_DIR:-.}")])


def job_name(project: str) -> str:
    """What Slurm takes as one."""
    return "".join(char if char.isascii() and (char.isalnum() or char in "._-") else "-" for char in project)[:60]


def render_env(recipe: Recipe, plan: Plan, how: RenderWith) -> str:
    """The file. Raises MemoryBudgetError where not even one job is safe."""
    refuse_too_big(recipe, plan)
    lines = comments([heading(plan), "docker run --env-file FILE …, or in a shell: set -a; . ./FILE; set +a", ""])
    lines += comments(["Made by builddoctor (recipe render).", *sources(recipe, plan), memory(plan), *known(plan)])
    for each in how.variables:
        lines += ["", *(comments([each.why]) if each.why else []), *_line(each)]
    if how.with_builddoctor:
        return "\n".join([*lines, "", "# Jobs and threads are builddoctor's own to choose.", ""])
    static = plan.static
    if static is None:
        raise MemoryBudgetError(
            f"no fixed number of jobs is safe in {format_mib(plan.memory_mib)}",
            hint="in stages it may work: `--to sh`",
        )
    most = f"at most {format_mib(static.peak_mib)}, about {format_clock(static.makespan_s)}"
    lines += ["", *comments([f"Jobs and threads that fit whichever units meet: {most}."])]
    for name, number in [
        *((name, static.jobs) for name in how.jobs),
        *((name, static.threads) for name in how.threads),
    ]:
        lines += _line(Variable(name=name, value=str(number)))
    return "\n".join([*lines, ""])


def _line(variable: Variable) -> list[str]:
    name = variable_name(variable.name)
    if "{build}" in variable.value:
        return comments([f"{name}: a folder that is kept from one build to the next; set it yourself."])
    if _PLAIN.match(variable.value):
        return [f"{name}={variable.value}"]
    given = word(f"{name}={variable.value}")
    return comments(
        [f"{given} needs quotes, which docker would keep: docker run -e {given} …, in a shell: export {given}"]
    )
