"""A recipe for one build: how far its figures are from it, the nearest of several, and its units as a past.

Covers: the distance by project, version, architectures, toolchain, host architecture, page size and provenance, in
words too; a recipe's units as the estimator uses the history's: finding the unit, several runs as several figures,
architectures that the recipe does not have, how much less figures are trusted.
Does *not* cover: files (``recipes.shelf``), or whether the history knows better (``runtime.recipe_use``).

A distance is a residual (natural logarithm), as in ``estimation.past``, whose constants count here too. A mismatch
lowers trust; it refuses nothing. These have no measurement behind them and are assumptions: versions of a project,
pages, a project of another name, derived figures. That of emulated figures is the distance of two host architectures,
which is measured with the same emulator.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

import msgspec

from builddoctor.core.past import PastPhase, PastUnit, Seen, UnitKey
from builddoctor.core.phase import PhaseKind
from builddoctor.core.recipe import PhaseFigures, Provenance, Recipe, RecipeUnit
from builddoctor.estimation.course import course_of_text, of_peak
from builddoctor.estimation.past import (
    OTHER_ARCH,
    OTHER_ARCH_COUNT,
    OTHER_HOST_ARCH,
    OTHER_HOST_COMPILER,
    OTHER_MAJOR,
    OTHER_MINOR,
    unit_distance,
)
from builddoctor.projects.catalogue import find_known
from builddoctor.recipes.shelf import Shelved

OTHER_PATCH_VERSION = 0.05
OTHER_MINOR_VERSION = 0.15
OTHER_MAJOR_VERSION = 0.3
"""Of the project itself. Assumed: one version of one project is all that was measured."""

OTHER_PAGES = OTHER_HOST_ARCH
"""Assumed: no figure was taken with pages of another size."""

OTHER_PROJECT = 0.3
"""A recipe that was asked for by name, and is of a project that calls itself something else: a fork, say. Assumed."""

PARTLY_USED_PAGES = 1024
"""Of one compiler process: ends of mappings, holes of its heap. Each costs up to the difference in size. Assumed: no
compiler was measured with pages of another size than 4 KiB (64 KiB ones are the default of a GB200's kernels)."""

DERIVED = 0.35
"""Figures that a recipe works out, mostly from a unit's nearest kin. Assumed: where such units were built afterwards
they took up to a third more, most of them less (docs/results/projects.md)."""

OF_PROVENANCE: dict[Provenance, float] = {"measured": 0.0, "emulated": OTHER_HOST_ARCH, "derived": DERIVED}

MOVED = 0.1
"""A source of the same name in another folder. Assumed."""

UNKNOWN_OPTIONS = 0.1
"""The recipe does not say with which options it was measured; most builds take the project's own. Assumed."""

TOOLS = {PhaseKind.PREPROCESS: "cc1plus", PhaseKind.HOST: "cc1plus", PhaseKind.LINK: "collect2"}
"""The program of a phase whose recipe names none, where it differs from the phase's own name."""

_Name = tuple[PhaseKind, str, str]
"""kind, architecture, tool"""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """One build, as far as it is known before it starts; empty for what is not known."""

    project: str = ""
    version: str = ""
    archs: tuple[str, ...] = ()
    """such as ``sm_90a``"""
    nvcc: str = ""
    host_compiler: str = ""
    host_arch: str = ""
    page_kib: int = 4


class Distance(msgspec.Struct, frozen=True, kw_only=True):
    """How far a recipe is from a build."""

    value: float
    """residual in natural logarithms; 0 for the same"""
    words: tuple[str, ...] = ()
    """what differs, the weightiest first"""

    @property
    def trust(self) -> str:
        """What that means for the figures; empty for the same."""
        if not self.words:
            return ""
        if self.value < OTHER_MAJOR:
            return "trusted a little less"
        return "trusted less" if self.value < 2 * OTHER_MAJOR else "a rough guide"


def distance(recipe: Recipe, wanted: Wanted) -> Distance:
    """How far this recipe is from this build, whatever its project is."""
    then = recipe.fingerprint
    parts = [
        _of_project(recipe, wanted),
        _of_version(recipe, wanted),
        _of_archs(then.archs, wanted.archs),
        _of_pages(then.page_kib, wanted.page_kib),
        _of_provenance(recipe),
    ]
    if wanted.nvcc and not agree(then.nvcc, wanted.nvcc):
        same_release = then.nvcc.split(".")[0] == wanted.nvcc.split(".")[0]
        made = f"made with nvcc {then.nvcc}" if then.nvcc else "of an unknown nvcc"
        parts.append((OTHER_MINOR if same_release else OTHER_MAJOR, f"{made}, this build has {wanted.nvcc}"))
    if wanted.host_compiler and not agree(then.host_compiler, wanted.host_compiler):
        made = f"with gcc {then.host_compiler}" if then.host_compiler else "of an unknown gcc"
        parts.append((OTHER_HOST_COMPILER, f"{made}, this build has {wanted.host_compiler}"))
    if wanted.host_arch and then.host_arch != wanted.host_arch:
        made = f"for {then.host_arch}" if then.host_arch else "for an unknown processor"
        parts.append((OTHER_HOST_ARCH, f"{made}, this machine is {wanted.host_arch}"))
    differing = sorted((part for part in parts if part is not None), key=lambda part: -part[0])
    return Distance(value=math.fsum(value for value, _ in differing), words=tuple(text for _, text in differing))


def nearest(shelf: Iterable[Shelved], wanted: Wanted) -> tuple[Shelved, Distance] | None:
    """The recipe of the same project with the smallest distance, the first of equals; None where there is none."""
    names = names_of(wanted.project)
    found: tuple[Shelved, Distance] | None = None
    for each in shelf:
        if each.recipe is None or squeezed(each.recipe.project.name) not in names:
            continue
        here = distance(each.recipe, wanted)
        if found is None or here.value < found[1].value:
            found = each, here
    return found


def page_allowance_mib(then_kib: int, now_kib: int) -> float:
    """Memory added to every phase where pages are larger than those it was measured with."""
    return PARTLY_USED_PAGES * max(0, now_kib - then_kib) / 1024


def names_of(project: str) -> frozenset[str]:
    """All names of this project, squeezed: its own, and those that ``projects.catalogue`` knows."""
    known = find_known(project) if project else None
    own = {squeezed(project)} - {""}
    return frozenset(own | ({squeezed(each) for each in (known.name, known.title, *known.aliases)} if known else set()))


def squeezed(name: str) -> str:
    """``Flash-Attn`` and ``flash_attn`` alike."""
    return re.sub(r"[-_.\s]+", "", name).lower()


def _of_project(recipe: Recipe, wanted: Wanted) -> tuple[float, str] | None:
    if not wanted.project or squeezed(recipe.project.name) in names_of(wanted.project):
        return None
    return OTHER_PROJECT, f"of {recipe.project.name}, this is {wanted.project}"


def version_distance(then: str, now: str) -> float:
    """Between two versions of one project; 0 for the same, or where one says no more than the other."""
    ours, theirs = _numbers(now), _numbers(then)
    if not ours or not theirs:
        return OTHER_MINOR_VERSION
    length = max(len(ours), len(theirs), 2)
    here, there = (each + (0,) * (length - len(each)) for each in (ours, theirs))
    if here == there:
        return 0.0
    if here[0] != there[0]:
        return OTHER_MAJOR_VERSION
    return OTHER_MINOR_VERSION if here[1] != there[1] else OTHER_PATCH_VERSION


def agree(one: str, other: str) -> bool:
    """Two versions of a tool are the same as far as both say: Debian's gcc calls itself 12, and is 12.2.0."""
    ours, theirs = one.split("."), other.split(".")
    length = min(len(ours), len(theirs))
    return one == other or (bool(one and other) and ours[:length] == theirs[:length])


def _numbers(version: str) -> tuple[int, ...]:
    """``2.8.0+cu13`` → 2, 8, 0."""
    match = re.match(r"v?(\d{1,9}(?:\.\d{1,9})*)", version)
    return tuple(map(int, match[1].split("."))) if match else ()


def _of_version(recipe: Recipe, wanted: Wanted) -> tuple[float, str] | None:
    then, now = recipe.project.version, wanted.version
    if not then and not now:
        return None
    value = version_distance(then, now)
    if not value:
        return None
    made = f"{recipe.project.name} {then}" if then else "of an unknown version"
    return value, f"{made}, {f'this is {now}' if now else 'this build does not say its version'}"


def _of_archs(then: Sequence[str], now: Sequence[str]) -> tuple[float, str] | None:
    ours, theirs = set(now), set(then)
    if not ours or not theirs or ours == theirs:
        # Not known, or host code alone.
        return None
    # Its own figures of each architecture; the host's phases of a unit grow with their number.
    value = OTHER_ARCH_COUNT * (1 + abs(math.log(len(ours) / len(theirs))))
    if not ours <= theirs:
        value += OTHER_ARCH
    return value, f"for {', '.join(sorted(theirs))}, this build is for {', '.join(sorted(ours))}"


def _of_pages(then_kib: int, now_kib: int) -> tuple[float, str] | None:
    if then_kib == now_kib:
        return None
    return OTHER_PAGES, f"pages of {then_kib} KiB, here {now_kib}"


def _of_provenance(recipe: Recipe) -> tuple[float, str] | None:
    provenance = recipe.origin.provenance
    value = OF_PROVENANCE[provenance]
    host = f" {recipe.fingerprint.host_arch}" if recipe.fingerprint.host_arch else ""
    return (value, f"{provenance}{host} figures") if value else None


class RecipePast:
    """The past of one build's units, from one recipe."""

    def __init__(self, recipe: Recipe, wanted: Wanted) -> None:
        self.recipe = recipe
        self._own = names_of(recipe.project.name)
        self._asked = names_of(wanted.project)
        self._wanted_version = wanted.version
        self._distance = 0.0 if recipe.fingerprint.page_kib == wanted.page_kib else OTHER_PAGES
        self._allowance_mib = page_allowance_mib(recipe.fingerprint.page_kib, wanted.page_kib)
        self._by_place: dict[str, list[RecipeUnit]] = {}
        self._by_name: dict[str, list[RecipeUnit]] = {}
        for unit in recipe.units:
            self._by_place.setdefault(unit.place, []).append(unit)
            self._by_name.setdefault(_name(unit.place), []).append(unit)

    def find(self, key: UnitKey) -> PastUnit | None:
        """The unit's past by its place, else by the name of its file where only one has it; None for none."""
        project_distance = self._of_project(key.project)
        if project_distance is None:
            return None
        moved = 0.0
        units = self._by_place.get(key.place, [])
        if not units:
            units = self._elsewhere(key)
            moved = 0.0 if all(_ends_with(key.place, unit.place) for unit in units) else MOVED
        if not units:
            return None
        unit = min(units, key=lambda each: unit_distance(key, self._key(each, key)))
        distance = self._distance + project_distance + moved + (0.0 if unit.options else UNKNOWN_OPTIONS)
        return PastUnit(key=self._key(unit, key), phases=self._phases(unit, key, distance))

    def _of_project(self, name: str) -> float | None:
        """How far the recipe's project is from a unit's; None for one that the recipe has nothing to do with.

        It is the unit's that counts. `ninja -C` builds another project than that of the folder it is called in, whose
        version says nothing of it.
        """
        unit = squeezed(name)
        if unit not in self._own | self._asked:
            return None
        then = self.recipe.project.version
        now = self._wanted_version if not self._asked or unit in self._asked else ""
        distance = version_distance(then, now) if then or now else 0.0
        return distance if unit in self._own else OTHER_PROJECT + distance

    def _elsewhere(self, key: UnitKey) -> list[RecipeUnit]:
        """Units of one other place whose file has the same name, and makes one of the same name."""
        if key.place.startswith("link "):
            return []
        named = [
            unit
            for unit in self._by_name.get(_name(key.place), [])
            if not unit.after_all and (not unit.output or not key.output or unit.output == key.output)
        ]
        below = [unit for unit in named if _ends_with(key.place, unit.place)]
        found = below or named
        return found if len({unit.place for unit in found}) == 1 else []

    def _key(self, unit: RecipeUnit, now: UnitKey) -> UnitKey:
        """What the recipe's figures hold for; what it does not say of a unit is taken as it is now."""
        made = self.recipe.fingerprint
        return UnitKey(
            project=now.project,
            place=now.place,
            output=unit.output or now.output,
            options=unit.options or now.options,
            nvcc=now.nvcc if not now.nvcc or agree(now.nvcc, made.nvcc) else made.nvcc,
            host_compiler=now.host_compiler if agree(now.host_compiler, made.host_compiler) else made.host_compiler,
            host_arch=made.host_arch,
            archs=unit.archs or now.archs,
        )

    def _phases(self, unit: RecipeUnit, key: UnitKey, distance: float) -> tuple[PastPhase, ...]:
        together: dict[_Name, list[PhaseFigures]] = {}
        for each in unit.phases:
            tool = each.tool or TOOLS.get(each.kind, each.kind.value)
            together.setdefault((each.kind, each.arch.replace("compute_", "sm_"), tool), []).append(each)
        found = [self._past(name, figures, distance) for name, figures in together.items()]
        return tuple(_for_archs(found, key.archs))

    def _past(self, name: _Name, figures: Sequence[PhaseFigures], distance: float) -> PastPhase:
        origin = self.recipe.origin
        seen: list[Seen] = []
        for each in figures:
            peak_mib = each.peak_mib + self._allowance_mib
            course = of_peak(course_of_text(each.course), peak_mib)
            one = Seen(input_mib=each.input_mib, peak_mib=peak_mib, wall_s=each.cpu_s, course=course)
            # A median of several runs is no single figure.
            seen += [one] * (2 if (each.runs or origin.runs) > 1 else 1)
        return PastPhase(
            kind=name[0],
            arch=name[1],
            tool=name[2],
            builds=max(each.runs or origin.runs for each in figures),
            seen=tuple(seen),
            origin="recipe",
            distance=distance + max(OF_PROVENANCE[each.provenance or origin.provenance] for each in figures),
            spread=max(_spread(each) for each in figures),
        )


def _spread(figures: PhaseFigures) -> float:
    """From the median to the largest of all runs."""
    return math.log(figures.high_mib / figures.peak_mib) if figures.high_mib > figures.peak_mib > 0 else 0.0


def _for_archs(phases: Sequence[PastPhase], archs: Sequence[str]) -> list[PastPhase]:
    """Phases of these architectures only; for one that is missing those of the most demanding there is, trusted less.

    What is left in for another architecture would be waited for, though it never comes.
    """
    if not archs:
        return list(phases)
    kept = [each for each in phases if not each.arch or each.arch in archs]
    largest = max((each for each in phases if each.kind is PhaseKind.CICC), key=_peak_mib, default=None)
    there = {each.arch for each in kept if each.kind is PhaseKind.CICC}
    if largest is None or not largest.arch:
        return kept
    for arch in archs:
        if arch not in there:
            kept += [
                msgspec.structs.replace(each, arch=arch, distance=each.distance + OTHER_ARCH)
                for each in phases
                if each.arch == largest.arch
            ]
    return kept


def _peak_mib(phase: PastPhase) -> float:
    return max((each.peak_mib for each in phase.seen), default=0.0)


def _name(place: str) -> str:
    return place.rpartition("/")[2]


def _ends_with(one: str, other: str) -> bool:
    """One of them is the other below a further folder."""
    return f"/{one}".endswith(f"/{other}") or f"/{other}".endswith(f"/{one}")
