"""What must hold in a recipe beyond the types of its values. Pure.

Covers: names that must not be empty, units and variables that are there twice, the largest of several runs below their
median, names of environment variables, days that the calendar has not.
"""

from __future__ import annotations

import datetime as dt
import difflib
from collections.abc import Iterator

from builddoctor.model.recipe import PhaseFigures, Recipe
from builddoctor.recipes.allowed import allowed, allowed_names
from builddoctor.recipes.complaints import Complaint, shown
from builddoctor.recipes.places import Path


def complaints(recipe: Recipe) -> Iterator[Complaint]:
    """Everything that is wrong, in the order of the model."""
    if not recipe.project.name:
        yield Complaint(("project", "name"), "it is empty", 'name the project as it is imported: `name = "flash_attn"`')
    yield from _archs(recipe.fingerprint.archs, ("fingerprint", "archs"))
    yield from _day(recipe.origin.date)
    yield from _environment(recipe)
    for number, hazard in enumerate(recipe.hazards):
        if not hazard.text:
            yield Complaint(("hazards", number, "text"), "it is empty", "say what happens, and what helps")
    yield from _units(recipe)


def _environment(recipe: Recipe) -> Iterator[Complaint]:
    seen: dict[str, int] = {}
    for number, setting in enumerate(recipe.environment):
        path: Path = ("environment", number, "name")
        if not allowed(setting.name):
            near = difflib.get_close_matches(setting.name, allowed_names(), 1)
            yield Complaint(
                path,
                f"a recipe may not set {setting.name}",
                (f"did you mean `{near[0]}`? " if near else "")
                + "Allowed are the jobs, threads, architectures and switches of known projects, such as MAX_JOBS or "
                "TORCH_CUDA_ARCH_LIST; docs/reference/recipe.md lists them all",
            )
        if setting.name in seen:
            yield Complaint(path, f"environment[{seen[setting.name] + 1}] sets it too", "keep one of them")
        seen.setdefault(setting.name, number)


def _units(recipe: Recipe) -> Iterator[Complaint]:
    seen: dict[tuple[str, ...], int] = {}
    for number, unit in enumerate(recipe.units):
        path: Path = ("units", number)
        if not unit.place:
            yield Complaint(
                (*path, "place"), "it is empty", "a unit is known by its source's path, a link by `link NAME`"
            )
        key = (unit.place, unit.output, unit.target, unit.options)
        if key in seen:
            yield Complaint(
                (*path, "place"),
                f"units[{seen[key] + 1}] has the same place, output, target and options",
                "keep one of them, or say by `output` how they differ",
            )
        seen.setdefault(key, number)
        yield from _archs(unit.archs, (*path, "archs"))
        for position, phase in enumerate(unit.phases):
            yield from _phase(phase, (*path, "phases", position))


def _phase(phase: PhaseFigures, path: Path) -> Iterator[Complaint]:
    for high_name, high, usual_name, usual in (
        ("high_mib", phase.high_mib, "peak_mib", phase.peak_mib),
        ("high_s", phase.high_s, "cpu_s", phase.cpu_s),
    ):
        if 0 < high < usual:
            yield Complaint(
                (*path, high_name),
                f"{high:g} is below {usual_name}, {usual:g}",
                f"it is the largest of all runs, never below their median; without it, it is as {usual_name}",
            )


def _archs(archs: tuple[str, ...], path: Path) -> Iterator[Complaint]:
    for number, arch in enumerate(archs):
        if not arch:
            yield Complaint((*path, number), "it is empty", 'name an architecture, such as "sm_90", or take it out')
        elif arch in archs[:number]:
            yield Complaint((*path, number), f"{shown(arch)} is there twice", "keep one of them")


def _day(date: str) -> Iterator[Complaint]:
    try:
        if date:
            dt.date.fromisoformat(date)
    except ValueError:
        yield Complaint(("origin", "date"), f"{shown(date)} is no day of the calendar", 'write it as "2026-01-31"')
