"""Measured phases, and the recipe that they make: medians, highs, how often.

Covers: the row; which phases of several builds are the same. A unit is preprocessed several times, and with
``--threads`` its phases come in another order each time: phases of the same kind, architecture and tool are told apart
by the size of their input, and then by their order.
Does *not* cover: where rows come from (``recipes.from_trace``), or recipes that are there already (``recipes.merge``).
"""

from __future__ import annotations

import hashlib
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

from builddoctor.core.errors import RecipeError
from builddoctor.core.phase import PhaseKind
from builddoctor.core.recipe import (
    RECIPE_SCHEMA,
    Fingerprint,
    Hazard,
    Origin,
    PhaseFigures,
    Recipe,
    RecipeProject,
    RecipeUnit,
    Setting,
)
from builddoctor.estimation.course import course_of_text, course_text, together

UnitName = tuple[str, str, str]
"""place, output, and the target where place and output are not enough"""

PARTIAL = "; partial: some units are not in it"


class MeasuredPhase(msgspec.Struct, frozen=True, kw_only=True):
    """One phase of a unit, as one build ran it to its end."""

    place: str
    output: str = ""
    target: str = ""
    options: str = ""
    source_digest: str = ""
    archs: tuple[str, ...] = ()
    """of the unit"""
    after_all: bool = False
    """a link"""
    kind: PhaseKind
    tool: str = ""
    arch: str = ""
    input_mib: float = 0.0
    peak_mib: float
    cpu_s: float
    course: str = ""
    """as ``core.recipe`` has it"""
    run: int = 1
    """which build, from 1"""


Alike = TypeVar("Alike", MeasuredPhase, PhaseFigures)


def recipe_of_rows(
    phases: Iterable[MeasuredPhase],
    *,
    project: RecipeProject,
    origin: Origin,
    fingerprint: Fingerprint | None = None,
    environment: tuple[Setting, ...] = (),
    hazards: tuple[Hazard, ...] = (),
) -> Recipe:
    """``origin.runs`` is counted here; so are the fingerprint's digests, and its archs where it has none.

    Units and phases stay in the order in which they are met first. Raises RecipeError for no phases at all.
    """
    rows = list(phases)
    if not rows:
        raise RecipeError("there is no phase to make a recipe of", hint="it takes a build that ran to its end")
    builds = len({row.run for row in rows})
    units = tuple(_unit(name, of_unit, builds) for name, of_unit in _by_unit(rows))
    known = fingerprint or Fingerprint()
    return Recipe(
        schema=RECIPE_SCHEMA,
        project=project,
        fingerprint=with_digests(known, units),
        origin=msgspec.structs.replace(origin, runs=builds),
        environment=environment,
        hazards=hazards,
        units=units,
    )


def with_digests(fingerprint: Fingerprint, units: Sequence[RecipeUnit]) -> Fingerprint:
    """The fingerprint with the digests of these units together; with their archs where it has none."""
    archs = fingerprint.archs or tuple(sorted({arch for unit in units for arch in unit.archs}))
    return msgspec.structs.replace(
        fingerprint,
        archs=archs,
        options=_together((unit.place, unit.output, unit.options) for unit in units if unit.options)
        or fingerprint.options,
        source=_together((unit.place, unit.source_digest) for unit in units if unit.source_digest)
        or fingerprint.source,
    )


def _together(parts: Iterable[tuple[str, ...]]) -> str:
    lines = sorted({"\t".join(part) for part in parts})
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16] if lines else ""


def unit_names(groups: Sequence[Sequence[tuple[str, str, str]]]) -> list[list[UnitName]]:
    """Names by which units are found again in several builds or recipes.

    ``groups``: a list of (place, output, target) for each. The target counts only where one list has several units
    of the same place and output: it is not always known.
    """
    doubtful: set[tuple[str, str]] = set()
    for group in groups:
        counts = Counter((place, output) for place, output, _ in set(group))
        doubtful.update(name for name, count in counts.items() if count > 1)
    return [
        [(place, output, target if (place, output) in doubtful else "") for place, output, target in group]
        for group in groups
    ]


def same_phases(runs: Sequence[Sequence[Alike]]) -> list[list[tuple[int, Alike]]]:
    """The phases of one unit in several builds or recipes: the same ones together, in the order of the fullest.

    Each with its index into ``runs``.
    """
    fullest = max(range(len(runs)), key=lambda index: len(runs[index]))
    found = [[(fullest, phase)] for phase in runs[fullest]]
    for run, phases in enumerate(runs):
        if run == fullest:
            continue
        place_of = _pairs([group[0][1] for group in found], phases)
        at, more = 0, []
        for index, phase in enumerate(phases):
            place = place_of.get(index)
            if place is None:
                more.append((at, phase))
            else:
                found[place].append((run, phase))
                at = place + 1
        # A phase that the fullest run lacks follows the phase that it followed in its own run.
        for place, phase in sorted(more, key=lambda each: each[0])[::-1]:
            found.insert(place, [(run, phase)])
    return [sorted(group, key=lambda each: each[0]) for group in found]


def _pairs(known: Sequence[Alike], phases: Sequence[Alike]) -> dict[int, int]:
    """Which phases are the same ones: index into ``phases`` → index into ``known``. Every phase once."""
    ours, theirs = _by_likeness(known), _by_likeness(phases)
    found: dict[int, int] = {}
    for same, own in theirs.items():
        there = ours.get(same, [])
        if len(there) == len(own):
            found.update(zip(own, there, strict=True))
            continue
        for index in own:
            if there:
                nearest = min(there, key=lambda i: abs(known[i].input_mib - phases[index].input_mib))
                there.remove(nearest)
                found[index] = nearest
    return found


def _by_likeness(phases: Sequence[Alike]) -> dict[tuple[str, str, str], list[int]]:
    """Indices by what tells phases apart for certain, the smallest input first."""
    found: dict[tuple[str, str, str], list[int]] = {}
    for index in sorted(range(len(phases)), key=lambda i: (phases[i].input_mib, i)):
        phase = phases[index]
        found.setdefault((phase.kind.value, phase.arch, phase.tool), []).append(index)
    return found


def _by_unit(rows: Sequence[MeasuredPhase]) -> list[tuple[UnitName, list[list[MeasuredPhase]]]]:
    """Units in the order in which they are met first, each with its phases of every run."""
    runs = sorted({row.run for row in rows})
    by_run = [[row for row in rows if row.run == run] for run in runs]
    names = unit_names([[(row.place, row.output, row.target) for row in of_run] for of_run in by_run])
    units: dict[UnitName, dict[int, list[MeasuredPhase]]] = {}
    for run, of_run, named in zip(runs, by_run, names, strict=True):
        for row, name in zip(of_run, named, strict=True):
            units.setdefault(name, {}).setdefault(run, []).append(row)
    return [(name, list(of_unit.values())) for name, of_unit in units.items()]


def _unit(name: UnitName, runs: Sequence[Sequence[MeasuredPhase]], builds: int) -> RecipeUnit:
    # Options, digest and architectures are those of the last build.
    last = runs[-1][-1]
    target = next((phases[-1].target for phases in reversed(runs) if phases[-1].target), "")
    return RecipeUnit(
        place=name[0],
        output=name[1],
        target=target,
        options=last.options,
        source_digest=last.source_digest,
        archs=last.archs,
        after_all=last.after_all,
        phases=tuple(_figures([phase for _, phase in group], builds) for group in same_phases(runs)),
    )


def _figures(group: Sequence[MeasuredPhase], builds: int) -> PhaseFigures:
    first = group[0]
    peak_mib = round(statistics.median(phase.peak_mib for phase in group), 1)
    cpu_s = round(statistics.median(phase.cpu_s for phase in group), 3)
    high_mib = round(max(phase.peak_mib for phase in group), 1)
    high_s = round(max(phase.cpu_s for phase in group), 3)
    return PhaseFigures(
        kind=first.kind,
        tool=first.tool,
        arch=first.arch,
        input_mib=round(statistics.median(phase.input_mib for phase in group), 3),
        peak_mib=peak_mib,
        high_mib=high_mib if high_mib > peak_mib else 0.0,
        cpu_s=cpu_s,
        high_s=high_s if high_s > cpu_s else 0.0,
        course=course_together(phase.course for phase in group),
        runs=len(group) if len(group) != builds else 0,
    )


def course_together(courses: Iterable[str]) -> str:
    """The most that any of them held at each moment, in shares of its own peak."""
    return course_text(together([course_of_text(course) for course in courses if course]))


def how_words(builds: int, *, complete: bool) -> str:
    """``origin.how`` of a recipe from traces."""
    return ("the trace of one build" if builds == 1 else f"the traces of {builds} builds") + (
        "" if complete else PARTIAL
    )


def word(text: str) -> str:
    """A name as a recipe may hold it: every other character becomes a dash."""
    return re.sub(r"[^A-Za-z0-9_.+-]+", "-", text).lstrip("_.+-")[:100].rstrip("-")
