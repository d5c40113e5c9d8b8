"""Short ways to make events of a trace, as tests write builds down: one call for what happens at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from builddoctor.core.events import (
    Admit,
    BuildEvent,
    GiveUp,
    Hold,
    HoldReason,
    Kill,
    KillReason,
    MemorySampled,
    PhaseAsked,
    PhaseEnded,
    Queue,
    Requeue,
    UnitBegan,
)
from builddoctor.core.evidence import KillCause
from builddoctor.core.past import UnitKey
from builddoctor.core.phase import Estimate, Outcome, Phase, PhaseKind, Unit
from builddoctor.core.verdict import Verdict

Events = BuildEvent | Iterable["Events"]


def events(*parts: Events) -> list[BuildEvent]:
    """All of them in one list, in order."""
    flat: list[BuildEvent] = []
    for part in parts:
        if isinstance(part, list | tuple):
            flat += events(*part)
        else:
            flat.append(part)  # type: ignore[arg-type]
    return flat


def estimate_of(peak_mib: float, reserve_mib: float, source: str = "prior") -> Estimate:
    return Estimate(peak_mib=peak_mib, spread_mib=round(reserve_mib - peak_mib, 1), source=source)


def unit_began(
    at_s: float,
    unit_id: str,
    source: str,
    *,
    output: str = "",
    archs: Sequence[str] = (),
    threads: int = 1,
    counted: bool = True,
    argv_digest: str = "",
    held: bool = False,
    key: UnitKey | None = None,
    target: str = "",
    source_digest: str = "",
) -> UnitBegan:
    unit = Unit(unit_id=unit_id, source=source, output=output, archs=tuple(archs), threads=threads, counted=counted)
    return UnitBegan(
        at_s=at_s,
        unit=unit,
        held=held,
        argv_digest=argv_digest,
        key=key,
        target=target,
        source_digest=source_digest,
    )


def phase_asked(
    at_s: float,
    phase_id: int,
    unit_id: str,
    kind: str,
    tool: str,
    source: str,
    *,
    arch: str = "",
    input_mib: float = 0.0,
    argv_digest: str = "",
    estimate_mib: float,
    reserve_mib: float,
    estimate_source: str = "prior",
) -> tuple[PhaseAsked, Queue]:
    """A gate asks, and the phase waits."""
    phase = Phase(
        phase_id=phase_id,
        unit_id=unit_id,
        kind=PhaseKind(kind),
        source=source,
        arch=arch,
        input_mib=input_mib,
        tool=tool,
    )
    estimate = estimate_of(estimate_mib, reserve_mib, estimate_source)
    return (
        PhaseAsked(at_s=at_s, phase=phase, argv_digest=argv_digest),
        Queue(at_s=at_s, phase_id=phase_id, estimate=estimate),
    )


def admitted(
    at_s: float,
    phase_id: int,
    reserve_mib: float,
    *,
    waited_s: float = 0.0,
    running: int = 1,
    estimate_mib: float | None = None,
    **more: Any,
) -> Admit:
    peak_mib = reserve_mib if estimate_mib is None else estimate_mib
    estimate = estimate_of(peak_mib, reserve_mib)
    return Admit(at_s=at_s, phase_id=phase_id, estimate=estimate, waited_s=waited_s, running=running, **more)


def sampled(at_s: float, phase_id: int, rss_mib: float, **more: Any) -> MemorySampled:
    """A look at one phase."""
    known = {"held_mib": rss_mib, "headroom_mib": 1000.0, "budget_mib": 3000.0, "reserve_mib": 100.0, **more}
    return MemorySampled(at_s=at_s, rss_mib=((phase_id, rss_mib),), **known)


def phase_ended(
    at_s: float,
    phase_id: int,
    outcome: str = "ok",
    *,
    peak_mib: float = 100.0,
    wall_s: float = 1.0,
    cpu_s: float = 1.0,
    cause: str = "",
    **more: Any,
) -> PhaseEnded:
    return PhaseEnded(
        at_s=at_s,
        phase_id=phase_id,
        outcome=Outcome(outcome),
        peak_mib=peak_mib,
        wall_s=wall_s,
        cpu_s=cpu_s,
        cause=KillCause(cause) if cause else None,
        **more,
    )


def held(at_s: float, phase_id: int, needs_mib: float, free_mib: float, reason: str = "memory") -> Hold:
    return Hold(at_s=at_s, phase_id=phase_id, needs_mib=needs_mib, free_mib=free_mib, reason=HoldReason(reason))


def requeued(
    at_s: float, phase_id: int, reserve_mib: float, *, solo: bool = False, lost_s: float = 0.0, **more: Any
) -> Requeue:
    estimate = estimate_of(reserve_mib, reserve_mib)
    return Requeue(at_s=at_s, phase_id=phase_id, estimate=estimate, solo=solo, lost_s=lost_s, **more)


def killed(at_s: float, phase_id: int, reason: str, kind: KillReason = KillReason.HEADROOM) -> Kill:
    """builddoctor ends a phase, for this reason in words."""
    return Kill(at_s=at_s, phase_id=phase_id, reason=kind, said=reason)


def gave_up(at_s: float, phase_id: int, verdict: str, reason: str = "") -> GiveUp:
    return GiveUp(at_s=at_s, phase_id=phase_id, verdict=Verdict(verdict), said=reason)
