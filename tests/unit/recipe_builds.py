"""Traces of small builds for recipes, written record by record, and rows of phases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from builddoctor.core.events import BuildEnded, BuildEvent, BuildResult, UnitEnded
from builddoctor.core.past import UnitKey
from builddoctor.core.phase import PhaseKind
from builddoctor.recipes.measured_phases import MeasuredPhase
from support import trace_events as tr
from unit.builders import header, summary

TOOLS = {"preprocess": "cc1plus", "host": "cc1plus", "link": "collect2"}
WHOLE = (
    ("preprocess", 20.0),
    ("preprocess", 70.0),
    ("cudafe++", 300.0),
    ("cicc", 900.0),
    ("ptxas", 400.0),
    ("host", 200.0),
)


class Traced:
    """A trace that is written unit by unit."""

    def __init__(self, **fields: Any) -> None:
        known = {"project": "demo", "project_version": "1.2", "host_compiler": "12.2.0", "host_arch": "x86_64"}
        self.events: list[BuildEvent] = [header(**{**known, "nvcc": "13.0.88", **fields})]
        self.phases = 0
        self.units = 0

    def unit(
        self,
        place: str,
        phases: tuple[tuple[str, float], ...] = WHOLE,
        *,
        outcome: str = "ok",
        done: bool = True,
        named: bool = True,
        scale: float = 1.0,
        **fields: Any,
    ) -> Traced:
        """A unit with its phases (kind, peak); ``outcome``: of its last one."""
        self.units += 1
        unit_id = f"u{self.units}"
        link = place.startswith("link ")
        output = fields.pop("output", place.removeprefix("link ").rpartition("/")[2] + ("" if link else ".o"))
        name: dict[str, Any] = {}
        if named:
            known = {"project": "demo", "target": f"obj/{output}", "options": "0badcafe", "source_digest": "feedbeef"}
            known |= {"source_digest": ""} if link else {}
            known |= fields
            name = {each: known.pop(each) for each in ("target", "source_digest")}
            name["key"] = UnitKey(place=place, output=output, **known)
        archs = ["sm_90"] if place.endswith(".cu") else []
        source = "" if link else f"/src/{place}"
        self.events.append(tr.unit_began(1, unit_id, source, output=output, archs=archs, counted=not link, **name))
        for index, (kind, peak_mib) in enumerate(phases, 1):
            last = index == len(phases)
            self.phase(unit_id, kind, peak_mib * scale, outcome if last else "ok", input_mib=peak_mib / 100)
        if done:
            self.events.append(UnitEnded(at_s=9, unit_id=unit_id))
        return self

    def phase(self, unit_id: str, kind: str, peak_mib: float, outcome: str, *, input_mib: float = 1.0) -> Traced:
        """One phase of a unit; no end where ``outcome`` is empty."""
        self.phases += 1
        arch = "sm_90" if kind in ("cicc", "ptxas") else ""
        tool = TOOLS.get(kind, kind)
        asked = {"phase_id": self.phases, "kind": kind, "tool": tool, "arch": arch, "input_mib": input_mib}
        estimate = {"estimate_mib": 1.0, "reserve_mib": 1.0, "estimate_source": "prior"}
        self.events += tr.phase_asked(at_s=2, unit_id=unit_id, source="a.cu", **asked, **estimate)
        if outcome:
            self.end(self.phases, peak_mib, outcome)
        return self

    def end(self, phase_id: int, peak_mib: float, outcome: str) -> Traced:
        """A run of a phase ended."""
        figures = {"peak_mib": peak_mib, "wall_s": peak_mib / 50, "cpu_s": peak_mib / 100}
        self.events.append(tr.phase_ended(at_s=3, phase_id=phase_id, outcome=outcome, **figures))
        return self

    def write(self, path: Path, result: str = "ok", *, torn: bool = False) -> Path:
        """The whole file; without its end when ``torn``."""
        code = 0 if result == "ok" else 1
        last = [] if torn else [BuildEnded(at_s=10, summary=summary(result=BuildResult(result), exit_code=code))]
        lines = [msgspec.json.encode(each) for each in [*self.events, *last]]
        path.write_bytes(b"\n".join(lines) + b"\n" + (b'{"t":"end","pha' if torn else b""))
        return path


def row(kind: str = "cicc", peak_mib: float = 100.0, **fields: Any) -> MeasuredPhase:
    """One measured phase of ``a.cu``."""
    known = {"place": "a.cu", "output": "a.cu.o", "archs": ("sm_90",), "tool": TOOLS.get(kind, kind), "cpu_s": 1.0}
    return MeasuredPhase(**{**known, **fields}, kind=PhaseKind(kind), peak_mib=peak_mib)
