"""The trace file: append only, never in the way of a build."""

from __future__ import annotations

import fcntl
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from builddoctor.core.errors import FolderNotWritableError
from builddoctor.core.events import BuildEnded, Header, Note
from builddoctor.trace.reader import TraceReader
from builddoctor.trace.writer import TraceWriter
from unit.builders import header, summary


def note(text: str) -> Note:
    return Note(at_s=1.5, text=text)


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """No file of this process may grow past ``size`` bytes: a disk that is full in the middle of a line."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def texts(path: Path) -> list[str]:
    return [record.text for record in TraceReader(path) if isinstance(record, Note)]


def test_each_record_is_one_line_of_json_as_soon_as_it_is_written(tmp_path: Path) -> None:
    """What was written is in the file before anything is flushed or closed."""
    writer = TraceWriter(tmp_path / "t.jsonl")
    writer.write(header())
    writer.write(note("one\ntwo"))
    lines = (tmp_path / "t.jsonl").read_bytes().splitlines(keepends=True)
    writer.close()
    assert [msgspec.json.decode(line)["t"] for line in lines] == ["header", "note"]
    assert all(line.endswith(b"\n") for line in lines)


def test_names_that_are_no_utf_8_are_written_as_escapes(tmp_path: Path) -> None:
    """Also where they are one of many, as in a command."""
    writer = TraceWriter(tmp_path / "t.jsonl")
    writer.write(msgspec.structs.replace(header(), command=("ninja", "\udcff"), cwd="/p/\udcff"))
    writer.close()
    (first,) = TraceReader(tmp_path / "t.jsonl")
    assert isinstance(first, Header)
    assert (first.command, first.cwd) == (["ninja", "\\udcff"], "/p/\\udcff")


def test_the_file_is_appended_to_by_the_kernel(tmp_path: Path) -> None:
    """O_APPEND: two writers of one file never write over each other."""
    writer = TraceWriter(tmp_path / "t.jsonl")
    assert writer._fd is not None
    assert fcntl.fcntl(writer._fd, fcntl.F_GETFL) & os.O_APPEND
    writer.write(header())
    with (tmp_path / "t.jsonl").open("ab") as other:
        other.write(b'{"t":"note","at_s":1,"text":"other"}\n')
    writer.write(note("mine"))
    writer.close()
    assert texts(tmp_path / "t.jsonl") == ["other", "mine"]


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    """Records come back equal, the summary in the last one included."""
    records = [header(), note("x"), BuildEnded(at_s=761.0, summary=summary())]
    writer = TraceWriter(tmp_path / "t.jsonl")
    for record in records:
        writer.write(record)
    writer.close()
    assert list(TraceReader(tmp_path / "t.jsonl")) == records
    assert (writer.dropped, writer.problem) == (0, "")


def test_an_old_trace_under_the_same_name_is_replaced(tmp_path: Path) -> None:
    """A trace is of one build."""
    (tmp_path / "t.jsonl").write_text("old\n" * 100)
    writer = TraceWriter(tmp_path / "t.jsonl")
    writer.write(header())
    writer.close()
    assert [type(record) for record in TraceReader(tmp_path / "t.jsonl")] == [Header]


@pytest.mark.parametrize("link", [False, True])
def test_a_full_disk_drops_records_and_says_why(tmp_path: Path, link: bool) -> None:
    """Nothing is raised; what was lost is counted."""
    path = Path("/dev/full")
    if link:
        path = tmp_path / "t.jsonl"
        path.symlink_to("/dev/full")
    writer = TraceWriter(path)
    writer.write(header())
    writer.write(note("x"))
    assert (writer.dropped, writer.problem) == (2, "No space left on device")
    writer.close()


def test_a_torn_line_is_closed_so_that_later_records_are_readable(tmp_path: Path) -> None:
    """Writing goes on when there is room again; only what was torn or refused is lost."""
    path = tmp_path / "t.jsonl"
    writer = TraceWriter(path)
    writer.write(header())
    writer.write(note("whole"))
    with room_for(path.stat().st_size + 10):
        writer.write(note("torn"))
        assert writer.problem == "No space left on device"
        writer.write(note("refused"))
        assert writer.dropped == 2
    writer.write(note("later"))
    writer.write(note("last"))
    assert (writer.dropped, writer.problem) == (2, "")
    writer.close()
    reader = TraceReader(path)
    assert [record.text for record in reader if isinstance(record, Note)] == ["whole", "later", "last"]
    assert reader.skipped == 1


def test_a_line_torn_twice_costs_no_later_record(tmp_path: Path) -> None:
    """A disk that fills again at once is no worse."""
    path = tmp_path / "t.jsonl"
    writer = TraceWriter(path)
    writer.write(header())
    for _ in range(2):
        with room_for(path.stat().st_size + 1):
            writer.write(note("torn"))
    writer.write(note("later"))
    writer.close()
    assert texts(path) == ["later"]


def test_a_trace_that_cannot_be_made_is_an_error_before_the_build(tmp_path: Path) -> None:
    """The path and the reason are in the message, and the way out in the hint."""
    with pytest.raises(FolderNotWritableError, match="No such file or directory") as error:
        TraceWriter(tmp_path / "missing" / "t.jsonl")
    assert str(tmp_path) in str(error.value)
    assert "--trace" in error.value.hint


def test_a_closed_trace_takes_nothing_more(tmp_path: Path) -> None:
    """Closing twice or writing afterwards is harmless."""
    writer = TraceWriter(tmp_path / "t.jsonl")
    writer.write(header())
    writer.close()
    writer.close()
    writer.write(note("late"))
    writer.sync()
    assert texts(tmp_path / "t.jsonl") == []


def test_syncing_a_special_file_is_no_error() -> None:
    """What cannot be synced is noted at most."""
    writer = TraceWriter(Path("/dev/null"))
    writer.write(header())
    writer.sync()
    writer.close()
    assert writer.dropped == 0


def test_a_file_name_that_is_no_utf8_does_not_end_the_build(tmp_path: Path) -> None:
    """Paths may hold any bytes; such a record is written in some readable form, and nothing is raised."""
    writer = TraceWriter(tmp_path / "t.jsonl")
    writer.write(header())
    writer.write(note(os.fsdecode(b"caf\xe9.cu")))
    writer.write(note("later"))
    writer.close()
    told = texts(tmp_path / "t.jsonl")
    assert told[-1] == "later"
    assert told[0].startswith("caf")


def test_several_records_at_once_are_as_many_lines(tmp_path: Path) -> None:
    """And none is no line."""
    writer = TraceWriter(tmp_path / "t.jsonl")
    writer.write()
    writer.write(header(), note("one"), note("two"))
    writer.close()
    assert (tmp_path / "t.jsonl").read_bytes().count(b"\n") == 3
    assert texts(tmp_path / "t.jsonl") == ["one", "two"]


def test_of_several_records_those_that_a_full_disk_took_are_not_counted_as_lost(tmp_path: Path) -> None:
    """The torn one and all behind it are."""
    path = tmp_path / "t.jsonl"
    writer = TraceWriter(path)
    writer.write(header())
    with room_for(path.stat().st_size + 60):
        writer.write(note("whole"), note("torn" * 20), note("lost"))
    writer.write(note("later"))
    writer.close()
    assert texts(path) == ["whole", "later"]
    assert writer.dropped == 2
