"""What is known of a unit when it begins: the user's history, a recipe, and which of them is nearer, phase by phase.

Covers: the order of evidence. A phase that the history has of exactly this unit comes first; of others, the one that
lies nearer to this build; of two as near, the history's, which was measured here. What the build takes is held against
the recipe.
Does *not* cover: how near each is (``policy.past``, ``recipes.recall``), or what is made of it (``policy.estimator``).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from builddoctor.model.past import PastPhase, PastUnit, UnitKey
from builddoctor.model.phase import Phase
from builddoctor.model.recipe import RecipeUnit
from builddoctor.policy.past import unit_distance
from builddoctor.recipes.recall import RecipePast
from builddoctor.supervise.beyond_recipe import BeyondRecipe
from builddoctor.supervise.recipe_choice import ChosenRecipe


class Recalling:
    """One recipe in one build."""

    def __init__(self, chosen: ChosenRecipe) -> None:
        self.chosen = chosen
        self.beyond = BeyondRecipe(chosen.recipe)
        self._recipe = RecipePast(chosen.recipe, chosen.wanted)

    @property
    def works(self) -> dict[tuple[str, str], float]:
        """Seconds of all phases of each unit, by place and output; links are no units that anybody counts."""
        units = (unit for unit in self.chosen.recipe.units if not unit.after_all)
        made_for = self.chosen.recipe.fingerprint.archs
        return {(unit.place, unit.output): _work_s(unit, self.chosen.wanted.archs, made_for) for unit in units}

    def unit_began(self, unit_id: str, key: UnitKey, history: PastUnit | None) -> PastUnit | None:
        """The unit's past, of whatever origin."""
        known = self._recipe.find(key)
        if known is not None:
            self.beyond.unit_began(unit_id, key, known)
        return joined(key, history, known)

    def phase_ended(self, phase: Phase, peak_mib: float) -> None:
        """A phase of a unit that has a name did all its work."""
        self.beyond.phase_ended(phase, peak_mib)

    def unit_ended(self, unit_id: str) -> None:
        """Nothing more comes of it."""
        self.beyond.unit_ended(unit_id)

    def words(self, trace: Path) -> list[str]:
        """Where the build took more than the recipe says: a line about it, and what to do."""
        return self.beyond.words(self.chosen.name, trace, self.chosen.new_file)


def joined(key: UnitKey, history: PastUnit | None, recipe: PastUnit | None) -> PastUnit | None:
    """One past of the unit that is ``key`` now. A build that failed early has left the history with half of it."""
    if recipe is None or not recipe.phases:
        return history
    if history is None or not history.phases:
        return recipe
    best: dict[tuple[str, str, str], PastPhase] = {}
    for past in (history, recipe):
        for phase in past.phases:
            name = (phase.kind.value, phase.arch, phase.tool)
            far = phase.distance + unit_distance(key, past.key, phase.kind)
            if name not in best or far < best[name].distance:
                best[name] = msgspec.structs.replace(phase, distance=far)
    here = {kind for kind, arch, _ in best if arch in key.archs}
    # What is left in for an architecture that the build is not for would be waited for, though it never comes.
    kept = [phase for (kind, arch, _), phase in best.items() if not arch or arch in key.archs or kind not in here]
    return PastUnit(key=key, phases=tuple(kept))


def _work_s(unit: RecipeUnit, archs: Sequence[str], made_for: Sequence[str]) -> float:
    """For these architectures, and those that a source is compiled for whatever is asked. One that the recipe was not
    ``made_for`` takes as long as those that it was."""
    by_arch: dict[str, float] = {}
    for each in unit.phases:
        arch = each.arch.replace("compute_", "sm_")
        by_arch[arch] = by_arch.get(arch, 0.0) + each.cpu_s
    host_s = by_arch.pop("", 0.0)
    if not by_arch or not archs:
        return host_s + sum(by_arch.values())
    kept_s = sum(work_s for arch, work_s in by_arch.items() if arch in archs or arch not in made_for)
    missing = [arch for arch in archs if arch not in made_for]
    return host_s + kept_s + len(missing) * sum(by_arch.values()) / len(by_arch)
