"""Recipes from traces of builds.

Covers: one trace or several of the same project, read line by line; what is left out, in words. A unit counts where
it was built to its end: half a unit would look lighter than it is. Several traces are joined: units of a build that
was gone on with later come from both, and those built twice have a median and a high.
Does *not* cover: which phases of two builds are the same (``recipes.from_rows``).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path

import msgspec

from builddoctor.errors import RecipeError
from builddoctor.model.recipe import Fingerprint, Origin, Recipe, RecipeProject, RecipeUnit
from builddoctor.recipes.from_rows import how_words, recipe_of_rows, word
from builddoctor.recipes.measured import MeasuredPhase
from builddoctor.recipes.one_trace import Gathered, gather
from builddoctor.recipes.reading import checked
from builddoctor.trace.records import Header
from builddoctor.units import escaped, format_mib

MOST_NAMED = 5
"""Units of one kind of trouble that are named; the others are counted."""


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """A recipe, and what did not get into it."""

    recipe: Recipe
    left_out: tuple[str, ...] = ()
    """in words"""
    complete: bool = True
    """every build went to its end, or a later one built what it had not"""
    differs: tuple[str, ...] = ()
    """how the later builds' tools differ from the first's, in words"""
    phases: tuple[MeasuredPhase, ...] = ()
    """what it was made from"""


def recipe_from_traces(paths: Sequence[Path], *, name: str = "") -> Made:
    """``name``: of the project, where the traces do not say it, or say another.

    Raises TraceError for what is no trace, RecipeError for traces of different projects or machines' kinds, and where
    no unit was built to its end.
    """
    builds, twice = _each_once([gather(path, run) for run, path in enumerate(paths, 1)])
    if not builds:
        raise RecipeError("no trace was named", hint="builddoctor recipe from-trace last")
    _same_build(builds, named=bool(name))
    phases, refused = _fit_for_recipes([phase for build in builds for phase in build.phases])
    halves = _halves(builds, {phase.place for phase in phases})
    left_out = [*refused, *halves, *_said(builds), *twice]
    first = builds[0]
    if not phases:
        raise RecipeError(
            f"{first.path}: no unit was built to its end" + "".join(f"; {words}" for words in left_out[:3]),
            hint="`builddoctor trace show` says why the build failed",
        )
    complete = any(build.ended_well for build in builds) and not halves and not refused
    project = RecipeProject(name=word(name or first.project) or "unnamed", version=word(first.version))
    recipe = recipe_of_rows(
        phases,
        project=project,
        fingerprint=_fingerprint(first.header),
        origin=_origin(builds, complete=complete),
    )
    return Made(
        recipe=checked(recipe, first.path.name),
        left_out=tuple(left_out),
        complete=complete,
        differs=_differing(builds),
        phases=tuple(phases),
    )


def _each_once(builds: Sequence[Gathered]) -> tuple[list[Gathered], list[str]]:
    """Builds whose trace was named twice, or lies there twice, count once."""
    found: dict[str, Gathered] = {}
    words = []
    for build in builds:
        first = found.setdefault(build.header.trace_id or str(build.path), build)
        if first is not build:
            words.append(f"{build.path.name}: the trace of the same build as {first.path.name}, counted once")
    return list(found.values()), words


def _same_build(builds: Sequence[Gathered], *, named: bool) -> None:
    first = builds[0]
    for build in builds[1:]:
        ours, theirs = first.header, build.header
        for what, a, b in (
            ("project", "" if named else first.project, build.project),
            ("architectures", ",".join(sorted(ours.archs)), ",".join(sorted(theirs.archs))),
            ("processor", ours.host_arch, theirs.host_arch),
        ):
            if a and b and a != b:
                raise RecipeError(
                    f"{first.path.name} and {build.path.name} are of different builds: {what} {a} and {b}",
                    hint="make a recipe of each; `builddoctor recipe diff A B` sets them side by side",
                )


def _differing(builds: Sequence[Gathered]) -> tuple[str, ...]:
    first = builds[0]
    found: dict[str, None] = {}
    for build in builds[1:]:
        for what, a, b in (
            ("version", first.version, build.version),
            ("nvcc", first.header.nvcc, build.header.nvcc),
            ("gcc", first.header.host_compiler, build.header.host_compiler),
            ("pages of KiB", str(first.header.page_kib), str(build.header.page_kib)),
        ):
            if a and b and a != b:
                found[f"{what} {a} in {first.path.name}, {b} in {build.path.name}"] = None
    return tuple(found)


def _fingerprint(header: Header) -> Fingerprint:
    return _fitting(
        Fingerprint(
            archs=tuple(sorted(set(header.archs))),
            nvcc=word(header.nvcc),
            host_compiler=word(header.host_compiler),
            host_arch=word(header.host_arch),
            page_kib=header.page_kib,
        ),
        Fingerprint(nvcc=word(header.nvcc), host_arch=word(header.host_arch)),
    )


def _fitting(wanted: Fingerprint, otherwise: Fingerprint) -> Fingerprint:
    """``otherwise``, when a trace holds what no recipe may."""
    try:
        return msgspec.convert(msgspec.to_builtins(wanted), Fingerprint)
    except msgspec.ValidationError:
        return otherwise


def _origin(builds: Sequence[Gathered], *, complete: bool) -> Origin:
    last = builds[-1].header
    days = [build.header.started_at[:10] for build in builds]
    machine = [f"{last.cores} cores", f"{format_mib(last.limit_mib)} of memory", escaped(last.host_arch)]
    return Origin(
        provenance="measured",
        how=how_words(len(builds), complete=complete),
        machine=", ".join(part for part in machine if part)[:1000],
        builddoctor=word(last.builddoctor),
        date=max(filter(_is_day, days), default=""),
        traces=tuple(dict.fromkeys(filter(None, (word(build.header.trace_id) for build in builds)))),
    )


def _is_day(text: str) -> bool:
    try:
        return dt.date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _fit_for_recipes(phases: Sequence[MeasuredPhase]) -> tuple[list[MeasuredPhase], list[str]]:
    """Those whose names and figures a recipe may hold; the units that had others, in words."""
    good: list[MeasuredPhase] = []
    refused: dict[str, str] = {}
    for phase in phases:
        fit = _without_odd_target(phase)
        problem = _problem(fit)
        if problem:
            refused.setdefault(phase.place, problem)
        else:
            good.append(fit)
    good = [phase for phase in good if phase.place not in refused]
    words = [f"{escaped(place)[:200]}: {problem}" for place, problem in refused.items()]
    return good, _few(words, "units with names or figures that no recipe may hold")


def _without_odd_target(phase: MeasuredPhase) -> MeasuredPhase:
    """A target that lies elsewhere (an absolute path) is nobody's in another folder."""
    if not phase.target or _converted(phase, target=phase.target) == "":
        return phase
    return msgspec.structs.replace(phase, target="")


def _problem(phase: MeasuredPhase) -> str:
    return _converted(phase, target=phase.target) if phase.place else "it has no name"


def _converted(phase: MeasuredPhase, *, target: str) -> str:
    """Why the model refuses a unit with this phase; empty when it does not."""
    unit = {
        "place": phase.place,
        "output": phase.output,
        "target": target,
        "options": phase.options,
        "source_digest": phase.source_digest,
        "archs": phase.archs,
        "phases": [
            {
                "kind": phase.kind.value,
                "tool": phase.tool,
                "arch": phase.arch,
                "input_mib": phase.input_mib,
                "peak_mib": phase.peak_mib,
                "cpu_s": phase.cpu_s,
            }
        ],
    }
    try:
        msgspec.convert(unit, RecipeUnit)
    except msgspec.ValidationError as error:
        return str(error).replace("`$.", "`")
    return ""


def _halves(builds: Sequence[Gathered], whole: set[str]) -> list[str]:
    """Units that no build built to the end."""
    halves = {half.place: half.why for build in builds for half in build.halves if half.place not in whole}
    return _few([f"{escaped(place)[:200]}: {why}" for place, why in halves.items()], "units that did not end")


def _said(builds: Sequence[Gathered]) -> list[str]:
    return [f"{build.path.name}: {said}" if len(builds) > 1 else said for build in builds for said in build.said]


def _few(words: list[str], what: str) -> list[str]:
    more = len(words) - MOST_NAMED
    return [*words[:MOST_NAMED], f"{more} more {what}"] if more > 0 else words
