"""A recipe's units as a past that the estimator can use, as it uses the history's.

Covers: finding the unit; several runs as several figures; architectures that the recipe does not have; how much less
figures are trusted that were emulated or derived, are of another version, or hold for pages of another size.
Does *not* cover: other options, another toolchain (``policy.past.unit_distance`` sees those in the keys), or whether
the history knows better (``supervise.recalling``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from builddoctor.model.past import PastPhase, PastUnit, Seen, UnitKey
from builddoctor.model.phase import PhaseKind
from builddoctor.model.recipe import PhaseFigures, Recipe, RecipeUnit
from builddoctor.policy.past import OTHER_ARCH, unit_distance
from builddoctor.recipes.matching import (
    OF_PROVENANCE,
    OTHER_PAGES,
    OTHER_PROJECT,
    Wanted,
    agree,
    names_of,
    page_allowance_mib,
    squeezed,
    version_distance,
)

MOVED = 0.1
"""A source of the same name in another folder. Assumed."""

UNKNOWN_OPTIONS = 0.1
"""The recipe does not say with which options it was measured; most builds take the project's own. Assumed."""

TOOLS = {PhaseKind.PREPROCESS: "cc1plus", PhaseKind.HOST: "cc1plus", PhaseKind.LINK: "collect2"}
"""Which program a phase is where the recipe does not say so, and it is not called as the phase is."""

_Name = tuple[PhaseKind, str, str]
"""kind, architecture, tool"""


class RecipePast:
    """One recipe, asked for unit after unit of one build."""

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
        """What the recipe holds for; what it does not say of a unit is as it is now."""
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
            one = Seen(input_mib=each.input_mib, peak_mib=each.peak_mib + self._allowance_mib, wall_s=each.cpu_s)
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
