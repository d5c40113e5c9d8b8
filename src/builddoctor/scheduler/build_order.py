"""The order of units: the longest remaining path first; where that is a guess, memory counts beside it. Pure.

Covers: priorities of phases and units.
Does *not* cover: admission itself (``scheduler.admission``), or what is expected of units (``estimation.estimator``).

What takes more memory mostly takes longer than was guessed. With a bounded local search over orders builds were 4 to
8 % shorter where times are exact and phases flat; with real courses, and times that are off by a tenth, no order that
was found beats this one (docs/adr/0034).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from builddoctor.core.phase import ExpectedPhase, Phase, PhaseKind, Unit
from builddoctor.estimation.estimator import Estimator

MEMORY_SHARE = 0.5
"""How much a unit's memory-time counts beside its time, in cores: memory over the budget times all slots. First builds
of TransformerEngine at (16, 16) take 217 s with none of it, 186 with a half, 197 with as much again."""


class BuildOrder:
    """Priorities of one build's units."""

    def __init__(self, remaining_s: Callable[[Phase], float], *, slots: int) -> None:
        self._remaining_s = remaining_s
        self._slots = slots
        self._weights: dict[str, float] = {}

    def weigh(self, unit_id: str, to_come: Iterable[ExpectedPhase], *, budget_mib: float) -> None:
        """What is guessed of a unit from now on; of one that is known there is nothing to say."""
        work_s = memory_s = 0.0
        for each in to_come:
            work_s += each.wall_s
            memory_s += each.wall_s * each.peak_mib
        if budget_mib * work_s > 0.0:
            memory_cores = self._slots * min(1.0, memory_s / (budget_mib * work_s))
            self._weights[unit_id] = 1.0 + MEMORY_SHARE * memory_cores

    def ended(self, unit_id: str) -> None:
        """Nothing of it will be asked again."""
        self._weights.pop(unit_id, None)

    def priority(self, phase: Phase) -> float:
        """Higher starts first."""
        return self.urgency(phase.unit_id, self._remaining_s(phase))

    def urgency(self, unit_id: str, left_s: float) -> float:
        """Priority of a unit with this much to go: seconds, by its weight."""
        return self._weights.get(unit_id, 1.0) * left_s


def whole_s(estimator: Estimator, unit: Unit) -> float:
    """Time that a unit takes, its phases one after the other."""
    if known := estimator.outlook(unit.unit_id, None):
        return sum(each.wall_s for each in known)
    first = Phase(phase_id=0, unit_id=unit.unit_id, kind=PhaseKind.PREPROCESS, source=unit.source)
    return estimator.remaining_s(first)
