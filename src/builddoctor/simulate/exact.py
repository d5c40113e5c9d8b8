"""An estimator that knows every phase as it is: the best that any history could say.

Does *not* cover: a workload that differs from the one it was made of, except by the sizes of its phases.
"""

from __future__ import annotations

from collections.abc import Sequence

from builddoctor.model.phase import Estimate, Outcome, Phase
from builddoctor.policy.estimator import RAISE_FACTOR
from builddoctor.policy.order import ExpectedPhase
from builddoctor.simulate.workload import PhaseWork, Workload, unit_id


class ExactEstimator:
    """Peaks and times of ``workload``. Phases are told apart by their unit and the order in which it asks for them.

    ``margin``: the bound lies this share above the peak.
    """

    def __init__(self, workload: Workload, *, margin: float = 0.0) -> None:
        self._phases = {unit_id(index): unit.phases for index, unit in enumerate(workload.units)}
        self._margin = margin
        self._asked: dict[str, int] = {}
        self._at: dict[int, int] = {}
        self._floor_mib: dict[int, float] = {}

    @property
    def pace(self) -> float:
        return 1.0

    def estimate(self, phase: Phase) -> Estimate:
        work = self._remaining(phase)[0]
        floor_mib = self._floor_mib.get(phase.phase_id, 0.0)
        if floor_mib > work.peak_mib * (1.0 + self._margin):
            return Estimate(peak_mib=floor_mib, spread_mib=0.0, source="raised after a kill")
        return Estimate(peak_mib=work.peak_mib, spread_mib=self._margin * work.peak_mib, source="exact")

    def observe(self, phase: Phase, *, outcome: Outcome, peak_mib: float, wall_s: float) -> None:
        """Nothing to learn."""

    def raise_after_kill(self, phase: Phase, *, peak_mib: float, reserved_mib: float) -> Estimate:
        floor_mib = RAISE_FACTOR * max(peak_mib, reserved_mib)
        self._floor_mib[phase.phase_id] = max(floor_mib, self._floor_mib.get(phase.phase_id, 0.0))
        return self.estimate(phase)

    def remaining_s(self, phase: Phase) -> float:
        return sum(each.wall_s for each in self._remaining(phase))

    def wall_s(self, phase: Phase) -> float:
        """Time of this phase alone."""
        return self._remaining(phase)[0].wall_s

    def outlook(self, unit_id: str, phase: Phase | None) -> Sequence[ExpectedPhase]:
        works = self._phases[unit_id] if phase is None else self._remaining(phase)[1:]
        return [ExpectedPhase(each.peak_mib, self._margin * each.peak_mib, each.wall_s) for each in works]

    def _remaining(self, phase: Phase) -> tuple[PhaseWork, ...]:
        at = self._at.get(phase.phase_id)
        if at is None:
            at = self._at[phase.phase_id] = self._asked.get(phase.unit_id, 0)
            self._asked[phase.unit_id] = at + 1
        return self._phases[phase.unit_id][at:]
