"""What the governor wants done. Carried out by ``supervise``; in simulation by nobody."""

from __future__ import annotations

import msgspec

from builddoctor.model.phase import Estimate


class Admit(msgspec.Struct, frozen=True, kw_only=True):
    """Let this phase start (or start again)."""

    phase_id: int
    estimate: Estimate
    alone: bool
    """nothing else ran when it was admitted"""


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """This phase waits for memory; said once when it begins to wait, and again when the reason changes."""

    phase_id: int
    needs_mib: float
    free_mib: float
    reason: str


class Kill(msgspec.Struct, frozen=True, kw_only=True):
    """End this running phase now; what becomes of it is decided when it has ended."""

    phase_id: int
    reason: str


class Requeue(msgspec.Struct, frozen=True, kw_only=True):
    """This phase died for memory and will run again with this estimate."""

    phase_id: int
    estimate: Estimate
    solo: bool
    """it will run alone"""


class GiveUp(msgspec.Struct, frozen=True, kw_only=True):
    """This phase cannot be saved: the build gets its failure."""

    phase_id: int
    verdict: str
    reason: str


class OpenUnit(msgspec.Struct, frozen=True, kw_only=True):
    """Let this unit, which waits at its gate, become nvcc."""

    unit_id: str
    threads: int
    """for nvcc's ``--threads``; 0 leaves it as the build gave it"""


class Warn(msgspec.Struct, frozen=True, kw_only=True):
    """Something the user should know."""

    text: str


Action = Admit | Hold | Kill | Requeue | GiveUp | OpenUnit | Warn
