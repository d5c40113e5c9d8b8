"""KEY=VALUE lines that ``docker --env-file`` and ``set -a; . ./FILE`` both read: a number of jobs that is safe. Pure.

Docker takes a value as it stands, quotes included, and a shell does not: a value that would need quotes stands there
as a comment that says how to give it.
"""

from __future__ import annotations

import re

from builddoctor.errors import MemoryBudgetError, RecipeError
from builddoctor.model.plan import Plan
from builddoctor.model.recipe import Recipe
from builddoctor.render.recipes.how import RenderWith, Variable
from builddoctor.render.recipes.needs import refuse_too_big
from builddoctor.render.recipes.provenance import heading, known, memory, sources
from builddoctor.render.recipes.quoting import comments, word
from builddoctor.units import format_clock, format_mib

_NAME = re.compile(r"[A-Z][A-Z0-9_]{0,63}\Z")
_PLAIN = re.compile(r"[A-Za-z0-9_.+:,@%/-]+\Z")
"""What neither of both readers takes for more than itself."""


def render(recipe: Recipe, plan: Plan, how: RenderWith) -> str:
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
    if not _NAME.match(variable.name):
        raise RecipeError(f"no name of a variable: {variable.name!r}", hint="capital letters, digits and `_` only")
    if "{build}" in variable.value:
        return comments([f"{variable.name}: a folder that is kept from one build to the next; set it yourself."])
    if _PLAIN.match(variable.value):
        return [f"{variable.name}={variable.value}"]
    given = word(f"{variable.name}={variable.value}")
    return comments(
        [f"{given} needs quotes, which docker would keep: docker run -e {given} …, in a shell: export {given}"]
    )
