"""Small traces as lists of events: one unit, its phases, ticks; and what is read in them."""

from __future__ import annotations

from pathlib import Path

import msgspec

from builddoctor.core.events import Status
from builddoctor.trace.report import TraceReport
from support import trace_events as tr
from support.told import digest
from unit.builders import header


def unit(at_s: float = 0.5, unit_id: str = "u1", **fields: object) -> tr.Events:
    known: dict[str, object] = {"source": "/src/a.cu", "output": "a.o", **fields}
    return tr.unit_began(at_s, unit_id, **known)  # type: ignore[arg-type]


def asked(phase_id: int, at_s: float = 1.0, unit_id: str = "u1", kind: str = "cicc") -> tr.Events:
    return tr.phase_asked(
        at_s=at_s,
        phase_id=phase_id,
        unit_id=unit_id,
        kind=kind,
        tool=kind,
        source="/src/a.cu",
        arch="sm_90",
        estimate_mib=100,
        reserve_mib=150,
        estimate_source="prior",
    )


def admitted(phase_id: int, at_s: float = 2.0, running: int = 1) -> tr.Events:
    return tr.admitted(at_s=at_s, phase_id=phase_id, reserve_mib=150, waited_s=1.0, running=running)


def ended(phase_id: int, at_s: float = 9.0, outcome: str = "ok", peak_mib: float = 100.0, **more: object) -> tr.Events:
    known = {"exit_code": 0, "wall_s": 5.0, "cpu_s": 4.0, **more}
    return tr.phase_ended(at_s=at_s, phase_id=phase_id, outcome=outcome, peak_mib=peak_mib, **known)


def tick(at_s: float, ours_mib: float, headroom_mib: float = 3000.0, limit_mib: float = 4096.0) -> Status:
    return Status(
        at_s=at_s,
        budget_mib=3000,
        limit_mib=limit_mib,
        headroom_mib=headroom_mib,
        ours_mib=ours_mib,
        running=1,
        waiting=2,
        open_units=3,
    )


def read(*records: tr.Events, **fields: object) -> TraceReport:
    return digest(tr.events(header(**fields), *records))


def written(path: Path, *records: tr.Events, tail: bytes = b"") -> Path:
    path.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in tr.events(header(), *records)) + tail)
    return path
