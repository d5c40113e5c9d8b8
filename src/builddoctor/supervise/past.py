"""What earlier builds of a folder took: from the newest trace of it in builddoctor's own folder.

Does *not* cover: estimates (``policy.estimator``); this is one figure for a person.
"""

from __future__ import annotations

import glob
from collections.abc import Mapping
from pathlib import Path

from builddoctor.errors import TraceError
from builddoctor.supervise.folders import traces_folder
from builddoctor.trace.reader import TraceReader
from builddoctor.trace.records import Header, PhaseFinished

LOOKED_AT = 30
"""Traces, newest first."""

MOST_BYTES = 64 * 1024 * 1024
"""Read in all, some 2 s of it: this stands before every page of the doctor."""


def last_peak_mib(env: Mapping[str, str], folder: Path) -> float | None:
    """The largest phase of the last traced build that ran in ``folder`` or below; None without one.

    Of traces of other folders only the first line is read; one that is too large to read now is passed over.
    """
    traces = sorted(glob.glob(f"{glob.escape(str(traces_folder(env)))}/*.jsonl"), reverse=True)[:LOOKED_AT]
    left_bytes = MOST_BYTES
    for path in map(Path, traces):
        reader = TraceReader(path)
        try:
            peak_mib = _peak_mib(reader, folder, left_bytes) if path.is_file() else 0.0
        except (TraceError, OSError, ValueError):
            peak_mib = 0.0
        if peak_mib:
            return peak_mib
        left_bytes -= reader.bytes_read
        if left_bytes <= 0:
            break
    return None


def _peak_mib(reader: TraceReader, folder: Path, most_bytes: int) -> float:
    peak_mib = 0.0
    for record in reader:
        if isinstance(record, Header) and (
            not Path(record.cwd).is_relative_to(folder) or reader.path.stat().st_size > most_bytes
        ):
            return 0.0
        if isinstance(record, PhaseFinished) and record.outcome == "ok":
            peak_mib = max(peak_mib, record.peak_mib)
        if reader.bytes_read > most_bytes:
            # Of a build that goes on right now.
            return 0.0
    return peak_mib
