"""The recorded build once more, at other memory limits and cores. Pure.

Covers: a workload from what was recorded, and a table of limits and cores, as many as can be answered in some seconds.
Units go by length, without the search for a better order that production makes: it would take ten times as long, and
shortens a build by some percent.
Does *not* cover: threads of nvcc, other users of the machine, sharing of caches and memory bandwidth.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from builddoctor.core.phase import Outcome, PhaseKind
from builddoctor.core.plan import Scenario, WhatIf
from builddoctor.scheduler.budget import slots
from builddoctor.simulate.baselines import fixed
from builddoctor.simulate.engine import SLACK_MIB
from builddoctor.simulate.result import Host, Result, Rules
from builddoctor.simulate.shipped import ExactEstimator, as_shipped, shipped_jobs
from builddoctor.simulate.workload import PhaseWork, UnitWork, Workload
from builddoctor.trace.picture import Picture, Run

TABLES = (
    ((0.5, 0.75, 1.0, 1.5, 2.0), (0.5, 1.0, 2.0)),
    ((0.5, 1.0, 2.0), (0.5, 1.0, 2.0)),
    ((0.5, 1.0, 2.0), (1.0, 2.0)),
    ((0.5, 1.0, 2.0), (1.0,)),
    ((1.0,), (1.0,)),
)
"""limits and cores as shares of what was, from the richest table down"""

MOST_WORK = 30_000
"""phases times scenarios: some five seconds"""

MOST_LOOKS = 30_000
"""at memory, in a build on one core: four a second, and fewer in a build of hours"""

MOST_WORK_S = 1e7
MOST_PEAK_MIB = 1e8
"""A trace with more in it is no build's."""

MOST_CORES = 4096
ROUND_MIB = 256.0
BETWEEN_PHASES_S = 0.04
"""nvcc, shell and gate between two phases (docs/adr/0011)"""

KILLED = (Outcome.KILLED_BY_KERNEL, Outcome.KILLED_BY_US)
BEYOND = 1.02
"""What was killed for memory, and never ran to its end, needs more than there was."""

MARGIN = 0.1
"""above the recorded peak: a second build knows the first, and expects no less"""


def what_if(picture: Picture) -> WhatIf | None:
    """The table; None when nothing was recorded that could run again."""
    header = picture.header
    limit_mib = picture.moments[-1].limit_mib if picture.moments else header.limit_mib
    workload, at_least, left_out = _workload(picture, limit_mib)
    if left_out:
        return WhatIf(
            scenarios=(), cores=(), limits_mib=(), phases=workload.phases, at_least=at_least, left_out=left_out
        )
    if not workload.units or limit_mib <= 0 or workload.work_s > MOST_WORK_S or workload.peak_mib > MOST_PEAK_MIB:
        return None
    was = min(max(1, header.cores), MOST_CORES)
    cores, limits = _axes(was, limit_mib, workload.phases)
    workload = steady(workload, running=slots(max(cores)))
    sample_s = max(Rules().sample_s or 0.0, workload.work_s / MOST_LOOKS)
    scenarios = []
    for each_mib in limits:
        for count in cores:
            host = Host(cores=count, limit_mib=each_mib)
            rules = Rules(
                growth="ramp",
                jobs=shipped_jobs(host),
                gap_s=BETWEEN_PHASES_S,
                sample_s=sample_s,
                quiet_s=max(Rules().quiet_s, sample_s),
            )
            exact = ExactEstimator(workload, margin=MARGIN, growth=rules.growth)
            ours = as_shipped(workload, host, estimator=exact, rules=rules)
            plain = fixed(workload, host, count, msgspec.structs.replace(rules, jobs=count))
            scenarios.append(
                Scenario(
                    cores=count,
                    limit_mib=each_mib,
                    as_it_was=count == was and each_mib == limit_mib,
                    makespan_s=round(ours.makespan_s, 1) if ours.completed else None,
                    problem=_problem(ours),
                    redone=ours.requeued,
                    plain_s=round(plain.makespan_s, 1) if plain.completed else None,
                )
            )
    return WhatIf(
        scenarios=tuple(scenarios),
        cores=tuple(cores),
        limits_mib=tuple(limits),
        phases=workload.phases,
        at_least=at_least,
        left_out=left_out,
    )


def steady(workload: Workload, *, running: int, last_s: float | None = None) -> Workload:
    """No phase grows so fast that times, as floating-point numbers, cannot tell when memory runs out.

    ``last_s``: how long the build may take, where that is less than its work on one core.
    """
    finest_s = math.ulp(4 * (workload.work_s if last_s is None else last_s) + 1)
    most_mib_s = SLACK_MIB / 2 / finest_s / running
    units = []
    for unit in workload.units:
        phases = (
            msgspec.structs.replace(phase, wall_s=max(phase.wall_s, phase.peak_mib / most_mib_s))
            for phase in unit.phases
        )
        units.append(msgspec.structs.replace(unit, phases=tuple(phases)))
    return msgspec.structs.replace(workload, units=tuple(units))


def _axes(cores: int, limit_mib: float, phases: int) -> tuple[list[int], list[float]]:
    """What was, and around it as much as there is time for."""
    shares, factors = next((pair for pair in TABLES if phases * len(pair[0]) * len(pair[1]) <= MOST_WORK), TABLES[-1])
    limits = {limit_mib if share == 1.0 else _rounded(limit_mib * share) for share in shares}
    return sorted({max(1, round(cores * factor)) for factor in factors}), sorted(limits)


def _rounded(limit_mib: float) -> float:
    return max(ROUND_MIB, round(limit_mib / ROUND_MIB) * ROUND_MIB)


def _problem(result: Result) -> str:
    if result.completed:
        return ""
    if result.failure is None:
        return "it would not come to an end"
    return f"{result.failure.kind.value} of {result.failure.unit.rpartition('/')[2]} does not fit"


def _workload(picture: Picture, limit_mib: float) -> tuple[Workload, int, str]:
    """All phases in their units; how many of them were stopped; what is left out."""
    units: dict[str, dict[int, Run]] = {}
    runaways = 0
    ran_away = picture.summary is not None and picture.summary.verdict == "runaway"
    for run in picture.runs:
        if run.counted and _kind(run.kind) is not None:
            units.setdefault(run.unit_id or f"phase {run.phase_id}", {})[run.phase_id] = run
    at_least = 0
    found = []
    for unit_id, runs in units.items():
        phases = []
        for run in runs.values():
            ended = run.outcome in (Outcome.OK, Outcome.FAILED)
            if not ended and ran_away and run.outcome == Outcome.KILLED_BY_US:
                runaways += 1
                continue
            at_least += not ended
            phases.append(_phase(run, least_mib=BEYOND * limit_mib if run.outcome in KILLED else 0.0))
        if phases:
            found.append(_unit(next(iter(runs.values())).source or unit_id, phases))
    left_out = f"{runaways} phase that ran away: no limit is enough for it" if runaways else ""
    return Workload(name=picture.header.title, units=tuple(_links_last(found))), at_least, left_out


def _links_last(units: Iterable[UnitWork]) -> Sequence[UnitWork]:
    return sorted(units, key=lambda unit: unit.after_all)


def _unit(name: str, phases: list[PhaseWork]) -> UnitWork:
    links = all(phase.kind is PhaseKind.LINK for phase in phases)
    archs = sorted({phase.arch for phase in phases if phase.arch})
    return UnitWork(name=name, source="" if links else name, archs=tuple(archs), phases=tuple(phases), after_all=links)


def _phase(run: Run, *, least_mib: float) -> PhaseWork:
    kind = _kind(run.kind)
    assert kind is not None, "runs of no known kind were left out"
    return PhaseWork(
        kind=kind,
        arch=run.arch,
        input_mib=max(0.0, run.input_mib),
        peak_mib=max(0.0, run.peak_mib, least_mib),
        wall_s=max(0.0, run.cpu_s or run.end_s - run.start_s),
        tool=run.tool,
    )


def _kind(name: str) -> PhaseKind | None:
    return PhaseKind(name) if name in PhaseKind._value2member_map_ else None
