"""All that is known of what is still to come of a build: what the search for an order is given. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet

from builddoctor.model.phase import Phase, PhaseKind, Unit
from builddoctor.policy.estimator import Estimator
from builddoctor.policy.line import Waiting
from builddoctor.policy.order import ExpectedPhase, UnitToCome
from builddoctor.policy.running import Running, risk_share


def whole_s(estimator: Estimator, unit: Unit) -> float:
    """Time that a unit takes, its phases one after the other."""
    if known := estimator.outlook(unit.unit_id, None):
        return sum(each.wall_s for each in known)
    first = Phase(phase_id=0, unit_id=unit.unit_id, kind=PhaseKind.PREPROCESS, source=unit.source)
    return estimator.remaining_s(first)


def rest_of_units(
    running: Iterable[Running],
    waiting: Iterable[Waiting],
    units: AbstractSet[str],
    estimator: Estimator,
    *,
    evenness: Callable[[PhaseKind], float],
    now_s: float,
) -> list[UnitToCome]:
    """By unit, in the order of their names: the rest of what runs, what waits, and what follows as far as known.

    Of spreads only what admission sets aside for them.
    """

    def expected(kind: PhaseKind, peak_mib: float, spread_mib: float, wall_s: float) -> ExpectedPhase:
        return ExpectedPhase(peak_mib, risk_share(evenness(kind)) * spread_mib, wall_s)

    def outlook(unit_id: str, phase: Phase | None) -> list[ExpectedPhase]:
        # What comes is taken to grow as what is there does: its own kind is not told.
        kind = PhaseKind.PREPROCESS if phase is None else phase.kind
        return [
            expected(kind, each.peak_mib, each.spread_mib, each.wall_s) for each in estimator.outlook(unit_id, phase)
        ]

    begun: dict[str, list[ExpectedPhase]] = {}
    runs: set[str] = set()
    for run in running:
        phase = run.phase
        left_s = max(0.0, estimator.wall_s(phase) - (now_s - run.admitted_at_s))
        own = expected(phase.kind, run.expected_mib, run.spread_mib, left_s)
        runs.add(phase.unit_id)
        begun[phase.unit_id] = [own, *outlook(phase.unit_id, phase)]
    for each in waiting:
        phase = each.phase
        if phase.unit_id not in begun:
            estimate = each.estimate
            own = expected(phase.kind, estimate.peak_mib, estimate.spread_mib, estimator.wall_s(phase))
            begun[phase.unit_id] = [own, *outlook(phase.unit_id, phase)]
    for unit_id in units - begun.keys():
        begun[unit_id] = outlook(unit_id, None)
    return [
        UnitToCome(unit_id=unit_id, phases=tuple(phases), running=unit_id in runs)
        for unit_id, phases in sorted(begun.items())
        if phases
    ]
