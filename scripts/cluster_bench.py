"""A build with other machines, simulated: what they bring, and how far that is from perfect."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from builddoctor.core.plan import PlanNode
from builddoctor.core.settings import SchedulerSettings
from builddoctor.estimation.estimator import LearningEstimator
from builddoctor.scheduler.budget import slots, window
from builddoctor.scheduler.scheduler import Scheduler
from builddoctor.simulate.engine import simulate
from builddoctor.simulate.result import Host, Result, Rules
from builddoctor.simulate.with_nodes import PORTABLE, WAY_S, WAY_S_PER_MIB, all_seen, with_ways
from builddoctor.simulate.workload import Workload
from support.measured_builds import from_digest
from support.workloads import cold, disturbed, warm, without_links

DATA = Path(__file__).resolve().parents[1] / "tests" / "data" / "te-2.8-sm100-curves.csv"
SIZES = (
    (1, 6.0, 6.0, (0, 1, 3, 7, 15, 31)),
    (1, 3.0, 6.0, (1, 3, 7, 15, 31)),
    (4, 8.0, 8.0, (0, 1, 3, 7)),
)
"""Cores and GiB of each machine, GiB of the first node, and how many nodes there are beside the one that builds."""

BUILDS = 4


def built(workload: Workload, past: Workload | None, cores: int, gib: float, sizes_gib: Sequence[float]) -> Result:
    """One build as it ships; ``past``: the earlier one, or None; ``sizes_gib``: of the nodes."""
    nodes = len(sizes_gib)
    host = Host(cores=cores, limit_mib=1024 * gib)
    jobs = window(cores * (1 + nodes), host.budget_mib)
    settings = SchedulerSettings(slots=slots(cores), budget_mib=host.budget_mib, most_open=jobs)
    rules = with_ways(Rules(sample_s=0.25, quiet_s=1.0, held=True, jobs=jobs))
    first = all_seen(
        [PlanNode(cores=cores, budget_mib=Host(cores=cores, limit_mib=1024 * each).budget_mib) for each in sizes_gib]
    )
    known = warm(past) if past is not None else cold(workload)
    return simulate(workload, Scheduler(settings, LearningEstimator()), host, rules, first=first, known=known)


def cluster() -> list[str]:
    """Lines of a report."""
    measured = without_links(from_digest(DATA))
    work_s = _work_s(measured)
    chain_s = max(sum(phase.wall_s for phase in unit.phases) for unit in measured.units)
    largest_mib = max(phase.peak_mib for unit in measured.units for phase in unit.phases)
    told = (
        f"TransformerEngine 2.8 for sm_100, measured curves ({DATA.name}): {len(measured.units)} units, "
        f"{work_s:.0f} s of work, the longest unit {chain_s:.0f} s, the largest phase {largest_mib:.0f} MiB. "
        f"Simulated, as it ships; mean of {BUILDS} builds, peaks moved by up to 2 % and times by up to 10 %. One "
        "machine builds, and preprocesses for all; where two sizes are named, one node has the second, since machines "
        "of 3 GiB alone cannot build this. First: nothing is known. Later: an earlier build is. *Bound*: no order is "
        "faster. It is the longest unit, or the work on all cores with the ways of what is sent, preprocessing on the "
        "machine that builds, or the phases that only some machines can hold, alone on those; nothing preprocessed "
        "twice. A phase's way takes "
        f"{WAY_S} s and {1000 * WAY_S_PER_MIB:.0f} ms a MiB.\n"
    )
    heads = (
        *("machines", "cores, GiB each", "bound s", "first build s", "of bound", "later build s", "of bound"),
        *("times one machine", "kernel kills"),
    )
    lines = [told, f"| {' | '.join(heads)} |", "|" + " --- |" * len(heads)]
    for cores, gib, first_gib, counts in SIZES:
        alone_s = 0.0
        for nodes in counts:
            sizes_gib = [first_gib, *[gib] * nodes][:nodes]
            by_size_s = bound_by_size_s(measured, cores, [gib, *sizes_gib])
            bound_s = max(bound_with_ways_s(measured, cores, nodes), by_size_s, chain_s)
            row, kills = [], 0
            for knows in (False, True):
                results = []
                for seed in range(BUILDS):
                    today = disturbed(measured, share=0.02, times=0.10, seed=seed)
                    results.append(built(today, measured if knows else None, cores, gib, sizes_gib))
                assert not any(each.failure or each.unfinished for each in results)
                kills += sum(each.kernel_kills for each in results)
                mean_s = sum(each.makespan_s for each in results) / BUILDS
                row += [f"{mean_s:.0f}", f"{100 * bound_s / mean_s:.0f} %"]
            alone_s = alone_s or (mean_s if not nodes else 0.0)
            times = f"{alone_s / mean_s:.1f}" if alone_s else ""
            each_gib = f"{gib:g}" if gib == first_gib else f"{gib:g}, one {first_gib:g}"
            lines.append(
                f"| {1 + nodes} | {cores}, {each_gib} | {bound_s:.0f} | {' | '.join(row)} | {times} | {kills} |"
            )
    return lines


def bound_with_ways_s(workload: Workload, cores: int, nodes: int) -> float:
    """All cores at work all the time, on phases that may be cut in two: what costs least on its way is sent first.

    What is preprocessed twice, since it is sent, is not counted, nor is anybody's memory.
    """
    phases = [phase for unit in workload.units for phase in unit.phases]
    here_s, there_s = sum(phase.wall_s for phase in phases), 0.0
    if not nodes:
        return here_s / cores
    ways = [(WAY_S + WAY_S_PER_MIB * each.input_mib, each.wall_s) for each in phases if each.kind in PORTABLE]
    for way_s, work_s in sorted(ways, key=lambda each: each[0] / max(each[1], 1e-9)):
        # Sent whole, unless both sides are even before.
        share = min(1.0, (nodes * here_s - there_s) / (nodes * work_s + work_s + way_s))
        if share <= 0:
            break
        here_s, there_s = here_s - share * work_s, there_s + share * (work_s + way_s)
    return max(here_s / cores, there_s / cores / nodes)


def bound_by_size_s(workload: Workload, cores: int, sizes_gib: Sequence[float]) -> float:
    """The phases that only some machines can hold, on all cores of those."""
    phases = [phase for unit in workload.units for phase in unit.phases]
    bounds_s = [0.0]
    for size_mib in (1024 * each for each in set(sizes_gib)):
        larger_s = sum(phase.wall_s for phase in phases if phase.peak_mib > size_mib)
        machines = sum(1024 * each > size_mib for each in sizes_gib)
        bounds_s += [larger_s / cores / machines] if machines else []
    return max(bounds_s)


def _work_s(workload: Workload) -> float:
    return sum(phase.wall_s for unit in workload.units for phase in unit.phases)
