"""What the recipes in ``recipes/`` are made of: the figures of each in ``recipes/data``, what was derived.

Covers: the list, and the rules by which figures are derived. Every number of a recipe comes from a file of measured
phases beside it; ``scripts/recipes --check`` makes all of them again.
Does *not* cover: measuring (``scripts/recipes digest``).
"""

from __future__ import annotations

import hashlib
import itertools
import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from builddoctor.core.phase import PhaseKind
from builddoctor.core.recipe import Fingerprint, Hazard, Origin, PhaseFigures, Recipe, RecipeProject, RecipeUnit
from builddoctor.plans.planner import for_archs as planned_for
from builddoctor.recipes.measured_phases import MeasuredPhase, recipe_of_rows
from support.measured_rows import Rows, read_rows

NOT_BUILT = "not built"
"""Of a sample, one such line for each unit that the project has and nobody built: ``PLACE -> TARGET``."""

DEVICE = (PhaseKind.CICC, PhaseKind.PTXAS)

TE_ISSUE = "https://github.com/NVIDIA/TransformerEngine/issues/1996"
FLASH_ISSUE = "https://github.com/Dao-AILab/flash-attention/issues/2493"

RUNAWAY = Hazard(
    kind="runaway",
    tool="cudafe++",
    host_arch="aarch64",
    text="cudafe++ may grow without end in some units (139 to 147 GiB each on GB200, with MAX_JOBS=1 too). Fewer jobs "
    "do not help: another release of nvcc or gcc does. builddoctor ends it, names it and leaves the host alone.",
    source=TE_ISSUE,
)
FORMULA = Hazard(
    kind="host-memory",
    text="flash-attention's own MAX_JOBS counts the memory of the host, also inside a container, and the nvcc threads "
    "of one kernel as if they were one",
    source=FLASH_ISSUE,
)

LIGHTGBM = Hazard(
    kind="build",
    text="built for CUDA with -DUSE_CUDA=ON and -DCMAKE_CUDA_ARCHITECTURES in CMAKE_ARGS, and with a static NCCL "
    "unless -DBUILD_WITH_SHARED_NCCL=ON is there too",
    source="measured",
)

TE_MULTI = ("sm_75", "sm_80", "sm_89", "sm_90", "sm_100", "sm_120")
"""What TransformerEngine 2.8 is built for with CUDA 13 where nothing is said (its CMakeLists.txt)."""

WRITTEN_IN = ("sm_75", "sm_80", "sm_87", "sm_90", "sm_100", "sm_103", "sm_110", "sm_120", "sm_121")
"""What mamba-ssm 2.3.2 and causal-conv1d 1.7 are built for with CUDA 13, whatever is asked for (their setup.py)."""

FLASH_WHEELS = ("sm_80", "sm_90", "sm_100", "sm_120")
"""What flash-attention 2.8.3 is built for with CUDA 13 where nothing is said (FLASH_ATTN_CUDA_ARCHS, setup.py)."""

Derive = Callable[[Recipe], Recipe]


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """One recipe of ``recipes/``."""

    name: str
    data: str
    """file in ``recipes/data``, without its ``.csv``"""
    title: str
    hazards: tuple[Hazard, ...] = ()
    derive: Derive | None = None
    how: str = ""
    """what ``derive`` does, in a sentence; or, of a sample, which units were built"""
    built: str = ""
    """of figures that were all measured: how it was built, in a sentence"""
    archs: tuple[str, ...] = ()
    """of a build for several, these alone: their phases were measured like the others'"""


def for_archs(recipe: Recipe, archs: Sequence[str]) -> Recipe:
    """The same build for ``archs``: a phase for an architecture that was not measured is taken to need as much as the
    same phase for the most demanding one that was."""
    units = tuple(_unit_for(unit, archs, of=recipe.fingerprint.archs) for unit in recipe.units)
    fingerprint = msgspec.structs.replace(recipe.fingerprint, archs=tuple(sorted(archs)))
    return msgspec.structs.replace(recipe, units=units, fingerprint=fingerprint)


def _unit_for(unit: RecipeUnit, archs: Sequence[str], *, of: Sequence[str]) -> RecipeUnit:
    """``of``: what the recipe's build was for. A unit may be compiled for one more, whatever was asked for."""
    if not unit.archs:
        return unit
    measured = sorted({phase.arch for phase in unit.phases if phase.arch})
    archs = [*archs, *(arch for arch in measured if arch not in of and arch not in archs)]
    blocks = {arch: [phase for phase in unit.phases if phase.arch == arch] for arch in measured}
    worst = max(measured, key=lambda arch: sum(phase.peak_mib for phase in blocks[arch]), default="")
    first = next((at for at, phase in enumerate(unit.phases) if phase.arch), len(unit.phases))
    common = [phase for phase in unit.phases if not phase.arch]
    before = sum(not phase.arch for phase in unit.phases[:first])
    device: list[PhaseFigures] = []
    for arch in archs:
        block = blocks.get(arch) or [
            msgspec.structs.replace(phase, arch=arch, provenance="derived") for phase in blocks.get(worst, [])
        ]
        device += block
    return msgspec.structs.replace(
        unit, archs=tuple(sorted(archs)), phases=(*common[:before], *device, *common[before:])
    )


def cut_to(recipe: Recipe, archs: Sequence[str]) -> Recipe:
    """What was measured, without the other architectures' phases. A device link is for all of them, and stays."""
    cut, _, _ = planned_for(recipe, archs)
    units = tuple(
        msgspec.structs.replace(unit, archs=tuple(sorted(archs))) if unit.archs and unit.after_all else unit
        for unit in cut.units
    )
    fingerprint = msgspec.structs.replace(recipe.fingerprint, archs=tuple(sorted(archs)))
    others = " and ".join(sorted(set(recipe.fingerprint.archs) - set(archs)))
    how = f"{recipe.origin.how}; built for {others} as well, whose phases are left out"
    origin = msgspec.structs.replace(recipe.origin, how=how)
    return msgspec.structs.replace(cut, units=units, fingerprint=fingerprint, origin=origin)


def with_kin(recipe: Recipe, not_built: Sequence[str]) -> Recipe:
    """With the units that were not built, each as its nearest kin: the measured units whose names begin with the most
    words that its own begins with. What was measured of it before it was ended is its own."""
    places = {line.partition(" -> ")[0] for line in not_built}
    begun = {unit.place: unit for unit in recipe.units if unit.place in places}
    whole = tuple(unit for unit in recipe.units if unit.place not in places)
    derived = []
    for line in not_built:
        place, _, target = line.partition(" -> ")
        derived.append(as_kin(whole, place, target, begun.get(place)))
    return msgspec.structs.replace(recipe, units=(*whole, *derived))


def as_kin(units: Sequence[RecipeUnit], place: str, target: str, begun: RecipeUnit | None = None) -> RecipeUnit:
    """``place`` as its nearest kin among ``units``: peaks of the largest of them, times of the middle one (the longest
    is ``high_s``), and no courses, which differ too much from kin to kin (docs/results/nearness.md). With the phases of
    ``begun`` where it has them; where these are its front end, what is made of it is as much larger or smaller than the
    kin's as that is. An architecture that it was not compiled for is taken for as demanding as those that it was."""
    own = list(begun.phases) if begun is not None else []
    kin = nearest_kin(units, place)
    like = max(kin, key=_peak)
    own_mib, like_mib = _front_end_mib(own), _front_end_mib(like.phases)
    times = own_mib / like_mib if own_mib and like_mib else 1.0
    phases = []
    for phase in like.phases:
        of_kind = [each for each in begun.phases if each.kind is phase.kind] if begun is not None and phase.arch else []
        of_it = next((each for each in own if (each.kind, each.arch) == (phase.kind, phase.arch)), None)
        if of_it is not None:
            own.remove(of_it)
            phases.append(of_it)
        elif of_kind:
            near = max(of_kind, key=lambda each: each.peak_mib)
            phases.append(msgspec.structs.replace(near, arch=phase.arch, provenance="derived"))
        else:
            phases.append(_larger(_middling(phase, kin), times))
    return msgspec.structs.replace(
        begun or like,
        place=place,
        output=target.rpartition("/")[2],
        target=target,
        source_digest=begun.source_digest if begun is not None else "",
        archs=like.archs,
        phases=tuple(phases),
    )


def _front_end_mib(phases: Sequence[PhaseFigures]) -> float:
    return max((phase.peak_mib for phase in phases if phase.kind is PhaseKind.CUDAFE), default=0.0)


def _larger(phase: PhaseFigures, times: float) -> PhaseFigures:
    """``times`` as large and as long, if it works on what the front end made."""
    if phase.kind not in (*DEVICE, PhaseKind.HOST):
        return phase
    return msgspec.structs.replace(
        phase, peak_mib=phase.peak_mib * times, cpu_s=phase.cpu_s * times, high_s=phase.high_s * times
    )


def nearest_kin(units: Sequence[RecipeUnit], place: str) -> list[RecipeUnit]:
    """Those of ``units`` whose names begin with the most words that ``place`` begins with; sources in one language."""
    alike = [unit for unit in units if not unit.after_all and unit.place.endswith(".cu") == place.endswith(".cu")]
    most = max((_words_shared(unit.place, place) for unit in alike), default=0)
    return [unit for unit in alike if _words_shared(unit.place, place) == most]


def _middling(phase: PhaseFigures, kin: Sequence[RecipeUnit]) -> PhaseFigures:
    """Its own peak, and a middling time of the same phases of ``kin``: each one's longest."""
    longest = [
        max(
            (each.cpu_s for each in unit.phases if (each.kind, each.arch) == (phase.kind, phase.arch)),
            default=phase.cpu_s,
        )
        for unit in kin
    ]
    middle_s = min(phase.cpu_s, statistics.median_low(longest))
    return msgspec.structs.replace(
        phase,
        cpu_s=middle_s,
        high_s=phase.cpu_s if phase.cpu_s > middle_s else 0.0,
        course="",
        provenance="derived",
    )


def _words_shared(place: str, other: str) -> int:
    """At the beginning of both; a number is a word."""
    pairs = zip(*(re.findall(r"\d+|[A-Za-z]+|/", each) for each in (place, other)), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def _peak(unit: RecipeUnit) -> float:
    return max((phase.peak_mib for phase in unit.phases), default=0.0)


def make(made: Made, data: Path) -> Recipe:
    """The recipe, from its rows."""
    path = data / f"{made.data}.csv"
    rows = read_rows(path)
    recipe = recipe_of_rows(
        _measured(rows.phases),
        project=RecipeProject(name=rows.remark("project"), version=rows.remark("version"), title=made.title),
        fingerprint=Fingerprint(
            archs=tuple(filter(None, rows.remark("archs").split(" "))),
            nvcc=rows.remark("nvcc"),
            host_compiler=rows.remark("host_compiler"),
            host_arch=rows.remark("host_arch"),
            page_kib=int(rows.remark("page_kib") or 4),
        ),
        origin=_origin(rows, path, made),
        hazards=made.hazards,
    )
    recipe = with_kin(recipe, rows.remarks_of(NOT_BUILT))
    if made.archs:
        recipe = cut_to(recipe, made.archs)
    return made.derive(recipe) if made.derive is not None else recipe


def _measured(phases: Iterable[MeasuredPhase]) -> list[MeasuredPhase]:
    return [phase for phase in phases if phase.peak_mib > 0]


def _origin(rows: Rows, path: Path, made: Made) -> Origin:
    return Origin(
        provenance="derived" if made.how else _provenance(rows.remark("provenance")),
        how="; ".join(filter(None, (rows.remark("how"), made.built, made.how))),
        machine=rows.remark("machine"),
        builddoctor=rows.remark("builddoctor"),
        date=rows.remark("date"),
        data=f"data/{path.name}",
        data_digest=hashlib.sha256(path.read_bytes()).hexdigest(),
        traces=tuple(filter(None, rows.remark("traces").split(" "))),
    )


def _provenance(text: str) -> str:
    assert text in ("measured", "emulated"), f"{text}: measured or emulated"
    return text


def _te(name: str, data: str, how: str = "", **more: object) -> Made:
    return Made(name=name, data=data, title="TransformerEngine, its library", hazards=(RUNAWAY,), how=how, **more)


def _each_arch(name: str, title: str, **more: object) -> tuple[Made, ...]:
    """Two recipes of a project that was built for both at once."""
    return tuple(
        Made(name=f"{name}-{arch}-x86_64", data=f"{name}-x86_64", title=title, archs=(arch,), **more)
        for arch in ("sm_90", "sm_100")
    )


TE_100 = "transformer_engine-2.8-sm_100-x86_64"
TORCH = "with torch 2.12, whose headers are most of each unit"

FRONT = "the others' front ends; what is made of these as in their nearest kin, by the size of both front ends, marked"

FLASH = f"with torch 2.12; a sample: 12 of 73 units measured whole, and {FRONT}"

CUT = "built with a setup.py that names sm_90 and sm_100 alone, where it names nine; with torch 2.12"
NINE = f"{CUT}; for architectures that were not measured as for the more demanding of these, marked"

SHIPPED = (
    _te(TE_100, TE_100),
    _te("transformer_engine-2.8-sm_100-aarch64", "transformer_engine-2.8-sm_100-aarch64-emulated"),
    _te(
        "transformer_engine-2.8-sm_90-x86_64",
        "transformer_engine-2.8-sm_90-x86_64",
        "11 units as compiled for sm_90, the others as for sm_100, and marked; of 20 kernels compiled for both, "
        "cicc took 0 to 21 % less for sm_90, ptxas 49 % less to 17 % more",
        derive=lambda recipe: for_archs(recipe, ("sm_90",)),
    ),
    _te(
        "transformer_engine-2.8-all-x86_64",
        TE_100,
        "for architectures that were not measured as for sm_100; their phases are marked",
        derive=lambda recipe: for_archs(recipe, TE_MULTI),
    ),
    Made(
        name="transformer_engine-2.18-sm_100-x86_64",
        data="transformer_engine-2.18-sm_100-x86_64",
        title="TransformerEngine with its extension of torch",
        hazards=(RUNAWAY,),
        built="without NCCL EP, with torch 2.12; its heavy sources are compiled for 100a and 103a",
    ),
    *_each_arch("flash_attn-2.8.3", "FlashAttention-2", hazards=(FORMULA,), how=FLASH),
    Made(
        name="flash_attn-2.8.3-all-x86_64",
        data="flash_attn-2.8.3-x86_64",
        title="FlashAttention-2",
        hazards=(FORMULA,),
        derive=lambda recipe: for_archs(recipe, FLASH_WHEELS),
        how=f"{FLASH}; for sm_80 and sm_120 as for the more demanding of sm_90 and sm_100, marked",
    ),
    *_each_arch("bitsandbytes-0.50.1", "bitsandbytes"),
    *(
        Made(
            name=f"cutlass-4.3.0-{arch}-x86_64",
            data=f"cutlass-4.3.0-{arch}-x86_64",
            title=f"CUTLASS, five of its examples for {gpus}",
        )
        for arch, gpus in (("sm_90a", "Hopper"), ("sm_100a", "Blackwell"))
    ),
    *_each_arch("lightgbm-4.7.0", "LightGBM with CUDA", hazards=(LIGHTGBM,)),
    *_each_arch("xformers-0.0.35", "xFormers"),
    *_each_arch(
        "llama_cpp_python-0.3.36",
        "llama-cpp-python with CUDA",
        how=f"a sample: 273 of 322 units measured whole, 95 of the 144 CUDA units among them, and {FRONT}",
    ),
    *_each_arch(
        "apex-25.09",
        "Apex, its C++ and CUDA extensions",
        built=f"{TORCH}; its setup.py without compute_70, which nvcc 13 does not know",
    ),
    *_each_arch(
        "deepspeed-0.19.8",
        "DeepSpeed, fused Adam, LAMB and Lion, and its quantizer",
        built=TORCH,
    ),
    *_each_arch("mamba_ssm-2.3.2.post1", "Mamba SSM", built=CUT),
    Made(
        name="mamba_ssm-2.3.2.post1-all-x86_64",
        data="mamba_ssm-2.3.2.post1-x86_64",
        title="Mamba SSM",
        derive=lambda recipe: for_archs(recipe, WRITTEN_IN),
        how=NINE,
    ),
    *_each_arch("xgboost-3.4.1", "XGBoost with CUDA"),
    *_each_arch("causal_conv1d-1.7.0", "causal-conv1d", built=CUT),
    Made(
        name="causal_conv1d-1.7.0-all-x86_64",
        data="causal_conv1d-1.7.0-x86_64",
        title="causal-conv1d",
        derive=lambda recipe: for_archs(recipe, WRITTEN_IN),
        how=NINE,
    ),
    Made(name="attention_kernels-x86_64", data="attention_kernels-x86_64", title="The example of builddoctor"),
)
