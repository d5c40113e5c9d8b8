"""First builds of projects that no figure was fitted to, beside GNU parallel's ``--memfree``. For ``scripts/bench``.

Reads the recipes that ship, one a project. Each build is simulated as shipped, with nothing known; the recipe says
what phases take. Units come in another order in each build, since in one order a scheduler can be lucky with the unit
that takes longest.
Does *not* cover: other schedulers, and second builds (``scripts/bench limits``, ``packing``).
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import geometric_mean, mean

import msgspec

from builddoctor.recipes.recipe_file import read_recipe
from builddoctor.simulate.of_recipe import workload
from builddoctor.simulate.result import Host, Result, Rules
from builddoctor.simulate.shipped import as_shipped, shipped_rules
from builddoctor.simulate.workload import Workload, lower_bound_s
from support.baselines import memfree
from support.workloads import disturbed, held_of, without_links

RECIPES = Path(__file__).resolve().parents[1] / "recipes"
PROJECTS = (
    "transformer_engine-2.8-sm_90",
    "transformer_engine-2.18-sm_100",
    "apex-25.09-sm_90",
    "bitsandbytes-0.50.1-sm_90",
    "causal_conv1d-1.7.0-sm_90",
    "cutlass-4.3.0-sm_90a",
    "deepspeed-0.19.8-sm_90",
    "flash_attn-2.8.3-sm_90",
    "lightgbm-4.7.0-sm_90",
    "llama_cpp_python-0.3.36-sm_90",
    "mamba_ssm-2.3.2.post1-sm_90",
    "xformers-0.0.35-sm_90",
    "xgboost-3.4.1-sm_90",
)
MACHINES = ((4, 1.3), (8, 2.0), (16, 4.0))
"""Cores, and the limit over the largest phase"""
LEAST_GIB = 1.5
BUILDS = 4
FLOORS_GIB = (0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0)
GROWTH = "ramp"
AS_LONG = 1.02
"""Within what another four builds would make of it."""

INTRODUCTION = f"""\
Seconds, mean of {BUILDS} simulated first builds, peaks moved by 2 % and times by 10 %, units in another order in each.
builddoctor as shipped, with nothing known and no setting. `--memfree`: of GNU parallel, a unit a job, what the kernel
ends is run again; with the one setting (in brackets) that serves these very builds best. LB: no order is faster. r: of
builddoctor phases redone a build, of `--memfree` whole units; k: kernel kills of all {BUILDS}. The largest phase fits
in all rows.
"""
HEAD = [
    "| project | units | largest phase | cores, GiB | LB | builddoctor | `--memfree` | builddoctor over `--memfree` |",
    "|" + " --- |" * 8,
]

Row = tuple[str, float, int]
"""A line of the table, the last column, kernel kills of builddoctor's builds"""


def first_builds() -> list[str]:
    """The page."""
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        rows = [row for project in pool.map(_rows, PROJECTS) for row in project]
    ratios = [ratio for _, ratio, _ in rows]
    as_long, kills = sum(each <= AS_LONG for each in ratios), sum(killed for _, _, killed in rows)
    return [
        INTRODUCTION,
        *HEAD,
        *(line for line, _, _ in rows),
        "",
        f"Geometric mean of the last column {geometric_mean(ratios):.3f}; at most {AS_LONG} in {as_long} of",
        f"{len(ratios)} rows. Kernel kills of builddoctor's builds: {kills}.",
    ]


def _rows(project: str) -> list[Row]:
    build = without_links(workload(read_recipe(RECIPES / f"{project}-x86_64.toml")))
    return [_row(project, build, cores, share) for cores, share in MACHINES]


def _row(project: str, build: Workload, cores: int, share: float) -> Row:
    gib = max(LEAST_GIB, math.ceil(2 * share * build.peak_mib / 1024) / 2)
    host = Host(cores=cores, limit_mib=1024 * gib)
    builds = [_moved(build, seed) for seed in range(BUILDS)]
    ours = [as_shipped(each, host, rules=shipped_rules(host, GROWTH)) for each in builds]
    settings = [(_seconds(theirs), floor, theirs) for floor in FLOORS_GIB if (theirs := _by_floor(builds, host, floor))]
    best_s, floor, theirs = min(settings, key=lambda each: each[0])
    ratio = _seconds(ours) / best_s
    bound_s = lower_bound_s(build, cores=cores, limit_mib=host.limit_mib, held_share=held_of(build, GROWTH))
    line = (
        f"| {project} | {len(build.units)} | {build.peak_mib:.0f} MiB | {cores}, {gib:g} | {bound_s:.0f} "
        f"| {_told(ours)} | {_told(theirs)} ({floor:g} GiB) | {ratio:.2f} |"
    )
    return line, ratio, sum(each.kernel_kills for each in ours)


def _moved(build: Workload, seed: int) -> Workload:
    units = list(build.units)
    random.Random(seed).shuffle(units)
    shuffled = msgspec.structs.replace(build, units=tuple(units))
    return disturbed(shuffled, share=0.02, times=0.1, seed=seed)


def _by_floor(builds: Sequence[Workload], host: Host, floor_gib: float) -> list[Result]:
    """Empty where a build of them is not completed."""
    results = [memfree(each, host, 1024 * floor_gib, Rules(growth=GROWTH)) for each in builds]
    return results if all(each.completed for each in results) else []


def _seconds(results: Sequence[Result]) -> float:
    return mean(each.makespan_s if each.completed else math.inf for each in results)


def _told(results: Sequence[Result]) -> str:
    redone, kills = mean(each.requeued for each in results), sum(each.kernel_kills for each in results)
    return f"{_seconds(results):.0f}" + (f", {redone:.1f} r" if redone else "") + (f", {kills} k" if kills else "")
