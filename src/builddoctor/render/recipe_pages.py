"""Recipes as plain lines: a list of them, one of them, two of them side by side. Pure: data in, lines out.

Names come from files: no control character in them gets through. Does *not* cover: scripts from recipes
(``render.recipes``), or plans (``render.plan``).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from builddoctor.model.recipe import PhaseFigures, Recipe, RecipeUnit
from builddoctor.model.recipe_differences import Differences
from builddoctor.render.tables import fitted, off
from builddoctor.units import format_clock, format_mib, one_line

HEAVIEST = 10
MOST_LISTED = 20
KINDS = ("cudafe++", "cicc", "ptxas", "host", "link")


class RecipeRow(msgspec.Struct, frozen=True, kw_only=True):
    """One recipe of a list."""

    name: str
    origin: str
    path: str
    project: str = ""
    version: str = ""
    archs: tuple[str, ...] = ()
    host_arch: str = ""
    provenance: str = ""
    runs: int = 0
    units: int = 0
    phases: int = 0
    largest_mib: float = 0.0
    cpu_s: float = 0.0
    problem: str = ""
    """why it cannot be read; then all else is empty"""


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """A recipe in five figures."""

    units: int
    phases: int
    largest_mib: float
    """its largest phase"""
    largest: str
    """whose that is"""
    cpu_s: float
    """of all phases, on one core"""


def totals(recipe: Recipe) -> Totals:
    """Of the whole recipe."""
    largest = max(recipe.units, key=peak_mib, default=None)
    return Totals(
        units=len(recipe.units),
        phases=sum(len(unit.phases) for unit in recipe.units),
        largest_mib=peak_mib(largest) if largest is not None else 0.0,
        largest=largest.place if largest is not None else "",
        cpu_s=round(sum(phase.cpu_s for unit in recipe.units for phase in unit.phases), 3),
    )


def peak_mib(unit: RecipeUnit) -> float:
    """Of its largest phase."""
    return max((phase.peak_mib for phase in unit.phases), default=0.0)


def list_rows(rows: Sequence[RecipeRow], *, width: int) -> list[str]:
    """One line a recipe; what is wrong with it below, where something is."""
    if not rows:
        return ["no recipes there"]
    name_cells = min(max(6, *(len(row.name) for row in rows)), max(20, width - 50))
    lines = [f"{'recipe':<{name_cells}}  {'units':>5} {'largest':>9} {'core time':>9}  {'figures':<20}from"]
    for row in rows:
        name = fitted(one_line(row.name), name_cells)
        if row.problem:
            lines.append(f"{name:<{name_cells}}  {'':>25}  {'cannot be read':<20}{one_line(row.origin)}")
            lines.append(f"  {one_line(row.problem)}")
            continue
        size, time = format_mib(row.largest_mib), format_clock(row.cpu_s)
        what = f"{row.provenance}, {_runs(row.runs)}"
        lines.append(f"{name:<{name_cells}}  {row.units:>5} {size:>9} {time:>9}  {what:<20}{one_line(row.origin)}")
    return lines


def recipe_page(recipe: Recipe, *, name: str, origin: str, width: int) -> list[str]:
    """What a person wants to know of it: whose, for what, from where, what can go wrong, what is heavy."""
    project, made, told = recipe.project, recipe.fingerprint, recipe.origin
    title = " · ".join(filter(None, (f"{project.name} {project.version}".strip(), project.title)))
    lines = [one_line(f"{name} ({origin}): {title}")]
    lines += _named(
        [
            ("archs", ", ".join(made.archs)),
            ("made with", ", ".join(_tools(recipe))),
            ("figures", ", ".join(filter(None, (told.provenance, _runs(told.runs), told.date)))),
            ("", told.how),
            ("on", told.machine),
            ("data", told.data),
        ]
    )
    for setting in recipe.environment:
        why = f"   {setting.why}" if setting.why else ""
        lines.append(one_line(f"{'set':<11}{setting.name}={setting.value}{why}"))
    for hazard in recipe.hazards:
        where = " ".join(filter(None, (hazard.host_arch, hazard.tool, hazard.place)))
        lines.append(one_line(f"{'hazard':<11}{hazard.kind}{f' ({where})' if where else ''}: {hazard.text}"))
    all_of_it = totals(recipe)
    lines.append(
        f"{'in all':<11}{size_words(all_of_it.units, all_of_it.phases)}, "
        f"largest {format_mib(all_of_it.largest_mib)}, {format_clock(all_of_it.cpu_s)} on one core"
    )
    return [*lines, "", *heaviest_rows(recipe, width=width)]


def heaviest_rows(recipe: Recipe, *, width: int) -> list[str]:
    """The units with the largest peaks, with the peak of each kind of phase."""
    units = sorted(recipe.units, key=lambda unit: (-peak_mib(unit), unit.place))[:HEAVIEST]
    kinds = [kind for kind in KINDS if any(_of_kind(unit, kind) for unit in units)]
    head = f"{'peak':>9}{'time':>8}" + "".join(f"{kind:>10}" for kind in kinds)
    lines = [head + "  unit"]
    for unit in units:
        line = f"{format_mib(peak_mib(unit)):>9}{format_clock(sum(phase.cpu_s for phase in unit.phases)):>8}"
        for kind in kinds:
            found = _of_kind(unit, kind)
            line += f"{format_mib(max(phase.peak_mib for phase in found)) if found else '':>10}"
        lines.append(f"{line}  {fitted(one_line(unit.place), max(20, width - len(head) - 2))}")
    more = len(recipe.units) - len(units)
    return [*lines, f"{'':>9}{'':>8}  and {_count(more, 'lighter unit')}"] if more > 0 else lines


def difference_page(told: Differences, *, width: int) -> list[str]:
    """What is new, gone, larger, smaller; the rest is counted."""
    lines = [one_line(f"before: {told.before}"), one_line(f"after:  {told.after}")]
    lines += [one_line(f"differs    {words}") for words in told.toolchain]
    lines += [one_line(f"set        {words}") for words in told.environment]
    for sign, hazards in (("new", told.hazards_added), ("gone", told.hazards_removed)):
        lines += [one_line(f"hazard     {sign}: {hazard.kind}: {hazard.text}") for hazard in hazards]
    if told.changed:
        lines += ["", f"{'before':>9}{'after':>10}{'':>7}{'time':>8}{'after':>8}  unit"]
    for change in told.changed:
        line = f"{format_mib(change.before_mib):>9}{format_mib(change.after_mib):>10}"
        line += f"{off(change.before_mib, change.after_mib) if change.memory else '':>7}"
        line += f"{format_clock(change.before_s):>8}{format_clock(change.after_s):>8}"
        why = " (other source)" if change.source_changed else " (other options)" if change.options_changed else ""
        lines.append(f"{line}  {fitted(one_line(change.place), max(20, width - 44 - len(why)))}{why}")
    for sign, units in (("new", told.added), ("gone", told.removed)):
        if units:
            lines += ["", f"{sign}:"]
        for unit in units[:MOST_LISTED]:
            place = fitted(one_line(unit.place), max(20, width - 19))
            lines.append(f"{format_mib(unit.peak_mib):>9}{format_clock(unit.cpu_s):>8}  {place}")
        if len(units) > MOST_LISTED:
            lines.append(f"{'':>17}  and {_count(len(units) - MOST_LISTED, 'lighter unit')}")
    return [*lines, "", f"{_count(told.same, 'unit')} as before"]


def _of_kind(unit: RecipeUnit, kind: str) -> list[PhaseFigures]:
    return [phase for phase in unit.phases if phase.kind.value == kind]


def _tools(recipe: Recipe) -> list[str]:
    made = recipe.fingerprint
    nvcc = [f"nvcc {made.nvcc}"] if made.nvcc else []
    gcc = [f"gcc {made.host_compiler}"] if made.host_compiler else []
    return [*nvcc, *gcc, *filter(None, [made.host_arch]), f"{made.page_kib} KiB pages"]


def _named(rows: Sequence[tuple[str, str]]) -> list[str]:
    return [one_line(f"{name:<11}{text}") for name, text in rows if text]


def _runs(number: int) -> str:
    return _count(number, "run")


def size_words(units: int, phases: int) -> str:
    """``65 units, 369 phases``."""
    return f"{_count(units, 'unit')}, {_count(phases, 'phase')}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number != 1 else ''}"
