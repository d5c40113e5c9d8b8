"""What a build's summary says of why it failed: its trace is judged once, before the summary closes it.

Does *not* cover: judging (``diagnose.from_trace``), or showing it (``cli.last_words``).
"""

from __future__ import annotations

import msgspec

from builddoctor.diagnose.from_trace import judge
from builddoctor.errors import TraceError
from builddoctor.model.summary import Summary
from builddoctor.trace.analysis import read_build
from builddoctor.trace.writer import TraceWriter


def judged(summary: Summary, trace: TraceWriter) -> Summary:
    """The summary with its verdict; as it was for a build that went well, and where the trace cannot be read."""
    if summary.result == "ok":
        return summary
    try:
        report = read_build(trace.path)
    except (TraceError, OSError, ValueError):
        return summary
    report.summary, report.whole = summary, True
    verdict = judge(report).verdict
    return summary if verdict is None else msgspec.structs.replace(summary, verdict=verdict)
