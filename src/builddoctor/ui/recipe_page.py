"""Recipes and the history in a terminal: a list of recipes, one of them, two side by side; what was built before.

Names come from files: no control character in them gets through. Does *not* cover: scripts from recipes
(``ui.scripts``), or plans (``ui.plan_page``).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone

import msgspec
from rich.text import Text

from builddoctor.core.past import PastPhase, PastUnit
from builddoctor.core.phase import kind_words
from builddoctor.core.recipe import Differences, PhaseFigures, Recipe, RecipeUnit
from builddoctor.core.units import format_clock, format_mib, one_line
from builddoctor.ui.layout import Column, plural, table
from builddoctor.ui.trace_page import off

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
    """the unit of that phase"""
    cpu_s: float
    """of all phases, on one core"""


def totals(recipe: Recipe) -> Totals:
    """Of the whole recipe. A link is no unit that anybody counts, as on the board and in a trace."""
    largest = max(recipe.units, key=peak_mib, default=None)
    return Totals(
        units=sum(not unit.after_all for unit in recipe.units),
        phases=sum(len(unit.phases) for unit in recipe.units),
        largest_mib=peak_mib(largest) if largest is not None else 0.0,
        largest=largest.place if largest is not None else "",
        cpu_s=round(sum(phase.cpu_s for unit in recipe.units for phase in unit.phases), 3),
    )


def peak_mib(unit: RecipeUnit) -> float:
    """Of its largest phase."""
    return max((phase.peak_mib for phase in unit.phases), default=0.0)


def list_rows(rows: Sequence[RecipeRow], *, width: int, whole: bool = False) -> list[Text]:
    """One line a recipe; what is wrong with it below, where something is. ``whole``: names are not cut."""
    if not rows:
        return [Text("no recipes there")]
    columns = [Column("recipe", name=True), *(Column(head, right=True) for head in ("units", "largest", "core time"))]
    cells = []
    for row in rows:
        if row.problem:
            cells.append((row.name, "", "", "", "cannot be read", row.origin))
            continue
        what = f"{row.provenance}, {plural(row.runs, 'run')}"
        size, time = format_mib(row.largest_mib), format_clock(row.cpu_s)
        cells.append((row.name, str(row.units), size, time, what, row.origin))
    head, *lines = table([*columns, Column("figures"), Column("from")], cells, width=0 if whole else width)
    told = [head]
    for row, line in zip(rows, lines, strict=True):
        told += [line, Text(f"  {one_line(row.problem)}")] if row.problem else [line]
    return told


def recipe_page(recipe: Recipe, *, name: str, origin: str, width: int) -> list[Text]:
    """Project, architectures and tools, origin of the figures, settings, hazards, and the heaviest units."""
    project, made, told = recipe.project, recipe.fingerprint, recipe.origin
    title = " · ".join(filter(None, (f"{project.name} {project.version}".strip(), project.title)))
    rows = [
        ("archs", ", ".join(made.archs)),
        ("made with", ", ".join(_tools(recipe))),
        ("figures", ", ".join(filter(None, (told.provenance, plural(told.runs, "run"), told.date)))),
        ("", told.how),
        ("on", told.machine),
        ("data", told.data),
    ]
    rows += [("set", f"{each.name}={each.value}{f'   {each.why}' if each.why else ''}") for each in recipe.environment]
    for hazard in recipe.hazards:
        where = " ".join(filter(None, (hazard.host_arch, hazard.tool, hazard.place)))
        rows.append(("hazard", f"{hazard.kind}{f' ({where})' if where else ''}: {hazard.text}"))
    all_of_it = totals(recipe)
    counts = size_words(all_of_it.units, all_of_it.phases)
    largest, took = format_mib(all_of_it.largest_mib), format_clock(all_of_it.cpu_s)
    rows.append(("in all", f"{counts}, largest {largest}, {took} on one core"))
    lines = [Text(one_line(f"{name} ({origin}): {title}"), style="bold")]
    lines += [Text(one_line(f"{label:<11}{text}")) for label, text in rows if text]
    return [*lines, Text(), *heaviest_rows(recipe, width=width)]


def heaviest_rows(recipe: Recipe, *, width: int) -> list[Text]:
    """The units with the largest peaks, with the peak of each kind of phase."""
    units = sorted(recipe.units, key=lambda unit: (-peak_mib(unit), unit.place))[:HEAVIEST]
    kinds = [kind for kind in KINDS if any(_of_kind(unit, kind) for unit in units)]
    columns = [Column(head, right=True) for head in ("peak", "time", *kinds)]
    rows = []
    for unit in units:
        found = [max((phase.peak_mib for phase in _of_kind(unit, kind)), default=None) for kind in kinds]
        peaks = ["" if peak is None else format_mib(peak) for peak in found]
        took = format_clock(sum(phase.cpu_s for phase in unit.phases))
        rows.append((format_mib(peak_mib(unit)), took, *peaks, unit.place))
    more = len(recipe.units) - len(units)
    lines = table([*columns, Column("unit", name=True)], rows, width=width)
    return [*lines, Text(f"  and {plural(more, 'lighter unit')}")] if more > 0 else lines


def difference_page(told: Differences, *, width: int) -> list[Text]:
    """What is new, gone, larger, smaller; the rest is counted."""
    rows = [f"before: {told.before}", f"after:  {told.after}"]
    rows += [f"differs    {words}" for words in told.toolchain]
    rows += [f"set        {words}" for words in told.environment]
    for sign, hazards in (("new", told.hazards_added), ("gone", told.hazards_removed)):
        rows += [f"hazard     {sign}: {hazard.kind}: {hazard.text}" for hazard in hazards]
    lines = [Text(one_line(row)) for row in rows]
    if told.changed:
        heads = ("before", "after", "", "time", "after")
        columns = [*(Column(head, right=True) for head in heads), Column("unit", name=True), Column("")]
        changes = [
            (
                format_mib(change.before_mib),
                format_mib(change.after_mib),
                off(change.before_mib, change.after_mib) if change.memory else "",
                format_clock(change.before_s),
                format_clock(change.after_s),
                change.place,
                "(other source)" if change.source_changed else "(other options)" if change.options_changed else "",
            )
            for change in told.changed
        ]
        lines += [Text(), *table(columns, changes, width=width)]
    for sign, units in (("new", told.added), ("gone", told.removed)):
        if not units:
            continue
        columns = [Column(f"{sign}:", right=True), Column("", right=True), Column("", name=True)]
        shown = [(format_mib(unit.peak_mib), format_clock(unit.cpu_s), unit.place) for unit in units[:MOST_LISTED]]
        lines += [Text(), *table(columns, shown, width=width)]
        if len(units) > MOST_LISTED:
            lines.append(Text(f"  and {plural(len(units) - MOST_LISTED, 'lighter unit')}"))
    return [*lines, Text(), Text(f"{plural(told.same, 'unit')} as before")]


def _of_kind(unit: RecipeUnit, kind: str) -> list[PhaseFigures]:
    return [phase for phase in unit.phases if phase.kind.value == kind]


def _tools(recipe: Recipe) -> list[str]:
    made = recipe.fingerprint
    nvcc = [f"nvcc {made.nvcc}"] if made.nvcc else []
    gcc = [f"gcc {made.host_compiler}"] if made.host_compiler else []
    return [*nvcc, *gcc, *filter(None, [made.host_arch]), f"{made.page_kib} KiB pages"]


def size_words(units: int, phases: int) -> str:
    """``65 units, 369 phases``."""
    return f"{plural(units, 'unit')}, {plural(phases, 'phase')}"


def project_rows(projects: Sequence[tuple[str, int, float]]) -> list[Text]:
    """One line a project: units, when last built, name. ``projects``: name, units, seconds since 1970."""
    if not projects:
        return [Text("no history yet")]
    columns = [Column("units", right=True), Column("last built"), Column("project")]
    return table(columns, [(str(units), _day(updated_at), name) for name, units, updated_at in projects])


def past_rows(units: Sequence[PastUnit], *, width: int, whole: bool = False) -> list[Text]:
    """One line a unit, the largest first: peak, time, builds, place. ``whole``: names are not cut."""
    if not units:
        return [Text("nothing of that project")]
    columns = [*(Column(head, right=True) for head in ("peak", "time", "builds")), Column("unit", name=True)]
    rows = []
    for unit in sorted(units, key=_peak_mib, reverse=True):
        worst = max(unit.phases, key=_phase_peak_mib, default=None)
        what = kind_words(worst.kind, worst.arch) if worst is not None else ""
        builds = max((each.builds for each in unit.phases), default=0)
        fitted = worst is None or not any(seen.at_least for seen in worst.seen)
        size = f"{'' if fitted else '> '}{format_mib(_peak_mib(unit))}"
        rows.append((size, format_clock(_wall_s(unit)), str(builds), unit.key.place, what))
    return table([*columns, Column("largest phase")], rows, width=0 if whole else width)


def _day(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):
        return "?"


def _peak_mib(unit: PastUnit) -> float:
    return max(map(_phase_peak_mib, unit.phases), default=0.0)


def _phase_peak_mib(phase: PastPhase) -> float:
    return max((seen.peak_mib for seen in phase.seen), default=0.0)


def _wall_s(unit: PastUnit) -> float:
    """Of one build: figures kept of a phase, shared among the builds that they come from."""
    return sum(sum(seen.wall_s for seen in phase.seen) / max(1, min(phase.builds, 8)) for phase in unit.phases)
