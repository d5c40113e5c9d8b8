"""Builds that must end by a time (``--until``), simulated: what of their time is kept, and how many it takes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec

from builddoctor.core.settings import SchedulerSettings
from builddoctor.estimation.estimator import LearningEstimator
from builddoctor.scheduler.budget import slots, window
from builddoctor.scheduler.scheduler import Scheduler
from builddoctor.simulate.engine import Known, simulate
from builddoctor.simulate.result import Host, Rules
from builddoctor.simulate.workload import Workload
from support.measured_builds import from_digest
from support.workloads import cold, warm, without_links

SIZES = ((2, 6.0), (4, 8.0), (8, 8.0))
LIMITS_S = (60.0, 120.0, 180.0, 240.0, 480.0)
SLOWER = 4.0
MOST_RUNS = 60


def until(data: Path) -> list[str]:
    """Lines of a report."""
    work = without_links(from_digest(data))
    slow, longest_s = _slower(work), max(unit.wall_s for unit in work.units)
    columns = (
        "cores, GiB",
        "limit s",
        "kept, first build ever",
        "kept, known",
        "builds, known",
        "kept, slower",
        "builds",
    )
    lines = [
        f"{work.name}: {len(work.units)} units, {work.work_s:.0f} s of work, the longest {longest_s:.0f} s. Each build",
        "ends by the time that is named, and the next goes on with those that are left. *Kept*: the work of units that",
        "ended, of all cores' time in the first build. *Builds*: that it takes; never: one ended no unit. *Slower*: a",
        f"machine on which all takes {SLOWER:.0f} times as long as in the history, and the limit is that much longer.",
        "",
        f"| {' | '.join(columns)} |",
        "|" + " --- |" * len(columns),
    ]
    for cores, gib in SIZES:
        for limit_s in LIMITS_S:
            first, _ = _build(work, cold(work), cores, gib, limit_s)
            row = [f"{_kept(first, cores, limit_s):.0%}"]
            for each, by_s in ((work, limit_s), (slow, SLOWER * limit_s)):
                done, _ = _build(each, warm(work), cores, gib, by_s)
                row += [f"{_kept(done, cores, by_s):.0%}", _builds(each, work, cores, gib, by_s)]
            lines.append(f"| {cores}, {gib:g} | {limit_s:.0f} | " + " | ".join(row) + " |")
    return lines


def _slower(work: Workload) -> Workload:
    units = []
    for unit in work.units:
        phases = tuple(msgspec.structs.replace(phase, wall_s=SLOWER * phase.wall_s) for phase in unit.phases)
        units.append(msgspec.structs.replace(unit, phases=phases))
    return msgspec.structs.replace(work, units=tuple(units))


def _kept(done: Workload, cores: int, limit_s: float) -> float:
    return done.work_s / (cores * limit_s)


def _builds(work: Workload, known: Workload, cores: int, gib: float, limit_s: float) -> str:
    builds = 0
    while work.units and builds < MOST_RUNS:
        names = {unit.name for unit in work.units}
        past = msgspec.structs.replace(known, units=tuple(unit for unit in known.units if unit.name in names))
        done, work = _build(work, warm(past), cores, gib, limit_s)
        if not done.units:
            return "never"
        builds += 1
    return str(builds)


def _build(work: Workload, known: Known, cores: int, gib: float, limit_s: float) -> tuple[Workload, Workload]:
    """Units that ended, and those that are left."""
    host = Host(cores=cores, limit_mib=1024 * gib)
    jobs = window(cores, host.budget_mib)
    settings = SchedulerSettings(slots=slots(cores), budget_mib=host.budget_mib, most_open=jobs, until_s=limit_s)
    rules = Rules(growth="ramp", sample_s=0.5, quiet_s=0.5, jobs=jobs, held=True, gap_s=0.05)
    result = simulate(work, Scheduler(settings, LearningEstimator()), host, rules, known=known)
    ended = Counter(phase.unit for phase in result.phases)
    done = tuple(unit for unit in work.units if ended[unit.name] >= len(unit.phases))
    left = tuple(unit for unit in work.units if ended[unit.name] < len(unit.phases))
    return msgspec.structs.replace(work, units=done), msgspec.structs.replace(work, units=left)
