"""What happens to the governor. Times are seconds on any monotonic clock, sizes MiB."""

from __future__ import annotations

import msgspec

from builddoctor.model.phase import Estimate, Outcome, Phase, Unit


class UnitRegistered(msgspec.Struct, frozen=True, kw_only=True):
    """A compiler driver began a unit."""

    unit: Unit
    held: bool = False
    """it waits at its gate for ``OpenUnit``"""


class UnitEnded(msgspec.Struct, frozen=True, kw_only=True):
    """The driver of a unit ended."""

    unit_id: str


class PhaseAsked(msgspec.Struct, frozen=True, kw_only=True):
    """A gate asks to start its tool."""

    phase: Phase
    estimate: Estimate | None = None
    """where it was asked for just before: ``Governor.estimate``"""
    solo: bool = False
    """it must run alone: it was given up for its size, and is tried once more in another way"""


class PhaseEnded(msgspec.Struct, frozen=True, kw_only=True):
    """A tool ended, or its gate went away."""

    phase_id: int
    outcome: Outcome
    peak_mib: float
    wall_s: float
    share_mib: float = float("inf")
    """beside other builds, what may be promised now that it has ended, if that is less than it was"""


class Sampled(msgspec.Struct, frozen=True, kw_only=True):
    """A look at memory: what running phases hold, and what is left at the tightest level."""

    rss_mib: tuple[tuple[int, float], ...]
    """(phase_id, anonymous resident memory) of the running phases that were looked at; the others hold still"""
    headroom_mib: float
    budget_mib: float
    reserve_mib: float
    share_mib: float = float("inf")
    """what phases may be promised together beside other builds (``policy.sharing``), the first one included; infinite
    when there are none"""
    cpu_s: tuple[tuple[int, float], ...] = ()
    """(phase_id, processor time so far) of phases that ``Governor.suspects`` named"""
    reason: str = ""
    """why headroom is taken to be less than what is free, where it is"""


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """Time passed."""


Event = UnitRegistered | UnitEnded | PhaseAsked | PhaseEnded | Sampled | Tick
