"""Short ways to make what tests hand in: phases, units, records, summaries, board states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from builddoctor.core.board import BoardState, RunningRow
from builddoctor.core.events import TRACE_SCHEMA, BuildResult, Header, MemorySampled, PhaseAsked, PhaseEnded, Summary
from builddoctor.core.past import Course
from builddoctor.core.phase import Estimate, ExpectedPhase, Outcome, Phase, PhaseKind, Unit
from builddoctor.estimation.kind_courses import AT_ONCE


class TableEstimator:
    """Estimates from a table by phase id; a kill raises them by half."""

    def __init__(
        self, reserve_mib: dict[int, float], remaining_s: dict[int, float] | None = None, *, spread_mib: float = 0.0
    ) -> None:
        self.reserve_mib = dict(reserve_mib)
        self.spread_mib = spread_mib
        self.remaining = remaining_s or {}
        self.observed: list[tuple[int, Outcome, float]] = []

    def know(self, unit_id: str, **_: object) -> None:
        """Its figures are by phase."""

    def forget(self, unit_id: str) -> None:
        """They stay."""

    def estimate(self, phase: Phase) -> Estimate:
        return Estimate(peak_mib=self.reserve_mib[phase.phase_id], spread_mib=self.spread_mib, source="table")

    def observe(self, phase: Phase, *, outcome: Outcome, peak_mib: float, wall_s: float) -> None:
        self.observed.append((phase.phase_id, outcome, peak_mib))

    def raise_after_kill(self, phase: Phase, *, peak_mib: float, reserved_mib: float) -> Estimate:
        self.reserve_mib[phase.phase_id] = 1.5 * max(peak_mib, reserved_mib)
        return self.estimate(phase)

    def remaining_s(self, phase: Phase, *, keep: bool = True) -> float:
        return self.remaining.get(phase.phase_id, 0.0)

    def least_s(self, phase: Phase) -> float:
        return self.remaining_s(phase)

    def wall_s(self, phase: Phase) -> float:
        return self.remaining_s(phase) / 2

    @property
    def pace(self) -> float:
        return 1.0

    def course(self, phase: Phase) -> Course:
        return AT_ONCE

    def outlook(self, unit_id: str, phase: Phase | None) -> Sequence[ExpectedPhase]:
        return ()


def phase(phase_id: int = 1, kind: PhaseKind = PhaseKind.CICC, **fields: Any) -> Phase:
    """One phase of unit ``u1``."""
    return Phase(**{"unit_id": "u1", "source": "src/a.cu", **fields}, phase_id=phase_id, kind=kind)


def unit(**fields: Any) -> Unit:
    """A unit with one device architecture."""
    return Unit(**{"unit_id": "u1", "source": "src/a.cu", "archs": ("sm_90",), **fields})


def asked(phase_id: int) -> PhaseAsked:
    """A gate asks for this phase."""
    return PhaseAsked(phase=phase(phase_id))


def ended(phase_id: int, outcome: Outcome = Outcome.OK, peak_mib: float = 100.0) -> PhaseEnded:
    """This phase ended after ten seconds."""
    return PhaseEnded(phase_id=phase_id, outcome=outcome, peak_mib=peak_mib, wall_s=10.0)


def sampled(
    rss_mib: dict[int, float], *, headroom_mib: float, budget_mib: float = 1000.0, reserve_mib: float = 100.0
) -> MemorySampled:
    """A look at memory, with a reserve of 100 MiB: danger begins at 30 MiB of headroom."""
    return MemorySampled(
        rss_mib=tuple(rss_mib.items()), headroom_mib=headroom_mib, budget_mib=budget_mib, reserve_mib=reserve_mib
    )


def header(**fields: Any) -> Header:
    """First line of a trace."""
    known: dict[str, Any] = {
        "at_s": 0.0,
        "schema": TRACE_SCHEMA,
        "builddoctor": "0.1.0",
        "trace_id": "abc123",
        "started_at": "2025-01-01T00:00:00+00:00",
        "command": ["ninja"],
        "cwd": "/src",
        "title": "demo",
        "archs": ["sm_90"],
        "cores": 2,
        "window": 3,
        "budget_mib": 3000.0,
        "limit_mib": 4096.0,
        "limited_by": "/sys/fs/cgroup/memory.max",
        "page_kib": 4,
    }
    return Header(**{**known, **fields})


def summary(**fields: Any) -> Summary:
    """A build that went well."""
    known: dict[str, Any] = {
        "result": BuildResult.OK,
        "exit_code": 0,
        "wall_s": 761.0,
        "cpu_s": 1500.0,
        "budget_mib": 3000.0,
        "limit_mib": 4096.0,
        "peak_mib": 2048.0,
        "kernel_oom_kills": 0,
        "requeued": 1,
        "killed": 0,
        "units": 65,
        "phases": 369,
        "effective_jobs_mean": 1.8,
        "effective_jobs_max": 2,
        "gate_overhead_s": 3.69,
        "gate_peak_mib": 9.2,
        "gates": 369,
        "trace": "/tmp/t.jsonl",
    }
    return Summary(**{**known, **fields})


def running_row(**fields: Any) -> RunningRow:
    """One running phase on the board."""
    known: dict[str, Any] = {
        "kind": "cicc",
        "source": "src/gelu.cu",
        "arch": "sm_90",
        "rss_mib": 900.0,
        "estimate_mib": 1800.0,
        "running_s": 33.0,
    }
    return RunningRow(**{**known, **fields})


def board_state(**fields: Any) -> BoardState:
    """A build in the middle."""
    known: dict[str, Any] = {
        "title": "demo · sm_90 · nvcc 13.0.88",
        "elapsed_s": 761.0,
        "units_done": 41,
        "units_open": 5,
        "units_total": 66,
        "phases_done": 200,
        "requeued": 1,
        "kernel_kills": 0,
        "used_mib": 19660.0,
        "budget_mib": 27136.0,
        "limit_mib": 30208.0,
        "limited_by": "/sys/fs/cgroup/memory.max",
        "jobs": 7,
        "jobs_mean": 6.1,
        "jobs_max": 8,
        "window": 24,
        "threads": 4,
        "running": (running_row(),),
        "waiting": 3,
        "held": None,
        "events": (),
    }
    return BoardState(**{**known, **fields})
