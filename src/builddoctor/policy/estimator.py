"""How much memory a phase will take.

Covers: the interface that the governor asks, and the first estimator behind it: priors by tool, the unit's own earlier
phases, and what this very build has taught.
Does *not* cover: history across builds and recipes; they will stand in front of the priors, behind this interface.

Priors are fits of 369 measured phases of TransformerEngine 2.8 for sm_100 (nvcc 13.0.88, gcc 12.2, x86-64):
``cicc`` = 2.37 x the unit's ``cudafe++`` - 550 MiB (R2 0.95), ``ptxas`` = 45 MiB + 29.2 MiB per MB of PTX (R2 0.97),
host compile = 0.90 x ``cudafe++`` - 49 MiB (R2 0.86). Input size says little of the front end (R2 0.32).
"""

from __future__ import annotations

from typing import Protocol

from builddoctor.model.phase import Estimate, Outcome, Phase, PhaseKind

RAISE_FACTOR = 1.5
"""A killed phase comes back with this much more than it held, or than was expected, whichever is more."""

MB_PER_MIB = 1.048576


class Estimator(Protocol):
    """What the governor needs to know of phases."""

    def estimate(self, phase: Phase) -> Estimate:
        """Peak memory expected of this phase."""
        ...

    def observe(self, phase: Phase, *, outcome: Outcome, peak_mib: float, wall_s: float) -> None:
        """Learn from a phase that ended."""
        ...

    def raise_after_kill(self, phase: Phase, *, peak_mib: float, reserved_mib: float) -> Estimate:
        """The estimate of a phase that died for memory; later estimates of the same phase are no lower."""
        ...

    def remaining_s(self, phase: Phase) -> float:
        """Time still to go in this phase's unit, from this phase on: the order of admission."""
        ...


def prior(phase: Phase, front_end_mib: float | None) -> Estimate:
    """First guess from the tool, the input's size, and the unit's ``cudafe++`` peak where it has run."""
    input_mb = phase.input_mib * MB_PER_MIB
    kind = phase.kind
    if kind is PhaseKind.PREPROCESS:
        peak, spread, source = 75.0, 40.0, "prior"
    elif kind is PhaseKind.CUDAFE:
        peak, spread, source = 176.0 + 77.0 * input_mb, 150.0, "prior: input size"
    elif kind is PhaseKind.CICC and front_end_mib is not None:
        peak = max(180.0, 2.37 * front_end_mib - 550.0)
        spread, source = 60.0 + 0.15 * peak, "front end of the unit"
    elif kind is PhaseKind.CICC:
        peak, spread, source = 136.0 + 130.0 * input_mb, 400.0, "prior: input size"
    elif kind is PhaseKind.PTXAS:
        peak = 45.0 + 29.2 * input_mb
        spread, source = 50.0 + 0.1 * peak, "prior: PTX size"
    elif kind is PhaseKind.HOST and front_end_mib is not None:
        peak = max(190.0, 0.90 * front_end_mib - 49.0)
        spread, source = 60.0 + 0.15 * peak, "front end of the unit"
    elif kind is PhaseKind.HOST:
        peak, spread, source = 260.0, 300.0, "prior"
    else:
        peak, spread, source = 170.0, 150.0, "prior"
    return Estimate(peak_mib=peak, spread_mib=spread, source=source)


class PriorEstimator:
    """Priors, sharpened by what this build has shown."""

    def __init__(self) -> None:
        self._front_end_mib: dict[str, float] = {}
        self._front_end_s: dict[str, float] = {}
        self._seen_mib: dict[tuple[str, PhaseKind], float] = {}
        self._floor_mib: dict[tuple[str, PhaseKind, str, str], float] = {}

    def estimate(self, phase: Phase) -> Estimate:
        seen = self._seen_mib.get((phase.unit_id, phase.kind))
        if seen is not None and phase.kind in (PhaseKind.CICC, PhaseKind.PTXAS):
            # The same unit's earlier arch: much the same code again.
            estimate = Estimate(peak_mib=seen, spread_mib=40.0 + 0.15 * seen, source="the unit's other arch")
        else:
            estimate = prior(phase, self._front_end_mib.get(phase.unit_id))
        floor = self._floor_mib.get(_key(phase), 0.0)
        if floor > estimate.reserve_mib:
            return Estimate(peak_mib=floor, spread_mib=0.0, source="raised after a kill")
        return estimate

    def observe(self, phase: Phase, *, outcome: Outcome, peak_mib: float, wall_s: float) -> None:
        if outcome not in (Outcome.OK, Outcome.FAILED):
            return
        key = (phase.unit_id, phase.kind)
        self._seen_mib[key] = max(peak_mib, self._seen_mib.get(key, 0.0))
        if phase.kind is PhaseKind.CUDAFE:
            self._front_end_mib[phase.unit_id] = peak_mib
            self._front_end_s[phase.unit_id] = wall_s

    def raise_after_kill(self, phase: Phase, *, peak_mib: float, reserved_mib: float) -> Estimate:
        key = _key(phase)
        self._floor_mib[key] = max(self._floor_mib.get(key, 0.0), RAISE_FACTOR * max(peak_mib, reserved_mib))
        return self.estimate(phase)

    def remaining_s(self, phase: Phase) -> float:
        # The front end's time stands for the rest of its unit; before it ran, the input's size has to do.
        front_end_s = self._front_end_s.get(phase.unit_id, 0.2 * phase.input_mib)
        shares = {PhaseKind.CUDAFE: 8.0, PhaseKind.CICC: 7.0, PhaseKind.PTXAS: 4.0, PhaseKind.HOST: 3.0}
        return front_end_s * shares.get(phase.kind, 0.0)


def _key(phase: Phase) -> tuple[str, PhaseKind, str, str]:
    return (phase.unit_id, phase.kind, phase.arch, phase.source)
