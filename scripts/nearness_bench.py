"""How good estimates are of what was never seen: a project, an architecture, a version. For ``scripts/bench nearness``.

Reads the measured phases that recipes are made of (``recipes/data``) and, of a version before, ``tests/data``. Covers:
peaks, by priors alone and by a recipe of another architecture or version, through the recipe and the estimator that
ship; courses of the nearest phase; what is derived of a sample, with and without the front ends of the other units.
Does *not* cover: what follows for a build (``packing_bench``).
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec
from predict_bench import HEAD, ROOT, DataSet, Score, play, row
from shipped_recipes import NOT_BUILT, TE_100, as_kin, make, nearest_kin
from shipped_recipes import SHIPPED as RECIPES

from builddoctor.core.past import Course, PastUnit, UnitKey
from builddoctor.core.phase import Phase, PhaseKind, kind_words
from builddoctor.core.recipe import Fingerprint, Origin, PhaseFigures, Recipe, RecipeProject, RecipeUnit
from builddoctor.estimation.course import course_of_text, course_text
from builddoctor.estimation.features import Done
from builddoctor.estimation.priors import SHIPPED
from builddoctor.recipes.match import TOOLS, RecipePast, Wanted
from builddoctor.recipes.measured_phases import MeasuredPhase, recipe_of_rows
from builddoctor.scheduler.course_forecast import ahead, with_slack
from support.measured_rows import Rows, read_rows
from support.usual_courses import ByProject, measured_projects, usual_courses

FITTED_TO = ("transformer-engine", "attention-kernels")
BEYOND = 0.05
"""Of the peak: what is held beyond a course counts from here on. Sizes differ by less from build to build."""

COURSES_HEAD = [
    "| course taken from | phases | its peak, held all the time | by the course | time beyond the course |",
    "| --- | --- | --- | --- | --- |",
]

LEAST_UNITS, SAMPLES, PART = 5, 20, 0.25
"""CUDA units of a project of which samples are drawn, how many samples, and of how many of its units each is"""
LEAST_MIB = 100.0
BACK_ENDS = (PhaseKind.CICC, PhaseKind.PTXAS, PhaseKind.HOST)
SAMPLES_HEAD = [
    "| derived | peaks | factor off (rms) | below 0.8 of the peak | above 1.5 | times of units, factor off (rms) |",
    "| --- | --- | --- | --- | --- | --- |",
]


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One build of a project."""

    name: str
    project: RecipeProject
    fingerprint: Fingerprint
    phases: tuple[MeasuredPhase, ...]
    whole: bool = True
    """all of its units were built"""

    def only(self, arch: str) -> Measured:
        """Without the other architectures' phases."""
        kept = tuple(
            msgspec.structs.replace(phase, archs=(arch,) if phase.archs else ())
            for phase in self.phases
            if phase.arch in ("", arch)
        )
        fingerprint = msgspec.structs.replace(self.fingerprint, archs=(arch,))
        return msgspec.structs.replace(self, fingerprint=fingerprint, phases=kept)

    def of_units(self, places: set[str]) -> Measured:
        """These units alone."""
        kept = tuple(phase for phase in self.phases if phase.place in places)
        return msgspec.structs.replace(self, phases=kept)

    def recipe(self) -> Recipe:
        origin = Origin(provenance="measured")
        return recipe_of_rows(self.phases, project=self.project, fingerprint=self.fingerprint, origin=origin)

    def data_set(self) -> DataSet:
        made = self.fingerprint
        return DataSet(
            name=self.name,
            project=self.project.name,
            version=self.project.version,
            host_arch=made.host_arch,
            nvcc=made.nvcc,
            phases=tuple(_done(number, phase) for number, phase in enumerate(self.phases)),
        )

    def pasts(self, recipe: Recipe) -> dict[str, tuple[UnitKey, PastUnit | None]]:
        """By unit: what the recipe says of it."""
        made = self.fingerprint
        wanted = Wanted(
            project=self.project.name,
            version=self.project.version,
            archs=made.archs,
            nvcc=made.nvcc,
            host_compiler=made.host_compiler,
            host_arch=made.host_arch,
        )
        past, found = RecipePast(recipe, wanted), {}
        for phase in self.phases:
            key = UnitKey(
                project=self.project.name,
                place=phase.place,
                output=phase.output,
                options=phase.options,
                nvcc=made.nvcc,
                host_compiler=made.host_compiler,
                host_arch=made.host_arch,
                archs=phase.archs,
            )
            found[_unit(phase)] = key, past.find(key)
        return found


def nearness() -> list[str]:
    """Lines of a report."""
    folder = ROOT / "recipes" / "data"
    builds = [build for build in map(_read, sorted(folder.glob("*.csv"))) if build.project.name not in FITTED_TO]
    mamba = _read(ROOT / "tests" / "data" / "mamba_ssm-2.3.1-sm_90-x86_64.csv")
    # 2.8 is what kinds and distances were fitted to; nothing was to 2.18, of August 2026.
    te = make(next(each for each in RECIPES if each.name == TE_100), folder)
    versions = [
        (mamba.recipe(), _after(mamba, builds)),
        (te, _read(folder / "transformer_engine-2.18-sm_100-x86_64.csv")),
    ]
    return [
        "The projects whose recipes ship, but for TransformerEngine and the example: nothing was fitted to them.",
        "Nothing known; then phases of one architecture, by a recipe of the other (of TransformerEngine, too, those",
        "units that were measured for both); then a version, by a recipe of the one before. The distance of another",
        "architecture, 0.2 where it was 0.35 (99.1 % at 1.49), was chosen by these very rows.\n",
        *HEAD,
        *_peaks(builds, _for_both(folder), versions),
        "\nCourses: what is held, as the nearest phase held it, beside what was held (from 150 MiB and 0.8 s on, by",
        f"time and memory); and the time in which more was held than that by {BEYOND:.0%} of the peak or more.\n",
        *COURSES_HEAD,
        *_courses(builds, versions, folder),
        f"\nSamples: of projects that were measured whole, with at least {LEAST_UNITS} CUDA units, {SAMPLES} samples",
        "of a quarter of these; what is derived of the other units, by the rules of the recipes, beside what they",
        f"took: peaks of cicc, ptxas and host code from {LEAST_MIB:.0f} MiB on, and the time of a unit in all three.\n",
        *SAMPLES_HEAD,
        *_samples([*builds, versions[1][1]]),
    ]


def _peaks(
    builds: Sequence[Measured],
    for_both: tuple[Measured, Measured],
    versions: Sequence[tuple[Recipe, Measured]],
) -> Iterator[str]:
    cold: list[Score] = []
    others: list[Score] = []
    for build in builds:
        scores = play(build.data_set(), SHIPPED)
        cold += scores
        yield row(f"{build.name} for {', '.join(build.fingerprint.archs)}: nothing known", scores)
    yield row("**all of them: nothing known**", cold)
    pairs = [(build.only(then), build.only(now)) for build in builds for then, now in _pairs(build)]
    for then, now in (*pairs, for_both, for_both[::-1]):
        scores = play(now.data_set(), SHIPPED, now.pasts(then.recipe()))
        device = [score for score, phase in zip(scores, now.phases, strict=True) if phase.arch]
        others += device
        yield row(f"{now.name}: {now.fingerprint.archs[0]} by {then.fingerprint.archs[0]}", device)
    yield row("**all of them: the other architecture**", others)
    for before, after in versions:
        scores = play(after.data_set(), SHIPPED, after.pasts(before))
        yield row(f"{after.name} by {before.project.version}", scores)


def _courses(builds: Sequence[Measured], versions: Sequence[tuple[Recipe, Measured]], folder: Path) -> Iterator[str]:
    both = [(build.only(then), build.only(now)) for build in builds for then, now in _pairs(build)]
    archs = [(then, now) for pair in both for then, now in _alike(pair[0].recipe(), pair[1]) if now.arch]
    kin = [pair for build in builds for pair in _by_kin(build)]
    yield _course_row("the same phase, of the other architecture", archs)
    for before, after in versions:
        yield _course_row(f"the same phase, of {after.name} by {before.project.version}", list(_alike(before, after)))
    yield _course_row("the same phase of the unit's nearest kin", kin)
    for kind in (PhaseKind.PREPROCESS, PhaseKind.CUDAFE, PhaseKind.CICC, PhaseKind.PTXAS, PhaseKind.HOST):
        name = f"what is usual for {kind_words(kind)}, by all other projects"
        yield _course_row(name, list(_by_usual(builds, measured_projects(folder), kind)))


def _samples(builds: Sequence[Measured]) -> Iterator[str]:
    recipes = [build.recipe() for build in builds if build.whole]
    units = [[unit for unit in recipe.units if _peak(unit, PhaseKind.CICC)] for recipe in recipes]
    for name, with_front_ends in (("by the nearest kin", False), ("with the unit's own front end", True)):
        peaks: list[float] = []
        times: list[float] = []
        for each in units:
            if len(each) < LEAST_UNITS:
                continue
            for seed in range(SAMPLES):
                sample = random.Random(seed).sample(each, max(2, round(PART * len(each))))
                for unit in (unit for unit in each if unit not in sample):
                    told = as_kin(sample, unit.place, unit.target, _front_end(unit) if with_front_ends else None)
                    peaks += _off(told, unit)
                    times.append(math.log(_back_ends_s(told) / _back_ends_s(unit)))
        below, above = (sum(map(beyond, peaks)) / len(peaks) for beyond in (_far_below, _far_above))
        yield f"| {name} | {len(peaks)} | {_rms(peaks):.2f} | {below:.1%} | {above:.1%} | {_rms(times):.2f} |"


def _front_end(unit: RecipeUnit) -> RecipeUnit:
    """What would be known of it, had its ``cicc`` failed."""
    kept = tuple(phase for phase in unit.phases if not phase.arch and phase.kind not in BACK_ENDS)
    return msgspec.structs.replace(unit, phases=kept)


def _off(told: RecipeUnit, took: RecipeUnit) -> list[float]:
    """Logarithms, by kind, of what was told over what it took."""
    pairs = ((_peak(told, kind), _peak(took, kind)) for kind in BACK_ENDS)
    return [math.log(told_mib / took_mib) for told_mib, took_mib in pairs if told_mib and took_mib >= LEAST_MIB]


def _peak(unit: RecipeUnit, kind: PhaseKind) -> float:
    return max((phase.peak_mib for phase in unit.phases if phase.kind is kind), default=0.0)


def _back_ends_s(unit: RecipeUnit) -> float:
    return sum(phase.cpu_s for phase in unit.phases if phase.kind in BACK_ENDS)


def _rms(logarithms: Sequence[float]) -> float:
    return math.exp(math.sqrt(sum(each * each for each in logarithms) / len(logarithms)))


def _far_below(logarithm: float) -> bool:
    return logarithm < math.log(0.8)


def _far_above(logarithm: float) -> bool:
    return logarithm > math.log(1.5)


Pair = tuple[PhaseFigures, PhaseFigures]
"""then, now"""


def _alike(then: Recipe, now: Measured) -> Iterator[Pair]:
    units = {unit.place: unit.phases for unit in then.units}
    for unit in now.recipe().units:
        yield from _same_phases(units.get(unit.place, ()), unit.phases)


def _by_kin(build: Measured) -> Iterator[Pair]:
    units = build.recipe().units
    for unit in units:
        kin = nearest_kin([each for each in units if each.place != unit.place], unit.place)
        largest = max(kin, key=lambda each: max(phase.peak_mib for phase in each.phases), default=None)
        yield from _same_phases(largest.phases if largest is not None else (), unit.phases)


def _same_phases(then: Iterable[PhaseFigures], now: Iterable[PhaseFigures]) -> Iterator[Pair]:
    """Of each kind the largest, with their courses. An architecture stands for the other."""
    largest = {each.kind: each for each in sorted(then, key=lambda each: each.peak_mib) if each.course}
    ours = {each.kind: each for each in sorted(now, key=lambda each: each.peak_mib) if each.course}
    return ((largest[kind], phase) for kind, phase in ours.items() if kind in largest)


def _by_usual(builds: Sequence[Measured], projects: ByProject, kind: PhaseKind) -> Iterator[Pair]:
    for build in builds:
        course = course_text(usual_courses(projects, without=build.project.name)[kind])
        for phase in (each for unit in build.recipe().units for each in unit.phases):
            if phase.kind is kind and phase.course:
                yield msgspec.structs.replace(phase, course=course), phase


def _course_row(name: str, pairs: Sequence[Pair]) -> str:
    held = at_peak = by_its_course = beyond_s = all_s = 0.0
    for then, now in pairs:
        truth, wall_s = course_of_text(now.course), now.cpu_s
        course = with_slack(course_of_text(then.course), wall_s)
        said = ahead(course, now_mib=0.0, peak_mib=1.0, elapsed_s=0.0, wall_s=wall_s)
        told = tuple((until_s / wall_s, share) for until_s, share in said)
        held += now.peak_mib * wall_s * _area(truth)
        at_peak += now.peak_mib * wall_s
        by_its_course += now.peak_mib * wall_s * _area(told)
        beyond_s += wall_s * _beyond(truth, told)
        all_s += wall_s
    figures = (f"{at_peak / held:.2f}", f"{by_its_course / held:.2f}", f"{beyond_s / all_s:.1%}")
    return f"| {name} | {len(pairs)} | " + " | ".join(figures) + " |"


def _area(course: Course) -> float:
    """From the phase's start to its end."""
    since = area = 0.0
    for end, share in course:
        until = max(since, min(end, 1.0))
        area += (until - since) * share
        since = until
    return area


def _beyond(truth: Course, told: Course) -> float:
    """The share of the time in which more is held than was told."""
    times = sorted({0.0, *(until for until, _ in (*truth, *told) if until < 1.0), 1.0})
    return sum(until - since for since, until in pairwise(times) if _at(truth, until) > _at(told, until) + BEYOND)


def _at(course: Course, until: float) -> float:
    return next((share for end, share in course if end >= until), course[-1][1])


def _pairs(build: Measured) -> Iterator[tuple[str, str]]:
    archs = {phase.arch for phase in build.phases if phase.arch}
    if archs >= {"sm_90", "sm_100"}:
        yield from (("sm_90", "sm_100"), ("sm_100", "sm_90"))


def _after(before: Measured, builds: Sequence[Measured]) -> Measured:
    return next(each for each in builds if each.project.name == before.project.name).only(before.fingerprint.archs[0])


def _for_both(folder: Path) -> tuple[Measured, Measured]:
    """TransformerEngine's units that were measured for sm_90 and, in another build, for sm_100."""
    one, other = (
        _read(folder / f"transformer_engine-2.8-{arch}-x86_64.csv").only(arch) for arch in ("sm_90", "sm_100")
    )
    both = {phase.place for phase in one.phases if phase.arch} & {phase.place for phase in other.phases if phase.arch}
    return one.of_units(both), other.of_units(both)


def _read(path: Path) -> Measured:
    """The last build in the file."""
    rows = read_rows(path)
    name = rows.remark("project")
    last = {phase.place: phase.run for phase in sorted(rows.phases, key=lambda each: each.run)}
    kept = [each for each in rows.phases if each.run == last[each.place] and each.peak_mib > 0 and not each.after_all]
    return Measured(
        name=f"{name} {rows.remark('version')}",
        project=RecipeProject(name=name, version=rows.remark("version")),
        fingerprint=_fingerprint(rows),
        phases=tuple(kept),
        whole=not rows.remarks_of(NOT_BUILT),
    )


def _fingerprint(rows: Rows) -> Fingerprint:
    return Fingerprint(
        archs=tuple(rows.remark("archs").split()),
        nvcc=rows.remark("nvcc"),
        host_compiler=rows.remark("host_compiler"),
        host_arch=rows.remark("host_arch"),
    )


def _unit(phase: MeasuredPhase) -> str:
    return f"{phase.place} {phase.target}"


def _done(number: int, measured: MeasuredPhase) -> Done:
    phase = Phase(
        phase_id=number,
        unit_id=_unit(measured),
        kind=measured.kind,
        source=measured.place,
        arch=measured.arch,
        input_mib=measured.input_mib,
        tool=measured.tool or TOOLS.get(measured.kind, measured.kind.value),
    )
    return Done(phase, measured.peak_mib, measured.cpu_s)
