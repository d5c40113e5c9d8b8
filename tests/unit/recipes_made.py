"""Recipes for tests of plans: TransformerEngine's from its digest, and small ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from builddoctor.core.phase import PhaseKind
from builddoctor.core.recipe import Fingerprint, Hazard, Origin, PhaseFigures, Recipe, RecipeProject, RecipeUnit
from builddoctor.plans.inputs import PlanHost
from support.measured_builds import from_digest

DIGEST = Path(__file__).resolve().parents[1] / "data" / "te-2.8-sm100.csv"

RUNAWAY = Hazard(
    kind="runaway",
    tool="cudafe",
    text="cudafe++ of nvcc 12.8 ran away to 140 GiB, with one job too; another nvcc minor helps",
    source="TransformerEngine#1996",
    host_arch="aarch64",
)


def phase(peak_mib: float, cpu_s: float, kind: PhaseKind = PhaseKind.HOST, arch: str = "", **more: Any) -> PhaseFigures:
    return PhaseFigures(kind=kind, arch=arch, peak_mib=peak_mib, cpu_s=cpu_s, **more)


def unit(place: str, *phases: PhaseFigures, **more: Any) -> RecipeUnit:
    """Its target is its place with ``.o``."""
    return RecipeUnit(**{"place": place, "target": f"{place}.o", "phases": phases, **more})


def recipe(*units: RecipeUnit, **more: Any) -> Recipe:
    known: dict[str, Any] = {
        "schema": 1,
        "project": RecipeProject(name="small", version="1.0"),
        "origin": Origin(provenance="measured"),
        "units": units,
    }
    return Recipe(**{**known, **more})


def engine() -> Recipe:
    """TransformerEngine 2.8 for sm_100, 66 units, with a hazard of aarch64."""
    units = []
    for each in from_digest(DIGEST).units:
        phases = tuple(
            PhaseFigures(
                kind=work.kind,
                tool=work.tool,
                arch=work.arch,
                input_mib=work.input_mib,
                peak_mib=work.peak_mib,
                cpu_s=work.wall_s,
            )
            for work in each.phases
        )
        target = "" if each.after_all else f"CMakeFiles/transformer_engine.dir/{each.name}.o"
        units.append(
            RecipeUnit(place=each.name, target=target, archs=each.archs, after_all=each.after_all, phases=phases)
        )
    return recipe(
        *units,
        project=RecipeProject(name="transformer_engine", version="2.8"),
        fingerprint=Fingerprint(archs=("sm_100",), nvcc="13.0.88", host_compiler="12.2.0", host_arch="x86_64"),
        hazards=(RUNAWAY,),
    )


def host(cores: int, memory_mib: float, **more: Any) -> PlanHost:
    """A container of that size, all of it for compilers."""
    known: dict[str, Any] = {
        "name": "a container",
        "cores": cores,
        "memory_mib": memory_mib,
        "reserve_mib": 0.0,
        "budget_mib": memory_mib,
        "contained": True,
        "measured": True,
    }
    return PlanHost(**{**known, **more})


def few_of_engine() -> Recipe:
    """The same with six of its units, for tests whose question does not depend on how many there are: a plan simulates
    each of them many times."""
    made = engine()
    return msgspec.structs.replace(made, units=made.units[::11])
