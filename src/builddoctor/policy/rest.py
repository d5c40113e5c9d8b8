"""All that is known of what is still to come of a build: what the search for an order is given. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from builddoctor.policy.estimator import Estimator
from builddoctor.policy.line import Waiting
from builddoctor.policy.order import ExpectedPhase, UnitToCome
from builddoctor.policy.running import Running


def rest_of_units(
    running: Iterable[Running],
    waiting: Iterable[Waiting],
    units: AbstractSet[str],
    estimator: Estimator,
    *,
    now_s: float,
) -> list[UnitToCome]:
    """By unit, in the order of their names: the rest of what runs, what waits, and what follows as far as known."""
    begun: dict[str, list[ExpectedPhase]] = {}
    runs: set[str] = set()
    for run in running:
        phase = run.phase
        left_s = max(0.0, estimator.wall_s(phase) - (now_s - run.admitted_at_s))
        own = ExpectedPhase(run.expected_mib, run.spread_mib, left_s)
        runs.add(phase.unit_id)
        begun[phase.unit_id] = [own, *estimator.outlook(phase.unit_id, phase)]
    for each in waiting:
        phase = each.phase
        if phase.unit_id not in begun:
            own = ExpectedPhase(each.estimate.peak_mib, each.estimate.spread_mib, estimator.wall_s(phase))
            begun[phase.unit_id] = [own, *estimator.outlook(phase.unit_id, phase)]
    for unit_id in units - begun.keys():
        begun[unit_id] = list(estimator.outlook(unit_id, None))
    return [
        UnitToCome(unit_id=unit_id, phases=tuple(phases), running=unit_id in runs)
        for unit_id, phases in sorted(begun.items())
        if phases
    ]
