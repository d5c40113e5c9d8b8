"""A build with other machines, simulated: what they bring, and how far that is from perfect."""

from __future__ import annotations

from pathlib import Path

from builddoctor.core.plan import PlanNode
from builddoctor.core.settings import SchedulerSettings
from builddoctor.estimation.estimator import LearningEstimator
from builddoctor.scheduler.budget import slots, window
from builddoctor.scheduler.scheduler import Scheduler
from builddoctor.simulate.engine import simulate
from builddoctor.simulate.result import Host, Result, Rules
from builddoctor.simulate.with_nodes import WAY_S, WAY_S_PER_MIB, all_seen, as_sent, with_ways
from builddoctor.simulate.workload import Workload
from support.measured_builds import from_digest
from support.workloads import cold, disturbed, warm, without_links

DATA = Path(__file__).resolve().parents[1] / "tests" / "data" / "te-2.8-sm100-curves.csv"
SIZES = ((1, 6.0, (0, 1, 3, 7, 15, 31)), (4, 8.0, (0, 1, 3, 7)))
"""(cores, GiB) of each machine, and how many there are beside the one that builds."""

BUILDS = 4


def built(workload: Workload, past: Workload | None, cores: int, gib: float, nodes: int) -> Result:
    """One build as it ships; ``past``: the earlier one, or None."""
    host = Host(cores=cores, limit_mib=1024 * gib)
    jobs = window(cores * (1 + nodes), host.budget_mib)
    settings = SchedulerSettings(slots=slots(cores), budget_mib=host.budget_mib, most_open=jobs)
    rules = with_ways(Rules(sample_s=0.25, quiet_s=1.0, held=True, jobs=jobs))
    first = all_seen([PlanNode(cores=cores, budget_mib=host.budget_mib)] * nodes)
    known = warm(past) if past is not None else cold(workload)
    return simulate(workload, Scheduler(settings, LearningEstimator()), host, rules, first=first, known=known)


def cluster() -> list[str]:
    """Lines of a report."""
    measured = without_links(from_digest(DATA))
    work_s = _work_s(measured)
    chain_s = max(sum(phase.wall_s for phase in unit.phases) for unit in measured.units)
    told = (
        f"TransformerEngine 2.8 for sm_100, measured curves ({DATA.name}): {len(measured.units)} units, "
        f"{work_s:.0f} s of work, the longest unit {chain_s:.0f} s. Simulated, as it ships; mean of {BUILDS} builds, "
        "peaks moved by up to 2 % and times by up to 10 %. All machines have the same size; one of them builds, and "
        "preprocesses for all. First: nothing is known. Later: an earlier build is. *Perfect* is the work on all "
        "cores, or the longest unit; no way there, no limit of memory. A phase's way takes "
        f"{WAY_S} s and {1000 * WAY_S_PER_MIB:.0f} ms a MiB.\n"
    )
    lines = [
        told,
        "| machines | cores, GiB each | perfect | first build | of perfect | later build | of perfect | kernel kills |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for cores, gib, counts in SIZES:
        for nodes in counts:
            perfect_s = max(work_s / cores / (1 + nodes), chain_s)
            row, kills = [], 0
            for knows in (False, True):
                results = []
                for seed in range(BUILDS):
                    today = disturbed(measured, share=0.02, times=0.10, seed=seed)
                    sent = as_sent(today) if nodes else today
                    past = (as_sent(measured) if nodes else measured) if knows else None
                    results.append(built(sent, past, cores, gib, nodes))
                assert not any(each.failure or each.unfinished for each in results)
                kills += sum(each.kernel_kills for each in results)
                mean_s = sum(each.makespan_s for each in results) / BUILDS
                row += [f"{mean_s:.0f}", f"{100 * perfect_s / mean_s:.0f} %"]
            lines.append(f"| {1 + nodes} | {cores}, {gib:g} | {perfect_s:.0f} | {' | '.join(row)} | {kills} |")
    return lines


def _work_s(workload: Workload) -> float:
    return sum(phase.wall_s for unit in workload.units for phase in unit.phases)
