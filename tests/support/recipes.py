"""A recipe and plans made by hand, small and with round figures: what is rendered from them can be read."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from builddoctor.core.phase import PhaseKind
from builddoctor.core.plan import AxisValue, Plan, Range, Stage, StaticPair
from builddoctor.core.recipe import Fingerprint, Hazard, Origin, PhaseFigures, Recipe, RecipeProject, RecipeUnit
from builddoctor.ui.scripts.render_request import RenderWith
from builddoctor.ui.scripts.slurm_array import ArrayCell

RECIPE = Recipe(
    schema=2,
    project=RecipeProject(name="attention_kernels", version="0.1.0", title="attention_kernels"),
    fingerprint=Fingerprint(archs=("sm_90",), nvcc="13.0.88", host_compiler="12.2.0", host_arch="x86_64"),
    origin=Origin(
        provenance="measured",
        runs=3,
        how="Three builds with one job, medians.",
        machine="a machine with 2 cores and 15 GiB",
        builddoctor="0.8.0",
        date="2026-11-20",
    ),
    hazards=(Hazard(kind="runaway", text="cudafe++ may take all memory there is", source="measured"),),
    units=tuple(
        RecipeUnit(
            place=f"src/{name}.cu",
            output=f"{name}.cu.o",
            target=f"CMakeFiles/attention_kernels.dir/src/{name}.cu.o",
            archs=("sm_90",),
            phases=(PhaseFigures(kind=PhaseKind.CICC, tool="cicc", arch="sm_90", peak_mib=peak_mib, cpu_s=seconds),),
        )
        for name, peak_mib, seconds in (
            ("attention_forward", 2180.0, 14.0),
            ("gemm_epilogue", 1250.0, 7.0),
            ("layer_norm", 930.0, 5.0),
            ("rope", 193.0, 3.0),
            ("swiglu", 193.0, 3.0),
        )
    ),
)


def stage(
    name: str, targets: Sequence[str] = (), *, jobs: int = 1, largest_mib: float = 500.0, archs: tuple[str, ...] = ()
) -> Stage:
    """One stage; the first word of its name is its weight."""
    return msgspec.convert(
        {
            "name": name,
            "weight": name.split()[0],
            "jobs": jobs,
            "archs": archs,
            "targets": tuple(targets),
            "units": len(targets),
            "largest_mib": largest_mib,
            "peak_mib": jobs * largest_mib,
            "makespan_s": 30.0,
        },
        Stage,
    )


def target(name: str) -> str:
    """What Ninja calls a unit of the recipe."""
    return f"CMakeFiles/attention_kernels.dir/src/{name}.cu.o"


STAGES = (
    stage("light", (target("rope"), target("swiglu")), jobs=2, largest_mib=193.0),
    stage("medium", (target("gemm_epilogue"), target("layer_norm")), jobs=2, largest_mib=1250.0),
    stage("solo", (target("attention_forward"),), largest_mib=2180.0),
    stage("rest", jobs=1, largest_mib=400.0),
)

PLAN = Plan(
    recipe="attention_kernels",
    project="attention_kernels",
    version="0.1.0",
    archs=("sm_90",),
    provenance="measured",
    runs=3,
    machine="a container of 2 cores and 3.0 GiB",
    host_arch="x86_64",
    cores=2,
    memory_mib=3072.0,
    reserve_mib=307.2,
    budget_mib=2764.8,
    window=8,
    threads=1,
    stages=STAGES,
    peak_mib=2600.0,
    peak_range_mib=Range(low=2400.0, high=2700.0),
    makespan_s=80.0,
    makespan_range_s=Range(low=70.0, high=100.0),
    staged_s=120.0,
    static=StaticPair(jobs=1, threads=1, peak_mib=2180.0, makespan_s=150.0),
    hazards=RECIPE.hazards,
    notes=("memory of GPUs is not counted",),
)

BY_ARCH = msgspec.structs.replace(
    PLAN,
    archs=("sm_90", "sm_100"),
    stages=(
        stage("light sm_90", (target("rope"),), jobs=2, largest_mib=193.0, archs=("sm_90",)),
        stage("heavy sm_90", (target("attention_forward"),), largest_mib=2180.0, archs=("sm_90",)),
        stage("light sm_100", (target("swiglu"),), jobs=2, largest_mib=193.0, archs=("sm_100",)),
        stage("rest", jobs=1, largest_mib=400.0),
    ),
)

TOO_BIG = msgspec.structs.replace(
    PLAN,
    memory_mib=2048.0,
    reserve_mib=204.8,
    budget_mib=1843.2,
    stages=STAGES[:2],
    too_big=("src/attention_forward.cu: 2.1 GiB (cicc)",),
    staged_s=None,
    static=None,
)


def array_cells(recipe: Recipe, plan: Plan, how: RenderWith) -> tuple[ArrayCell, ...]:
    """The same build for two Pythons and two versions of CUDA."""
    return tuple(
        ArrayCell(
            name=f"cp3{python}-cuda{cuda}",
            values=(AxisValue(axis="python", value=f"3.{python}"), AxisValue(axis="cuda", value=cuda)),
            recipe=recipe,
            plan=plan,
            how=how,
        )
        for python in (11, 12)
        for cuda in ("12.8", "13.0")
    )
