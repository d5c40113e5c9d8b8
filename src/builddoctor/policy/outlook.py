"""What is still to come of a unit, by its past: phases in order, with sizes and times. Pure.

Does *not* cover: units without a past (nobody knows then, and nothing is returned), or the time of a unit as a whole
(``policy.durations``). Preprocessing is left out: it is short, and each unit has it before each front end.
"""

from __future__ import annotations

from collections.abc import Sequence

from builddoctor.model.past import PastPhase
from builddoctor.model.phase import Phase, PhaseKind
from builddoctor.policy.clues import UnitNotes
from builddoctor.policy.order import ExpectedPhase
from builddoctor.policy.past import median

RANK = {
    PhaseKind.PREPROCESS: 0,
    PhaseKind.CUDAFE: 1,
    PhaseKind.CICC: 2,
    PhaseKind.PTXAS: 2,
    PhaseKind.HOST: 3,
    PhaseKind.NVLINK: 4,
    PhaseKind.LINK: 5,
}
"""The order of a unit; cicc and ptxas take turns from architecture to architecture."""

SPREAD_SHARE = 0.01
SPREAD_MIB = 5.0


def to_come(notes: UnitNotes, phase: Phase | None) -> Sequence[ExpectedPhase]:
    """Phases after ``phase`` (None: all), in order; empty for a unit without a past."""
    if notes.past is None:
        return ()
    seen = {(each.phase.kind, each.phase.arch) for each in notes.done}
    rank = -1
    if phase is not None:
        seen.add((phase.kind, phase.arch))
        rank = RANK[phase.kind] if phase.kind is not PhaseKind.PREPROCESS else -1
    left = [
        each
        for each in notes.past.phases
        if each.seen
        and each.kind is not PhaseKind.PREPROCESS
        and (each.kind, each.arch) not in seen
        and RANK[each.kind] >= rank
    ]
    return [_expected(each) for each in sorted(left, key=lambda each: (RANK[each.kind], _turn(each)))]


def _turn(past: PastPhase) -> tuple[str, bool]:
    """``compute_90`` and ``sm_90`` are one architecture: cicc first, then ptxas."""
    return past.arch.rpartition("_")[2], past.kind is PhaseKind.PTXAS


def _expected(past: PastPhase) -> ExpectedPhase:
    peak_mib = median([each.peak_mib for each in past.seen])
    wall_s = median([each.wall_s for each in past.seen])
    return ExpectedPhase(peak_mib, SPREAD_SHARE * peak_mib + SPREAD_MIB, wall_s)
