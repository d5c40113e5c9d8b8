"""The command that makes a folder to reproduce one phase in, where the trace has what it takes. Pure.

Does *not* cover: making the folder (``cli.trace_repro``).
"""

from __future__ import annotations

from pathlib import PurePosixPath

from builddoctor.trace.commands import command_of
from builddoctor.trace.report import PhaseRow, TraceReport
from builddoctor.units import shell_word


def repro_command(report: TraceReport, phase: PhaseRow) -> str:
    """``builddoctor trace repro 3f9a1c 12``, to be pasted; empty where the trace can make none.

    A trace that lies in builddoctor's own folder is named by its id, any other by its file.
    """
    if phase.phase_id not in report.kept and command_of(report.commands, phase.unit_id) is None:
        return ""
    name = report.header.trace_id
    path = report.summary.trace if report.summary is not None else ""
    if path and PurePosixPath(path).stem.rpartition("-")[2] != name:
        name = shell_word(path)
    return f"builddoctor trace repro {name} {phase.phase_id}"
