"""Reading traces: whole, torn, foreign and newer ones."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from builddoctor.core.errors import TraceError
from builddoctor.core.events import TRACE_SCHEMA, Header, Note
from builddoctor.trace.reader import MAX_LINE_BYTES, TraceReader
from unit.builders import header

HEADER = msgspec.json.encode(header()) + b"\n"
NOTE = msgspec.json.encode(Note(at_s=2.0, text="here")) + b"\n"


def read(path: Path, content: bytes) -> tuple[list, int]:
    """Records and skipped lines of a file with this content."""
    path.write_bytes(content)
    reader = TraceReader(path)
    return list(reader), reader.skipped


def notes(records: list) -> int:
    return sum(isinstance(record, Note) for record in records)


@pytest.mark.parametrize(
    ("lines", "skipped"),
    [
        (b"", 0),
        (b"\n\n", 0),
        (NOTE[:-20], 1),
        (b'{"t":"note","at_s":1,"te\n', 1),
        (b'{"t":"from-the-future","at_s":1,"x":[1,2]}\n', 1),
        (b'{"at_s":1}\n', 1),
        (b'{"t":"note","at_s":1}\n', 1),
        (b'{"t":"note","at_s":"soon","text":"x"}\n', 1),
        (b"\x00\x00\x00\x00\n", 1),
        (b"\xff\xfe\n", 1),
        (b'{"t":"note","at_s":1,"text":"\xff"}\n', 1),
        (b"[]\nnull\n17\n", 3),
        (b'{"t":"note","at_s":1,"text":"x","deep":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n", 1),
        (b'{"t":"note","at_s":1' + b"0" * 5000 + b',"text":"x"}\n', 1),
    ],
    ids=range(14),
)
def test_lines_that_cannot_be_read_are_skipped_and_counted(tmp_path: Path, lines: bytes, skipped: int) -> None:
    """Torn, unknown and foreign lines cost themselves alone, in the middle and at the end."""
    joint = b"" if lines.endswith(b"\n") or not lines else b"\n"
    records, count = read(tmp_path / "t", HEADER + NOTE + lines + joint + NOTE)
    assert (notes(records), count) == (2, skipped)
    records, count = read(tmp_path / "t", HEADER + NOTE + lines)
    assert (notes(records), count) == (1, skipped)


def test_a_last_line_without_its_newline_counts_when_it_is_whole(tmp_path: Path) -> None:
    """The newline is part of the write, but not of the record."""
    assert notes(read(tmp_path / "t", HEADER + NOTE[:-1])[0]) == 1


def test_fields_that_are_not_known_are_passed_over(tmp_path: Path) -> None:
    """Fields may be added within a schema version."""
    records, skipped = read(tmp_path / "t", HEADER + NOTE[:-2] + b',"new":{"a":[1]}}\n')
    assert (notes(records), skipped) == (1, 0)


@pytest.mark.parametrize(
    "content",
    [b"", b"\n", b"hello\n", b"\x7fELF\x02\x01\n", b"{}\n", NOTE, HEADER[:-30], b"[" * 1000, b"x" * 70_000],
    ids=range(9),
)
def test_what_does_not_begin_with_a_header_is_no_trace(tmp_path: Path, content: bytes) -> None:
    """The file is named, and the hint says what a trace begins with."""
    with pytest.raises(TraceError, match="is not a trace") as error:
        read(tmp_path / "t", content)
    assert str(tmp_path / "t") in str(error.value)
    assert "header" in error.value.hint


def test_a_line_without_end_is_not_read_into_memory_as_a_whole(tmp_path: Path) -> None:
    """A line beyond the bound is skipped, and what follows is read."""
    long = b'{"t":"note","at_s":1,"text":"' + b"x" * MAX_LINE_BYTES + b'"}\n'
    records, skipped = read(tmp_path / "t", HEADER + long + NOTE)
    assert notes(records) == 1
    assert skipped == 1


def test_a_newer_schema_is_refused_with_the_way_out(tmp_path: Path) -> None:
    """Both versions are named, and how to get a newer builddoctor."""
    newer = msgspec.json.encode(header(schema=TRACE_SCHEMA + 1)) + b"\n"
    with pytest.raises(TraceError, match=f"schema {TRACE_SCHEMA + 1}; this builddoctor reads up to {TRACE_SCHEMA}"):
        read(tmp_path / "t", newer + NOTE)


@pytest.mark.parametrize("name", ["missing", "."])
def test_what_cannot_be_opened_is_a_trace_error(tmp_path: Path, name: str) -> None:
    """A missing file and a folder are said in one line."""
    with pytest.raises(TraceError, match="cannot read"):
        list(TraceReader(tmp_path / name))


def test_a_trace_can_be_read_again(tmp_path: Path) -> None:
    """Each reading starts anew, with its own count of skipped lines."""
    (tmp_path / "t").write_bytes(HEADER + b"torn\n" + NOTE)
    reader = TraceReader(tmp_path / "t")
    for _ in range(2):
        assert [type(record) for record in reader] == [Header, Note]
        assert reader.skipped == 1


def test_records_come_one_by_one(tmp_path: Path) -> None:
    """The first record is there before the rest of the file is looked at."""
    (tmp_path / "t").write_bytes(HEADER)
    records = iter(TraceReader(tmp_path / "t"))
    assert isinstance(next(records), Header)
    with (tmp_path / "t").open("ab") as file:
        file.write(NOTE)
    assert isinstance(next(records), Note)
