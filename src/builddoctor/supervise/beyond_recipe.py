"""Units that took more than their recipe says: counted while the build runs, said at its end.

Covers: which phases are beyond what the recipe allows, one line about them, and the command that makes a new recipe.
Does *not* cover: learning it for the next build here: the history does that (``supervise.remembering``).
"""

from __future__ import annotations

import math
from pathlib import Path

import msgspec

from builddoctor.model.past import PastUnit, UnitKey
from builddoctor.model.phase import Phase
from builddoctor.model.recipe import Recipe
from builddoctor.policy.estimator import EXTRA_MIB
from builddoctor.policy.past import recall
from builddoctor.units import format_mib, one_line, printable, shell_word


class Beyond(msgspec.Struct, frozen=True, kw_only=True):
    """One phase that took more."""

    place: str
    tool: str
    peak_mib: float
    recipe_mib: float

    @property
    def share(self) -> float:
        return self.peak_mib / max(self.recipe_mib, 1.0)


class BeyondRecipe:
    """One build's units against one recipe."""

    def __init__(self, recipe: Recipe) -> None:
        self._wanted = sum(not unit.after_all for unit in recipe.units)
        self._open: dict[str, tuple[UnitKey, PastUnit]] = {}
        self._seen: set[tuple[str, str]] = set()
        self._over: dict[tuple[str, str], Beyond] = {}

    @property
    def over(self) -> list[Beyond]:
        """The worst phase of each unit that went beyond, the worst unit first."""
        return sorted(self._over.values(), key=lambda each: -each.share)

    @property
    def whole(self) -> bool:
        """Every unit of the recipe was built: a recipe made of this build lacks none of them."""
        return len(self._seen) >= self._wanted

    def unit_began(self, unit_id: str, key: UnitKey, known: PastUnit) -> None:
        """A unit that the recipe knows."""
        self._open[unit_id] = key, known
        if not key.place.startswith("link "):
            self._seen.add((key.place, key.output))

    def phase_ended(self, phase: Phase, peak_mib: float) -> None:
        """It did all its work. More than the recipe's largest, its distance from this build allowed for, is beyond."""
        key, known = self._open.get(phase.unit_id, (None, None))
        then = recall(phase, key, known) if known is not None else None
        if key is None or then is None:
            return
        largest_mib = then.peak_mib * math.exp(then.spread)
        if peak_mib <= largest_mib * math.exp(then.distance) + EXTRA_MIB:
            return
        found = Beyond(place=key.place, tool=phase.tool, peak_mib=peak_mib, recipe_mib=largest_mib)
        name = (key.place, key.output)
        if name not in self._over or found.share > self._over[name].share:
            self._over[name] = found

    def unit_ended(self, unit_id: str) -> None:
        self._open.pop(unit_id, None)

    def words(self, name: str, trace: Path, new: Path) -> list[str]:
        """For a person, at the end of the build; nothing where nothing went beyond. ``new``: file for a new recipe."""
        if not self._over:
            return []
        over = self.over
        count = f"{len(over)} unit{'s' * (len(over) != 1)} took more than the recipe {name} says"
        worst = over[0]
        most = f"{worst.place}: {worst.tool} {format_mib(worst.peak_mib)}, not {format_mib(worst.recipe_mib)}"
        said = one_line(printable(f"{count} (most of all {most}); the history has learned it"))
        if not self.whole:
            return [said]
        command = f"builddoctor recipe from-trace {shell_word(str(trace))} -o {shell_word(str(new))}"
        return [f"{said}; for other machines: {command}"]
