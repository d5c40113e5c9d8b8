"""What a build that failed ends with: what died, why, what next, and the command to see more, from its trace."""

from __future__ import annotations

import shutil
from pathlib import Path

from builddoctor.diagnose.from_trace import judge
from builddoctor.errors import TraceError
from builddoctor.render.trace_page import failure_lines
from builddoctor.trace.analysis import read_build

USUAL_CELLS, LEAST_CELLS = 100, 40


def last_words(trace: str) -> list[str]:
    """The lines; none when the trace cannot be read (a full disk), or has nothing to explain."""
    try:
        report = read_build(Path(trace))
    except (TraceError, ValueError):
        return []
    verdict = judge(report)
    if verdict.verdict is None or not report.whole:
        return []
    width = max(LEAST_CELLS, shutil.get_terminal_size((USUAL_CELLS, 24)).columns)
    return failure_lines(report, verdict, width=width)
