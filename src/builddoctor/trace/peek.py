"""The two ends of a trace, without what lies between: what was run, and how it ended.

Covers: listing many long traces. Does *not* cover: anything that needs every record (``trace.analysis``).
"""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from builddoctor.errors import TraceError
from builddoctor.trace.endings import STILL_WRITTEN_S
from builddoctor.trace.reader import LIST_HINT, TraceReader
from builddoctor.trace.records import AnyRecord, End, Header, TickRecord
from builddoctor.trace.report import believable

TAIL_BYTES = 64 * 1024


class Peek(msgspec.Struct, frozen=True, kw_only=True):
    """What the first and the last lines of a trace say."""

    path: str
    header: Header
    last_at_s: float
    exit_code: int | None
    """None when the trace was cut off"""
    result: str = ""
    """``ok``, ``failed`` or ``interrupted``; empty when the trace was cut off"""
    peak_mib: float | None = None
    """most memory that phases held at once; of the last lines alone when the trace was cut off"""
    limit_mib: float = 0.0
    still_written: bool = False
    """there is no summary yet, and the file was written to just now"""


def peek(path: Path) -> Peek:
    """Read the header and the last 64 KiB. Raises TraceError when it is no trace."""
    header = next(iter(TraceReader(path)))
    assert isinstance(header, Header)
    tail, idle_s = _tail(path)
    decode = msgspec.json.Decoder(AnyRecord).decode
    last_at_s, limit_mib = 0.0, header.limit_mib
    peak_mib: float | None = None
    for line in reversed(tail.split(b"\n")):
        try:
            record = decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
        last_at_s = max(last_at_s, record.at_s)
        if isinstance(record, End) and believable(record.summary):
            return Peek(
                path=str(path),
                header=header,
                last_at_s=last_at_s,
                exit_code=record.summary.exit_code,
                result=record.summary.result,
                peak_mib=record.summary.peak_mib,
                limit_mib=record.summary.limit_mib,
            )
        if isinstance(record, TickRecord):
            peak_mib = max(peak_mib or 0.0, record.ours_mib)
    return Peek(
        path=str(path),
        header=header,
        last_at_s=last_at_s,
        exit_code=None,
        peak_mib=peak_mib,
        limit_mib=limit_mib,
        still_written=idle_s < STILL_WRITTEN_S,
    )


def idle_s(path: Path) -> float:
    """Seconds since a trace was last written to; endless when it cannot be told, or lies in the future."""
    try:
        idle = time.time() - path.stat().st_mtime
    except OSError:
        return float("inf")
    return idle if idle > -1 else float("inf")


def _tail(path: Path) -> tuple[bytes, float]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL_BYTES))
            return file.read(TAIL_BYTES), idle_s(path)
    except OSError as error:
        raise TraceError(f"cannot read {path}: {error.strerror}", hint=LIST_HINT) from error
