"""Which phase of a build is meant: by its number, by unit, program and architecture, or the one that died. Pure."""

from __future__ import annotations

from builddoctor.errors import UsageError
from builddoctor.trace.report import PhaseRow, TraceReport
from builddoctor.units import whole_number

HINT = "a phase's number, or UNIT[:PROGRAM[:ARCH]] such as gelu.cu:cicc:sm_90; `builddoctor trace units` lists them"


def choose_phase(report: TraceReport, wanted: str) -> PhaseRow:
    """The phase that ``wanted`` names; of several that fit, the one with the largest peak. Raises UsageError.

    Empty: the phase that could not be saved, else the first that failed by itself.
    """
    phases = report.phases
    if not wanted:
        found = _died(report)
        if found is None:
            raise UsageError("no phase of this build died: say which one is meant", hint=HINT)
        return found
    number = whole_number(wanted)
    if number is not None:
        by_number = next((phase for phase in phases if phase.phase_id == number), None)
        if by_number is None:
            raise UsageError(f"this build has no phase {number}", hint=HINT)
        return by_number
    unit, _, rest = wanted.partition(":")
    tool, _, arch = rest.partition(":")
    fitting = [
        phase
        for phase in phases
        if _names(unit, phase.source) and tool in ("", phase.tool, phase.kind) and arch in ("", phase.arch)
    ]
    if not fitting:
        raise UsageError(f"this build has no phase {wanted!r}", hint=HINT)
    return max(fitting, key=lambda phase: phase.peak_mib)


def _died(report: TraceReport) -> PhaseRow | None:
    given_up = [event.phase_id for event in report.events if event.kind == "give-up"]
    by_id = {phase.phase_id: phase for phase in report.phases}
    if given_up and given_up[-1] in by_id:
        return by_id[given_up[-1]]
    counted = [phase for unit in report.units for phase in unit.phases]
    failed = [phase for phase in counted if phase.outcome == "failed"]
    return min(failed, key=lambda phase: phase.phase_id, default=None)


def _names(unit: str, source: str) -> bool:
    """``gelu.cu`` and ``src/gelu.cu`` name ``/home/me/src/gelu.cu``."""
    return source == unit or source.endswith(f"/{unit}") or source.rpartition("/")[2].rpartition(".")[0] == unit
