"""Short ways to make recipes."""

from __future__ import annotations

from typing import Any

from builddoctor.core.phase import PhaseKind
from builddoctor.core.recipe import Fingerprint, Origin, PhaseFigures, Recipe, RecipeProject, RecipeUnit
from builddoctor.recipes.match import Wanted

MADE = Fingerprint(archs=("sm_90",), nvcc="13.0.88", host_compiler="12.2.0", host_arch="x86_64")
HERE = Wanted(
    project="demo",
    version="2.8",
    archs=("sm_90",),
    nvcc="13.0.88",
    host_compiler="12.2.0",
    host_arch="x86_64",
)
"""The build that ``recipe()`` was made of."""


def figures(kind: PhaseKind = PhaseKind.CICC, **fields: Any) -> PhaseFigures:
    """One phase: cicc of 4 MiB of input for sm_90, 1000 MiB, 10 seconds."""
    known: dict[str, Any] = {"input_mib": 4.0, "peak_mib": 1000.0, "cpu_s": 10.0}
    if kind in (PhaseKind.CICC, PhaseKind.PTXAS):
        known["arch"] = "sm_90"
    return PhaseFigures(kind=kind, **{**known, **fields})


def recipe_unit(place: str = "src/a.cu", *phases: PhaseFigures, **fields: Any) -> RecipeUnit:
    """A CUDA unit."""
    known: dict[str, Any] = {"output": "a.o", "options": "0123456789abcdef", "archs": ("sm_90",)}
    return RecipeUnit(place=place, phases=phases or (figures(),), **{**known, **fields})


def recipe(*units: RecipeUnit, made: Fingerprint = MADE, origin: Origin | None = None, **fields: Any) -> Recipe:
    """Of ``demo`` 2.8: measured twice."""
    known: dict[str, Any] = {"project": RecipeProject(name="demo", version="2.8")}
    return Recipe(
        schema=2,
        fingerprint=made,
        origin=origin or Origin(provenance="measured", runs=2),
        units=units or (recipe_unit(),),
        **{**known, **fields},
    )
