"""What one earlier build of a workload teaches, as the history would tell the estimator.

Does *not* cover: the history's file (``history``). The simulator touches no system.
"""

from __future__ import annotations

from builddoctor.model.past import PastPhase, PastUnit, Seen, UnitKey
from builddoctor.model.phase import PhaseKind
from builddoctor.policy.estimator import LearningEstimator
from builddoctor.simulate.workload import UnitWork, Workload, unit_id


def cold(workload: Workload) -> LearningEstimator:
    """Knows nothing but priors, and for which architectures each unit is compiled."""
    return _estimator(workload, past=False)


def warm(workload: Workload) -> LearningEstimator:
    """Knows one earlier build of exactly this workload."""
    return _estimator(workload, past=True)


def _estimator(workload: Workload, *, past: bool) -> LearningEstimator:
    estimator = LearningEstimator()
    for index, unit in enumerate(workload.units):
        key = UnitKey(project=workload.name, place=unit.source or unit.name, output=unit.name, archs=unit.archs)
        estimator.know(unit_id(index), key=key, past=_past(key, unit) if past else None, archs=unit.archs)
    return estimator


def _past(key: UnitKey, unit: UnitWork) -> PastUnit:
    seen: dict[tuple[PhaseKind, str, str], list[Seen]] = {}
    for each in unit.phases:
        figures = Seen(input_mib=each.input_mib, peak_mib=each.peak_mib, wall_s=each.wall_s)
        seen.setdefault((each.kind, each.arch, each.tool), []).append(figures)
    return PastUnit(
        key=key,
        phases=tuple(
            PastPhase(kind=kind, arch=arch, tool=tool, seen=tuple(found)) for (kind, arch, tool), found in seen.items()
        ),
    )
