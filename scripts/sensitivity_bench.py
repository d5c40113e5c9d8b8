"""Tuning figures of scheduler and estimation, halved and doubled one at a time, in simulated builds of measured phases.

What moves no build by 1 % is a candidate for removal with its mechanism. Figures of sharing, pauses, thrashing and
runaways do not act in these builds, and are left out; so are guards against absurd values.
"""

from __future__ import annotations

import importlib
import multiprocessing
import sys
from pathlib import Path

import msgspec

MODULES = (
    *(f"scheduler.{each}" for each in ("admission", "brake", "build_order", "course_forecast", "oom_guard")),
    *(f"scheduler.{each}" for each in ("running_set", "scheduler", "unit_release", "wait_queue")),
    *(
        f"estimation.{each}"
        for each in ("error_model", "estimator", "features", "kind_courses", "past", "priors", "run_time")
    ),
)
DATA = Path(__file__).parents[1] / "tests" / "data" / "te-2.8-sm100-curves.csv"
SMALLEST, LARGEST = 1e-4, 1e5
"""Beyond these it is no figure of tuning."""

MOVES = 0.01
"""A build that takes this share longer or shorter has moved."""

CASES = ((2, 4.5), (16, 16.0))
"""Cores and GiB, as in the packing bench; each warm and cold, memory growing evenly."""


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One constant of one module, and what to try for it. ``name`` is empty for the builds as they are."""

    module: str = ""
    name: str = ""
    value: float = 0.0
    tried: float = 0.0


def figures() -> list[Figure]:
    """All that are tried, each twice."""
    found = []
    for module in MODULES:
        for name, value in vars(importlib.import_module(f"builddoctor.{module}")).items():
            here = name.isupper() and isinstance(value, int | float) and not isinstance(value, bool)
            if here and SMALLEST < abs(value) < LARGEST and _defined_in(module, name):
                found += [Figure(module=module, name=name, value=value, tried=each) for each in _other(value)]
    return found


def _defined_in(module: str, name: str) -> bool:
    source = Path(importlib.import_module(f"builddoctor.{module}").__file__ or "").read_text()
    return f"\n{name} = " in source


def _other(value: float) -> tuple[float, float]:
    """Half and twice; of a factor near 1 what it is more, of a share near 1 what it is less."""
    if isinstance(value, int):
        return max(1, value // 2), value * 2
    if 1 < value <= 1.5:
        return 1 + (value - 1) / 2, 1 + 2 * (value - 1)
    if 0.5 < value < 1:
        return 1 - 2 * (1 - value), 1 - (1 - value) / 2
    return value / 2, value * 2


def builds(figure: Figure) -> tuple[Figure, list[tuple[float, int]]]:
    """Seconds and kills of each build with this figure; infinite seconds for one that failed. Runs in a new process."""
    from packing_bench import WORLDS, built

    from support.measured_builds import from_digest
    from support.workloads import without_links

    for name, module in list(sys.modules.items()):
        # Where it was imported by name, too.
        if name.startswith("builddoctor.") and vars(module).get(figure.name) == figure.value:
            setattr(module, figure.name, figure.tried)
    workload = without_links(from_digest(DATA))
    rows = []
    for cores, gib in CASES:
        for known in (workload, None):
            result = built(workload, known, cores, gib, WORLDS["ramp"])
            seconds = result.makespan_s if result.completed else float("inf")
            rows.append((seconds, result.kills + result.kernel_kills))
    return figure, rows


def sensitivity(processes: int) -> list[str]:
    """Lines of a report."""
    import builddoctor.simulate.shipped  # noqa: F401 - all modules are there before they are changed

    with multiprocessing.get_context("fork").Pool(processes, maxtasksperchild=1) as pool:
        _, before = pool.apply(builds, (Figure(),))
        rows = []
        for figure, after in pool.imap_unordered(builds, figures()):
            changes = [then / now - 1 for (now, _), (then, _) in zip(before, after, strict=True)]
            mean = sum(changes) / len(changes)
            kills = sum(then for _, then in after) - sum(now for _, now in before)
            rows.append((max(changes, key=abs), mean, kills, figure))
            print(figure.module, figure.name, figure.tried, f"{rows[-1][0]:+.1%}", file=sys.stderr, flush=True)
    rows.sort(key=lambda row: (row[3].module, row[3].name, row[3].tried))
    moving = {(row[3].module, row[3].name) for row in rows if abs(row[0]) >= MOVES or row[2]}
    still = sorted({(row[3].module, row[3].name) for row in rows} - moving)
    return [
        f"{len(before)} simulated builds (TransformerEngine as measured, {len(CASES)} machines, warm and cold, memory",
        "growing evenly, near the whole limit), with each figure halved and doubled: of a factor up to 1.5 what",
        "it is above 1, of a share over 0.5 what it is below 1. *most*: the change of the build that changed most;",
        f"*kills*: more or fewer in all {len(before)} builds.\n",
        f"Of {len(moving) + len(still)} figures {len(moving)} move a build by {MOVES:.0%} or change a kill. These do",
        "not, in these builds:",
        ", ".join(f"`{module}.{name}`" for module, name in still) + ".\n",
        "| figure | is | tried | most | mean | kills |",
        "|" + " --- |" * 6,
        *(
            f"| `{figure.module}.{figure.name}` | {figure.value:g} | {figure.tried:g} | {most:+.1%} | {mean:+.1%} "
            f"| {kills:+d} |"
            for most, mean, kills, figure in rows
            if (figure.module, figure.name) in moving
        ),
    ]
