"""Read a trace, line by line, never the whole of it at once.

Covers: records in file order; a torn last line, torn lines in between, and unknown records, all skipped and counted.
Does *not* cover: what the records mean (``trace.analysis``).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from builddoctor.errors import TraceError
from builddoctor.trace.records import TRACE_SCHEMA, AnyRecord, Header

MAX_LINE_BYTES = 4 * 1024 * 1024
"""No line of ours comes near; a longer one is not a trace's."""


class TraceReader:
    """Iterate to get the records; ``skipped`` counts the lines that were not readable, ``bytes_read`` all of them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.skipped = 0
        self.bytes_read = 0

    def __iter__(self) -> Iterator[AnyRecord]:
        decoder = msgspec.json.Decoder(AnyRecord)
        self.skipped = self.bytes_read = 0
        first = True
        try:
            with self.path.open("rb") as file:
                while line := file.readline(MAX_LINE_BYTES):
                    self.bytes_read += len(line)
                    try:
                        record = decoder.decode(line)
                    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                        if first:
                            raise self._not_a_trace() from None
                        self.skipped += line.strip() != b""
                        continue
                    if first:
                        self._check_header(record)
                        first = False
                    yield record
        except OSError as error:
            raise TraceError(
                f"cannot read {self.path}: {error.strerror}", hint="`builddoctor trace list` shows the traces there are"
            ) from error
        if first:
            raise self._not_a_trace()

    def _check_header(self, record: AnyRecord) -> None:
        if not isinstance(record, Header):
            raise self._not_a_trace()
        if record.schema > TRACE_SCHEMA:
            raise TraceError(
                f"{self.path} has trace schema {record.schema}; this builddoctor reads up to {TRACE_SCHEMA}",
                hint="a newer builddoctor wrote it: `pip install -U builddoctor`",
            )

    def _not_a_trace(self) -> TraceError:
        return TraceError(
            f"{self.path} is not a trace of builddoctor",
            hint="a trace begins with a header line; `builddoctor trace list` shows the traces there are",
        )
