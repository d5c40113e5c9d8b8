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

LARGEST_BYTES = 64 * 1024 * 1024


def last_peak_mib(env: Mapping[str, str], folder: Path) -> float | None:
    """The largest phase of the last traced build that ran in ``folder`` or below; None without one."""
    traces = sorted(glob.glob(f"{glob.escape(str(traces_folder(env)))}/*.jsonl"), reverse=True)[:LOOKED_AT]
    for path in map(Path, traces):
        try:
            if path.stat().st_size > LARGEST_BYTES:
                continue
            peak_mib = _peak_mib(path, folder)
        except (TraceError, OSError):
            continue
        if peak_mib:
            return peak_mib
    return None


def _peak_mib(path: Path, folder: Path) -> float:
    peak_mib = 0.0
    for record in TraceReader(path):
        if isinstance(record, Header) and not Path(record.cwd).is_relative_to(folder):
            return 0.0
        if isinstance(record, PhaseFinished) and record.outcome == "ok":
            peak_mib = max(peak_mib, record.peak_mib)
    return peak_mib
