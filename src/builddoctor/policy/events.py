"""What happens to the governor. Times are seconds on any monotonic clock, sizes MiB."""

from __future__ import annotations

import msgspec

from builddoctor.model.phase import Outcome, Phase, Unit


class UnitRegistered(msgspec.Struct, frozen=True, kw_only=True):
    """A compiler driver began a unit."""

    unit: Unit


class UnitEnded(msgspec.Struct, frozen=True, kw_only=True):
    """The driver of a unit ended."""

    unit_id: str


class PhaseAsked(msgspec.Struct, frozen=True, kw_only=True):
    """A gate asks to start its tool."""

    phase: Phase


class PhaseEnded(msgspec.Struct, frozen=True, kw_only=True):
    """A tool ended, or its gate went away."""

    phase_id: int
    outcome: Outcome
    peak_mib: float
    wall_s: float


class Sampled(msgspec.Struct, frozen=True, kw_only=True):
    """A look at memory: what each running phase holds, and what is left at the tightest level."""

    rss_mib: tuple[tuple[int, float], ...]
    """(phase_id, anonymous resident memory) of running phases"""
    headroom_mib: float
    budget_mib: float
    reserve_mib: float
    cpu_s: tuple[tuple[int, float], ...] = ()
    """(phase_id, processor time so far) of phases that ``Governor.suspects`` named"""
    reason: str = ""
    """why headroom is taken to be less than what is free, where it is"""


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """Time passed."""


Event = UnitRegistered | UnitEnded | PhaseAsked | PhaseEnded | Sampled | Tick
