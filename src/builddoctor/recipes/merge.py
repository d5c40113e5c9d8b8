"""Several recipes of one project as one, and a recipe brought up to date by builds that it does not know yet. Pure.

Covers: units and phases in any of them, weighted by how often each was measured; better provenance before worse
(measured, emulated, derived: they are never mixed in one figure); what of an old recipe is kept (environment, hazards,
title), what is counted together, what is replaced because it is of other tools or of another source.
Does *not* cover: traces of several builds, whose medians are exact (``recipes.from_trace``); the text of a recipe with
its comments (``recipes.recipe_text``).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from packaging.version import InvalidVersion, Version

from builddoctor.core.errors import RecipeError
from builddoctor.core.recipe import Fingerprint, Hazard, Origin, PhaseFigures, Provenance, Recipe, RecipeUnit, Setting
from builddoctor.recipes.match import squeezed
from builddoctor.recipes.measured_phases import (
    PARTIAL,
    UnitName,
    course_together,
    how_words,
    same_phases,
    unit_names,
    with_digests,
)
from builddoctor.recipes.recipe_diff import UNIT_WORDS, fingerprint_words

RANK: dict[Provenance, int] = {"measured": 0, "emulated": 1, "derived": 2}


class _Known(msgspec.Struct, frozen=True, kw_only=True):
    """A phase with what its recipe says for all of them."""

    figures: PhaseFigures
    runs: int
    provenance: Provenance


def merge(recipes: Sequence[Recipe]) -> Recipe:
    """The first's project, fingerprint and order; ``recipe_diff.fingerprint_words`` says what differs in the others.

    Raises RecipeError for recipes of different projects, architectures or processors: their figures have no mean.
    """
    if not recipes:
        raise RecipeError("there is no recipe to merge", hint="builddoctor recipe merge a.toml b.toml -o both.toml")
    first = recipes[0]
    for other in recipes[1:]:
        _same_kind(first, other)
    if len(recipes) == 1:
        return first
    origin = _origin([recipe.origin for recipe in recipes])
    units = _units(recipes, origin)
    return msgspec.structs.replace(
        first,
        fingerprint=with_digests(first.fingerprint, units),
        origin=origin,
        environment=_settings(recipes),
        hazards=_hazards(recipes),
        units=units,
    )


def _same_kind(first: Recipe, other: Recipe) -> None:
    a, b = first.fingerprint, other.fingerprint
    one_name = squeezed(first.project.name) == squeezed(other.project.name)
    for what, ours, theirs in (
        ("projects", first.project.name, first.project.name if one_name else other.project.name),
        ("architectures", ",".join(sorted(a.archs)), ",".join(sorted(b.archs))),
        ("processors", a.host_arch, b.host_arch),
    ):
        if ours and theirs and ours != theirs:
            raise RecipeError(
                f"recipes of different {what} cannot be merged: {ours} and {theirs}",
                hint="keep them apart; `builddoctor recipe diff A B` sets them side by side",
            )


def _origin(origins: Sequence[Origin]) -> Origin:
    best = min(origins, key=lambda origin: RANK[origin.provenance])
    machines = list(dict.fromkeys(origin.machine for origin in origins if origin.machine))
    traces = dict.fromkeys(trace for origin in origins for trace in origin.traces)
    return Origin(
        provenance=best.provenance,
        runs=sum(origin.runs for origin in origins),
        how=_how(origins)[:1000],
        machine="; ".join(machines)[:1000],
        builddoctor=max((origin.builddoctor for origin in origins), key=_age, default=""),
        date=max(origin.date for origin in origins),
        traces=tuple(traces)[:1000],
    )


def _age(version: str) -> tuple[Version, str]:
    """To find the newest by: 0.10 comes after 0.9. A recipe may hold any word, which comes first."""
    try:
        return Version(version), version
    except InvalidVersion:
        return Version("0.dev0"), version


def _how(origins: Sequence[Origin]) -> str:
    if all(origin.traces and len(origin.traces) >= origin.runs for origin in origins):
        complete = not all(origin.how.endswith(PARTIAL) for origin in origins)
        return how_words(sum(origin.runs for origin in origins), complete=complete)
    return "; ".join(dict.fromkeys(origin.how for origin in origins if origin.how))


def _units(recipes: Sequence[Recipe], origin: Origin) -> tuple[RecipeUnit, ...]:
    names = unit_names([[(unit.place, unit.output, unit.target) for unit in recipe.units] for recipe in recipes])
    found: dict[UnitName, list[tuple[Recipe, RecipeUnit]]] = {}
    for recipe, named in zip(recipes, names, strict=True):
        for unit, name in zip(recipe.units, named, strict=True):
            found.setdefault(name, []).append((recipe, unit))
    return tuple(_unit(same, origin) for same in found.values())


def _unit(same: Sequence[tuple[Recipe, RecipeUnit]], origin: Origin) -> RecipeUnit:
    unit = same[0][1]
    groups = [
        [_known(phase, same[index][0]) for index, phase in group]
        for group in same_phases([other.phases for _, other in same])
    ]
    return msgspec.structs.replace(
        unit,
        target=unit.target or next((other.target for _, other in same if other.target), ""),
        archs=tuple(sorted({arch for _, other in same for arch in other.archs})),
        phases=tuple(_figures(group, origin) for group in groups),
    )


def _known(figures: PhaseFigures, recipe: Recipe) -> _Known:
    return _Known(
        figures=figures,
        runs=figures.runs or recipe.origin.runs,
        provenance=figures.provenance or recipe.origin.provenance,
    )


def _figures(group: Sequence[_Known], origin: Origin) -> PhaseFigures:
    provenance = min((known.provenance for known in group), key=RANK.__getitem__)
    best = [known for known in group if known.provenance == provenance]
    runs = sum(known.runs for known in best)
    peak_mib = round(_mean([(known.figures.peak_mib, known.runs) for known in best]), 1)
    cpu_s = round(_mean([(known.figures.cpu_s, known.runs) for known in best]), 3)
    high_mib = max(max(known.figures.high_mib, known.figures.peak_mib) for known in best)
    high_s = max(max(known.figures.high_s, known.figures.cpu_s) for known in best)
    return msgspec.structs.replace(
        best[0].figures,
        input_mib=round(_mean([(known.figures.input_mib, known.runs) for known in best]), 3),
        peak_mib=peak_mib,
        high_mib=high_mib if high_mib > peak_mib else 0.0,
        cpu_s=cpu_s,
        high_s=high_s if high_s > cpu_s else 0.0,
        course=course_together(known.figures.course for known in best),
        runs=runs if runs != origin.runs else 0,
        provenance=provenance if provenance != origin.provenance else None,
    )


def _mean(weighted: Sequence[tuple[float, int]]) -> float:
    """A recipe that says 0 runs counts as one."""
    total = sum(max(1, runs) for _, runs in weighted)
    return sum(value * max(1, runs) for value, runs in weighted) / total


def _settings(recipes: Sequence[Recipe]) -> tuple[Setting, ...]:
    """Where two recipes set one variable, the first recipe's value."""
    found: dict[str, Setting] = {}
    for recipe in recipes:
        for setting in recipe.environment:
            found.setdefault(setting.name, setting)
    return tuple(found.values())


def _hazards(recipes: Sequence[Recipe]) -> tuple[Hazard, ...]:
    return tuple(dict.fromkeys(hazard for recipe in recipes for hazard in recipe.hazards))


class Renewed(msgspec.Struct, frozen=True, kw_only=True):
    """The recipe as it is now, and what became of the old figures."""

    recipe: Recipe
    words: tuple[str, ...] = ()


def renew(old: Recipe, new: Recipe) -> Renewed:
    """``new`` is of builds that are not in ``old``.

    Raises RecipeError when it is of another project, or for other architectures or another processor: such
    figures belong in another file.
    """
    merge([_without_units(old), _without_units(new)])
    tools = _tools(old, new)
    if tools:
        recipe = msgspec.structs.replace(
            new,
            project=msgspec.structs.replace(new.project, title=new.project.title or old.project.title),
            environment=old.environment,
            hazards=old.hazards,
        )
        return Renewed(recipe=recipe, words=(f"its figures were of other tools, and are replaced: {'; '.join(tools)}",))
    kept, changed = _of_the_same_source(old, new)
    merged = merge([kept, new])
    words = f"{changed} of its units have another source or other options now: their figures are the new ones"
    return Renewed(
        recipe=msgspec.structs.replace(
            merged,
            project=msgspec.structs.replace(old.project, version=old.project.version or new.project.version),
            fingerprint=_fresh(merged.fingerprint, new.fingerprint),
        ),
        words=(words,) if changed else (),
    )


def _without_units(recipe: Recipe) -> Recipe:
    return msgspec.structs.replace(recipe, units=())


def _tools(old: Recipe, new: Recipe) -> list[str]:
    """Differences that make old figures useless. Sources and options are compared unit by unit."""
    found = [words for words in fingerprint_words(old.fingerprint, new.fingerprint) if words not in UNIT_WORDS]
    if old.project.version and new.project.version and old.project.version != new.project.version:
        found.insert(0, f"version {old.project.version}, then {new.project.version}")
    return found


def _fresh(then: Fingerprint, now: Fingerprint) -> Fingerprint:
    """The old fingerprint, completed from the new one."""
    return msgspec.structs.replace(
        then,
        nvcc=then.nvcc or now.nvcc,
        host_compiler=then.host_compiler or now.host_compiler,
        host_arch=then.host_arch or now.host_arch,
    )


def _of_the_same_source(old: Recipe, new: Recipe) -> tuple[Recipe, int]:
    """The old recipe without the figures of units that have changed, and how many these are."""
    names = unit_names([[(unit.place, unit.output, unit.target) for unit in recipe.units] for recipe in (old, new)])
    now = dict(zip(names[1], new.units, strict=True))
    units: list[RecipeUnit] = []
    changed = 0
    for name, unit in zip(names[0], old.units, strict=True):
        other = now.get(name)
        if other is None:
            units.append(unit)
        elif _other(unit.source_digest, other.source_digest) or _other(unit.options, other.options):
            changed += 1
            units.append(msgspec.structs.replace(other, phases=()))
        else:
            digest, options = unit.source_digest or other.source_digest, unit.options or other.options
            units.append(msgspec.structs.replace(unit, source_digest=digest, options=options))
    return msgspec.structs.replace(old, units=tuple(units)), changed


def _other(then: str, now: str) -> bool:
    return bool(then and now) and then != now
