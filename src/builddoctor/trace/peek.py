"""The two ends of a trace, without what lies between: what was run, and how it ended.

Covers: listing many long traces. Does *not* cover: anything that needs every record (``trace.analysis``).
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from builddoctor.errors import TraceError
from builddoctor.trace.reader import TraceReader
from builddoctor.trace.records import AnyRecord, End, Header

TAIL_BYTES = 64 * 1024


class Peek(msgspec.Struct, frozen=True, kw_only=True):
    """What the first and the last lines of a trace say."""

    path: str
    header: Header
    last_at_s: float
    exit_code: int | None
    """None when the trace was cut off"""


def peek(path: Path) -> Peek:
    """Read the header and the last 64 KiB. Raises TraceError when it is no trace."""
    header = next(iter(TraceReader(path)))
    assert isinstance(header, Header)
    decoder = msgspec.json.Decoder(AnyRecord)
    last_at_s, exit_code = 0.0, None
    for line in _tail(path).split(b"\n"):
        try:
            record = decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
        last_at_s = max(last_at_s, record.at_s)
        if isinstance(record, End):
            exit_code = record.summary.exit_code
    return Peek(path=str(path), header=header, last_at_s=last_at_s, exit_code=exit_code)


def _tail(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL_BYTES))
            return file.read()
    except OSError as error:
        raise TraceError(f"cannot read {path}: {error.strerror}") from error
