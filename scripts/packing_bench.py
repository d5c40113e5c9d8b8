"""The production scheduler and estimator in simulation, near the whole limit, on measured phases."""

from __future__ import annotations

import statistics
from pathlib import Path

import msgspec

from builddoctor.core.settings import SchedulerSettings
from builddoctor.estimation.estimator import LearningEstimator
from builddoctor.recipes.match import OTHER_MINOR_VERSION
from builddoctor.scheduler.scheduler import Scheduler
from builddoctor.simulate.engine import simulate
from builddoctor.simulate.result import Host, Result, Rules
from builddoctor.simulate.workload import Workload, lower_bound_s
from support.measured_builds import from_digest
from support.workloads import cold, disturbed, held_of, warm, without_links

SIZES = ((2, 4.5, None), (4, 6.0, 405), (8, 8.0, 310), (16, 16.0, 180), (32, 32.0, 174))
"""(cores, GiB, warm target in seconds); the cold target is 1.2 times that."""

WORLDS = {
    "flat": Rules(sample_s=0.1, quiet_s=0.1),
    "ramp": Rules(growth="ramp", sample_s=0.1, quiet_s=0.1),
}
COURSE_SIZES = ((4, 6.0), (8, 8.0), (16, 8.0), (16, 16.0))


class CourseCase(msgspec.Struct, frozen=True, kw_only=True):
    """How far a build is from what is known of it, and what it may use."""

    name: str
    peaks: float
    times: float
    reserve: bool = False
    distance: float = 0.0


COURSE_CASES = (
    CourseCase(name="±2 and ±10 %, whole limit", peaks=0.02, times=0.1),
    CourseCase(name="±20 %, whole limit", peaks=0.2, times=0.2),
    CourseCase(name="±2 and ±10 %, the reserve that ships", peaks=0.02, times=0.1, reserve=True),
    CourseCase(name="±20 %, the reserve", peaks=0.2, times=0.2, reserve=True),
    CourseCase(name="±20 %, the reserve, before", peaks=0.2, times=0.2, reserve=True, distance=OTHER_MINOR_VERSION),
)

SEEDS = 5
BUILDS = 16


def built(
    workload: Workload,
    known: Workload | None,
    cores: int,
    gib: float,
    rules: Rules,
    *,
    reserve: bool = False,
    distance: float = 0.0,
    courses: bool = True,
) -> Result:
    """One build; ``known``: the earlier one, or None, trusted less by ``distance``; ``courses``: it shows what was held
    meanwhile. ``reserve``: as ships; else the whole limit is handed out."""
    limit_mib = 1024 * gib
    host = Host(cores=cores, limit_mib=limit_mib, own_budget_mib=None if reserve else limit_mib)
    scheduler = Scheduler(SchedulerSettings(slots=cores, budget_mib=host.budget_mib), LearningEstimator())
    known_units = warm(known, distance=distance, courses=courses) if known is not None else cold(workload)
    return simulate(workload, scheduler, host, rules, known=known_units)


def told(result: Result) -> str:
    """Seconds, and what had to be ended: ``k`` by the kernel, ``o`` by ourselves."""
    words = [f"{result.makespan_s:.0f}" if result.completed else "failed"]
    words += [f"{result.kernel_kills} k"] * (result.kernel_kills > 0) + [f"{result.kills} o"] * (result.kills > 0)
    return ", ".join(words)


def mean(results: list[Result]) -> str:
    failed = sum(not result.completed for result in results)
    kernel, own = sum(result.kernel_kills for result in results), sum(result.kills for result in results)
    seconds = f"{statistics.mean(result.makespan_s for result in results):.0f}" if not failed else f"{failed} failed"
    return f"{seconds} ({kernel} k, {own} o)"


def packing(data: Path) -> list[str]:
    """Lines of a report; ``data``: a digest, with the one that has curves beside it."""
    workload = without_links(from_digest(data))
    grown = from_digest(data.with_name(f"{data.stem}-curves.csv"))
    lines = [
        f"{workload.name}: {len(workload.units)} units, {workload.phases} phases; no reserve, all units open, no gaps",
        "between phases, ten looks a second. LB: the lower bound of docs/reference/host-memory.md, 9. flat: a phase",
        "holds its peak from its start on, as in the table there. ramp: it grows evenly to it. seen: it follows the",
        f"memory that it was seen to hold in another build of these sources ({held_of(grown, 'flat'):.0%} of the peak",
        "on average).",
        "warm: one earlier build in the history, with peaks and times alone where phases grow; cold: none. k: kernel",
        "kills, o: our own.",
        f"±20 %: peaks disturbed by that much against the history, mean of {SEEDS} builds and the sum of kills.\n",
        (
            "| cores, GiB | LB | target warm / cold | warm flat | warm ramp | warm seen | cold flat | cold ramp "
            "| cold seen | ±20 % warm flat | ±20 % warm seen | ±20 % cold seen |"
        ),
        "|" + " --- |" * 12,
    ]
    for cores, gib, target_s in SIZES:
        row = [f"{cores}, {gib:g}", f"{lower_bound_s(workload, cores=cores, limit_mib=1024 * gib):.0f}"]
        row.append(f"{target_s} / {1.2 * target_s:.0f}" if target_s else "-")
        for known in (workload, None):
            for name, rules in WORLDS.items():
                row.append(told(built(workload, known, cores, gib, rules, courses=name == "flat")))
            row.append(told(built(grown, known, cores, gib, WORLDS["flat"], courses=False)))
        for build, known in ((workload, workload), (grown, workload), (grown, None)):
            moved = [disturbed(build, share=0.2, seed=seed) for seed in range(SEEDS)]
            row.append(mean([built(each, known, cores, gib, WORLDS["flat"], courses=build is known) for each in moved]))
        lines.append("| " + " | ".join(row) + " |")
    return [*lines, "", *spread(workload, grown), "", *by_courses(grown)]


def spread(flat: Workload, grown: Workload) -> list[str]:
    """Schedules are not stable: what each build would have taken with peaks a little different."""
    columns = (
        ("warm flat", flat, flat, 0.005),
        ("warm seen", grown, flat, 0.005),
        ("cold flat", flat, None, 0.02),
        ("cold seen", grown, None, 0.02),
    )
    lines = [
        "A phase that comes a little later makes another schedule. So each of these again, with peaks moved by up to",
        f"0.5 % (warm) and 2 % (cold): mean, shortest and longest of {BUILDS} builds, and the sum of kernel kills.\n",
        "| cores, GiB | target warm / cold | " + " | ".join(name for name, *_ in columns) + " |",
        "|" + " --- |" * (2 + len(columns)),
    ]
    for cores, gib, target_s in SIZES:
        if target_s is None:
            continue
        row = [f"{cores}, {gib:g}", f"{target_s} / {1.2 * target_s:.0f}"]
        for _, build, known, share in columns:
            moved = [disturbed(build, share=share, seed=seed) for seed in range(BUILDS)]
            row.append(
                _spread([built(each, known, cores, gib, WORLDS["flat"], courses=build is known) for each in moved])
            )
        lines.append("| " + " | ".join(row) + " |")
    return lines


def by_courses(grown: Workload) -> list[str]:
    """Second builds that know the courses of phases, beside such as know their peaks alone."""
    lines = [
        "Second builds where phases hold what they were seen to hold, with peaks and times moved at once: mean of",
        f"{BUILDS} builds and the sum of kills, by (cores, GiB). *peaks*: the history has peaks and times alone;",
        "*courses*: also what was held meanwhile. *before*: the figures are a recipe's, of the minor version before.\n",
        "| | " + " | ".join(f"{cores}, {gib:g}" for cores, gib in COURSE_SIZES) + " |",
        "|" + " --- |" * (1 + len(COURSE_SIZES)),
    ]
    for case in COURSE_CASES:
        moved = [disturbed(grown, share=case.peaks, times=case.times, seed=seed) for seed in range(BUILDS)]
        for name in ("peaks", "courses"):
            row = [f"{name}, {case.name}"]
            for cores, gib in COURSE_SIZES:
                how = {"reserve": case.reserve, "distance": case.distance, "courses": name == "courses"}
                row.append(mean([built(each, grown, cores, gib, WORLDS["flat"], **how) for each in moved]))
            lines.append("| " + " | ".join(row) + " |")
    return lines


def _spread(results: list[Result]) -> str:
    times = [result.makespan_s for result in results]
    kernel = sum(result.kernel_kills for result in results)
    return f"{statistics.mean(times):.0f}: {min(times):.0f} to {max(times):.0f}" + f", {kernel} k" * (kernel > 0)


if __name__ == "__main__":
    print("\n".join(packing(Path(__file__).resolve().parents[1] / "tests" / "data" / "te-2.8-sm100.csv")))
