"""Answers from a trace, in one pass and in memory that grows with the number of phases, not of samples.

Covers: ``read_build``, what all of ``builddoctor trace`` begins with: units, phases, timeline, events, how it ends.
Does *not* cover: verdicts (``diagnose``) and pictures (``trace.picture``).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from builddoctor.trace.gather import Gathering
from builddoctor.trace.reader import TraceReader
from builddoctor.trace.records import AnyRecord, PhaseCurve
from builddoctor.trace.report import TraceReport

POINTS = 400
"""of the timeline: more than a terminal has columns"""


def read_build(path: Path, *, points: int = POINTS) -> TraceReport:
    """What a trace says. Raises TraceError when it is no trace.

    The samples of single phases are passed over; where the trace stops short, those of the phases that ran then are
    read, from the line on that admitted the first of them.
    """
    gathering = Gathering(points=points)
    reader = TraceReader(path, curves=False)
    for record in reader:
        gathering.take(record, reader.bytes_read)
    if gathering.live:
        for record in TraceReader(path, start=min(gathering.admitted_at_byte.values())):
            if type(record) is PhaseCurve:
                gathering.take(record)
    report = gathering.report()
    report.skipped = reader.skipped
    return report


def digest(records: Iterable[AnyRecord], *, points: int = POINTS) -> TraceReport:
    """The same of records in order. The first must be the header, as TraceReader guarantees."""
    gathering = Gathering(points=points)
    for record in records:
        gathering.take(record)
    return gathering.report()
