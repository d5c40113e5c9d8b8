"""A recipe cut to the architectures that are wanted. Pure.

A recipe of more architectures serves for fewer: what is compiled for the others is left out. One that lacks some is
taken as it is, and the difference said. What a unit is compiled for beyond the architectures that its build was for
(TransformerEngine's grouped GEMM: sm_90a, always) stays.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from builddoctor.model.phase import PhaseKind
from builddoctor.model.recipe import PhaseFigures, Recipe, RecipeUnit

DEVICE = (PhaseKind.CICC, PhaseKind.PTXAS)


def for_archs(recipe: Recipe, wanted: Sequence[str]) -> tuple[Recipe, tuple[str, ...], tuple[str, ...]]:
    """The recipe for these, how it differs, and notes. None wanted: the recipe as it is."""
    known = _known(recipe)
    if not wanted or set(wanted) == known:
        return recipe, (), ()
    missing = [arch for arch in wanted if arch not in known]
    if missing:
        others = ", ".join(sorted(known)) or "no architecture"
        return recipe, (f"it was made for {others}, not for {', '.join(missing)}",), ()
    always = _compiled(recipe) - known
    units = tuple(_cut(unit, frozenset(wanted) | always) for unit in recipe.units)
    left_out = ", ".join(sorted(known - set(wanted)))
    return msgspec.structs.replace(recipe, units=units), (), (f"what the recipe has of {left_out} is left out",)


def _known(recipe: Recipe) -> set[str]:
    """What its build was for; where it does not say so, all that something is compiled for."""
    return {arch for arch in recipe.fingerprint.archs if arch} or _compiled(recipe)


def _compiled(recipe: Recipe) -> set[str]:
    return {phase.arch for unit in recipe.units for phase in unit.phases if phase.kind in DEVICE and phase.arch}


def _cut(unit: RecipeUnit, wanted: frozenset[str]) -> RecipeUnit:
    """Without the others' device phases, and the preprocessing that comes before each of them."""
    has = {phase.arch for phase in unit.phases if phase.kind in DEVICE}
    if not has & wanted:
        # Kernels for one architecture alone, which is not wanted: what is left of it nobody has measured.
        return unit
    kept: list[PhaseFigures] = []
    for at, phase in enumerate(unit.phases):
        after = unit.phases[at + 1] if at + 1 < len(unit.phases) else None
        of = phase
        if phase.kind is PhaseKind.PREPROCESS and after is not None and after.kind is PhaseKind.CICC:
            of = after
        if of.kind not in DEVICE or of.arch in wanted or not of.arch:
            kept.append(phase)
    archs = tuple(arch for arch in unit.archs if arch in wanted)
    return msgspec.structs.replace(unit, phases=tuple(kept), archs=archs)
