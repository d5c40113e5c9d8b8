"""The two ends of a trace, read without what lies between."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from builddoctor.core.errors import TraceError
from builddoctor.core.events import BuildEnded, Note
from builddoctor.trace.analysis import peek
from unit.builders import header, summary

HEADER = msgspec.json.encode(header()) + b"\n"
NOTE = msgspec.json.encode(Note(at_s=7.0, text="here")) + b"\n"
END = msgspec.json.encode(BuildEnded(at_s=9.0, summary=summary(exit_code=3))) + b"\n"


@pytest.mark.parametrize(
    ("content", "last_at_s", "exit_code"),
    [
        (HEADER, 0.0, None),
        (HEADER + NOTE, 7.0, None),
        (HEADER + NOTE + END, 9.0, 3),
        (HEADER + NOTE + END[:-9], 7.0, None),
        (HEADER + b"\xff torn\n" + NOTE + b"\n[[[\n" + END, 9.0, 3),
        (HEADER + NOTE * 5000 + END, 9.0, 3),
    ],
    ids=range(6),
)
def test_the_header_and_the_end_are_seen(
    tmp_path: Path, content: bytes, last_at_s: float, exit_code: int | None
) -> None:
    """A long trace and a damaged one too; without its summary a trace was cut off."""
    (tmp_path / "t").write_bytes(content)
    seen = peek(tmp_path / "t")
    assert (seen.path, seen.header, seen.last_at_s, seen.exit_code) == (
        str(tmp_path / "t"),
        header(),
        last_at_s,
        exit_code,
    )


@pytest.mark.parametrize("content", [b"", b"hello\n", NOTE + END])
def test_what_is_no_trace_is_refused(tmp_path: Path, content: bytes) -> None:
    """The same as for a whole reading."""
    (tmp_path / "t").write_bytes(content)
    with pytest.raises(TraceError, match="is not a trace"):
        peek(tmp_path / "t")
