"""How long phases take, and how long a unit still has to go: the order of admission.

Covers: first guesses by input and by the unit's earlier phases, one running factor a kind, and the unit's past, at the
pace of this build.
Does *not* cover: memory (``estimation.estimator``). First guesses are for the order alone: a factor common to all does
not matter to it, and one between kinds is learned in a few phases.
"""

from __future__ import annotations

import math

from builddoctor.core.phase import Phase, PhaseKind
from builddoctor.estimation.features import UnitNotes
from builddoctor.estimation.past import recall

PRIOR_WEIGHT = 4.0
UNSEEN = (0.0, PRIOR_WEIGHT, 1.0)
LARGEST_STEP = 2.0
"""One odd phase moves a factor by no more than this residual over the number seen."""

MEMORY = 50.0
"""Phases after which a factor follows with this much inertia."""

MOST_TOO_LONG = 4.0
"""What follows a front end is guessed by it. Of 395 units of 18 projects it took 0.26 to 6 times as long, by project
(docs/results/until.md)."""

PACE_PRIOR_S = 5.0
PACE_MEMORY = 0.99
SLOWEST_PACE, FASTEST_PACE = 5.0, 0.2
"""How much longer phases take than their past says: it begins as 1, worth so much work, and follows the last hundred or
so. Recipes give processor time, of another machine perhaps, and three phases on two cores take half as long again."""


class RunTimes:
    """Running factors of this build."""

    def __init__(self) -> None:
        self._factor: dict[tuple[PhaseKind, str], tuple[float, float, float]] = {}
        """(logarithm, how many phases it stands for, factor)"""
        self._then_s = self._now_s = PACE_PRIOR_S

    @property
    def pace(self) -> float:
        """What phases take in this build over what their pasts say."""
        return min(SLOWEST_PACE, max(FASTEST_PACE, self._now_s / self._then_s))

    def observe(self, phase: Phase, notes: UnitNotes, wall_s: float) -> None:
        """A phase took this long; called before the unit's notes know of it."""
        if not (math.isfinite(wall_s) and wall_s > 0):
            return
        if known_s := _known_s(phase, notes):
            self._then_s = PACE_MEMORY * self._then_s + known_s
            self._now_s = PACE_MEMORY * self._now_s + wall_s
        name = _name(phase.kind, notes)
        factor, count, _ = self._factor.get(name, UNSEEN)
        step = math.log(max(wall_s, 0.01) / self._first_guess_s(phase.kind, phase.input_mib, notes)) - factor
        count = min(count + 1, MEMORY)
        factor += max(-LARGEST_STEP, min(LARGEST_STEP, step)) / count
        self._factor[name] = (factor, count, math.exp(factor))

    def wall_s(self, phase: Phase, notes: UnitNotes) -> float:
        """Time expected of one phase."""
        if known_s := _known_s(phase, notes):
            return self.pace * known_s
        return self._guess_s(phase.kind, phase.input_mib, notes)

    def remaining_s(self, phase: Phase, notes: UnitNotes, *, keep: bool) -> float:
        """Time from the phase's start to the end of its unit, its phases one after the other.

        ``keep``: what is guessed now is the answer until the unit's notes change, though factors move on.
        """
        known = notes.remaining.get(phase.phase_id)
        if known is not None and known[0] == notes.version:
            return known[1] + self.pace * known[2]
        own_s, past_s = 0.0, _known_s(phase, notes)
        if not past_s:
            own_s = self._guess_s(phase.kind, phase.input_mib, notes)
        if notes.past is not None:
            past_s += sum(each.wall_s for each in notes.to_come(phase))
        else:
            own_s += self._later_s(phase, own_s, notes)
        if keep:
            notes.remaining[phase.phase_id] = (notes.version, own_s, past_s)
        return own_s + self.pace * past_s

    def least_s(self, phase: Phase, notes: UnitNotes) -> float:
        """The same; of a unit without a past, if the guess is as much too long as guesses have been."""
        least_s = self.remaining_s(phase, notes, keep=False)
        return least_s / MOST_TOO_LONG if notes.past is None else least_s

    def _guess_s(self, kind: PhaseKind, input_mib: float, notes: UnitNotes) -> float:
        return self._first_guess_s(kind, input_mib, notes) * self._factor.get(_name(kind, notes), UNSEEN)[2]

    def _first_guess_s(self, kind: PhaseKind, input_mib: float, notes: UnitNotes) -> float:
        """Fits of TransformerEngine's phases."""
        size = min(input_mib, 1e6) if input_mib > 0 else 0.0
        front_s = notes.front_end.wall_s if notes.front_end is not None else None
        if kind is PhaseKind.PREPROCESS:
            return 0.25
        if kind is PhaseKind.CUDAFE:
            return 0.1 + 0.25 * size
        if kind is PhaseKind.CICC:
            return 0.1 + (2.5 * front_s if front_s is not None else 0.6 * size)
        if kind is PhaseKind.PTXAS:
            return 0.05 + 1.0 * size
        if kind is PhaseKind.HOST and notes.cicc is not None:
            return 0.8 + 0.5 * notes.cicc_s
        if kind is PhaseKind.HOST and front_s is not None:
            return 0.5 + 1.5 * front_s
        return 2.5 if kind is PhaseKind.HOST else 1.0

    def _later_s(self, phase: Phase, own_s: float, notes: UnitNotes) -> float:
        """What follows in a CUDA unit that has no past: the other architectures, and the host compile."""
        kind = phase.kind
        if kind not in (PhaseKind.CUDAFE, PhaseKind.CICC, PhaseKind.PTXAS):
            return 0.0 if kind is not PhaseKind.PREPROCESS or notes.front_end is None else own_s
        to_go = max(0, notes.arch_count - sum(each.phase.kind is PhaseKind.PTXAS for each in notes.done))
        if kind is PhaseKind.CUDAFE:
            cicc_s = 2.5 * own_s
            return max(1, to_go) * 1.5 * cicc_s + 0.8 + 0.5 * cicc_s
        cicc_s = own_s if kind is PhaseKind.CICC else notes.cicc_s
        ptxas_s = 0.5 * own_s if kind is PhaseKind.CICC else 0.0
        host_s = self._guess_s(PhaseKind.HOST, 1.0, notes) if notes.cicc is not None else 0.8 + 0.5 * cicc_s
        return ptxas_s + max(0, to_go - 1) * 1.5 * cicc_s + host_s


def _known_s(phase: Phase, notes: UnitNotes) -> float:
    """What the phase took by its unit's past; 0 where that does not say."""
    if notes.past is None:
        return 0.0
    wall_s = notes.walls.get(phase.phase_id)
    if wall_s is None:
        known = recall(phase, notes.key, notes.past)
        wall_s = notes.walls[phase.phase_id] = known.wall_s if known is not None else 0.0
    return wall_s


def _name(kind: PhaseKind, notes: UnitNotes) -> tuple[PhaseKind, str]:
    """Which first guess it was."""
    return kind, "cicc" if notes.cicc is not None else "front end" if notes.front_end is not None else ""
