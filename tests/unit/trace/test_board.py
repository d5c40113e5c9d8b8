"""A build followed by its trace: the same picture as in its own terminal, from a file that grows."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from builddoctor.core.board import TimeLeft, WaitReason
from builddoctor.core.errors import TraceError
from builddoctor.core.events import BuildEvent, Note, NoteLevel, Status
from builddoctor.trace.analysis import fold, idle_s
from builddoctor.trace.board import board_state
from builddoctor.trace.reader import TraceReader, TraceTail
from builddoctor.trace.state import BuildState
from builddoctor.trace.writer import TraceWriter
from builddoctor.ui.progress import wait_line
from support import trace_events as tr
from support.made_traces import Made, usual_units, write_trace
from unit.builders import header

HEADER = header(cwd="/src", archs=["sm_90"], nvcc="13.0.88", threads=4)


def queued(phase_id: int, source: str = "/src/a/gelu.cu", **fields: object) -> tr.Events:
    """A phase of a unit of its own asks."""
    known = {"at_s": 1.0, "unit_id": f"u{phase_id}", "kind": "cicc", "tool": "cicc", "arch": "sm_90"}
    sizes = {"estimate_mib": 1000.0, "reserve_mib": 1500.0, "estimate_source": "prior"}
    return tr.phase_asked(**{**known, **sizes, **fields}, phase_id=phase_id, source=source)  # type: ignore[arg-type]


def tick(at_s: float, **fields: object) -> Status:
    known = {"budget_mib": 2000.0, "limit_mib": 2500.0, "headroom_mib": 900.0, "ours_mib": 700.0}
    counts = {"running": 1, "waiting": 1, "open_units": 2, "oom_kills": 0}
    return Status(**{**known, **counts, **fields}, at_s=at_s)  # type: ignore[arg-type]


def followed(*records: tr.Events) -> BuildState:
    return fold(tr.events(HEADER, *records))


def test_a_whole_build_ends_with_its_figures(tmp_path: Path) -> None:
    """What the summary says is what was counted on the way."""
    path = write_trace(tmp_path / "t.jsonl", Made(units=usual_units(gelu={"cicc": "killed-once"})))
    build = fold(TraceReader(path))
    state, summary = board_state(build), build.summary
    assert summary is not None
    assert build.has_ended
    assert (state.units_done, state.units_open) == (summary.units, 0)
    assert state.requeued == summary.requeued == 1
    assert state.jobs_max == summary.effective_jobs_max
    assert (state.running, state.waits, state.waiting, state.jobs) == ((), (), 0, 0)


def test_the_middle_of_a_build_is_told_as_it_is() -> None:
    """Who runs and holds how much, who waits, for how much and since when."""
    build = followed(
        tr.unit_began(at_s=1, unit_id="u1", source="/src/a/gelu.cu"),
        tr.unit_began(at_s=1, unit_id="u2", source="/src/b.cu"),
        queued(1),
        tr.admitted(2, 1, 1500, waited_s=1, estimate_mib=1000),
        queued(2, "/src/b.cu", at_s=3.0),
        tr.held(3, 2, 1500, 500),
        Note(at_s=3, text="a warning", level=NoteLevel.WARNING),
        tick(4, planned=66),
    )
    state = board_state(build, now_s=5)
    assert state.title == "demo · sm_90 · nvcc 13.0.88"
    assert (state.units_done, state.units_open, state.units_total, state.threads) == (0, 2, 66, 4)
    (row,) = state.running
    assert (row.source, row.estimate_mib, row.running_s) == ("a/gelu.cu", 1000, 3)
    assert state.held is not None
    assert (state.held.source, state.held.reason, state.held.needs_mib, state.held.free_mib) == (
        "b.cu",
        WaitReason.MEMORY,
        1500,
        500,
    )
    assert state.held.waited_s == 2
    assert [event.text for event in state.events] == ["a warning"]


def test_what_would_fit_now_no_longer_waits_for_memory() -> None:
    """What the scheduler said when memory was short is old: a core is missing, or others go first."""
    records = (
        queued(1),
        tr.admitted(2, 1, 1500, waited_s=1, estimate_mib=1000),
        queued(2, "/src/b.cu", at_s=3.0),
        tr.held(3, 2, 1500, 500),
        tick(4, budget_mib=4000.0),
    )
    one_core = fold(tr.events(header(cwd="/src", cores=1), *records))
    assert [row.reason for row in board_state(one_core).waits] == [WaitReason.CORES]
    held = board_state(followed(*records)).held
    assert held is not None
    assert wait_line(5, held) == "[0:05] waits behind other phases: b.cu cicc"


def test_what_is_beyond_the_whole_budget_waits_for_the_others_to_end() -> None:
    """No memory that becomes free lets it start: it runs when it is alone."""
    records = (
        queued(1),
        tr.admitted(2, 1, 1500, waited_s=1, estimate_mib=1000),
        queued(2, "/src/b.cu", at_s=3.0),
        tr.held(3, 2, 8400, 500),
        tick(4, budget_mib=4000.0),
    )
    held = board_state(followed(*records)).held
    assert held is not None
    assert wait_line(5, held) == "[0:05] waits to run alone: b.cu cicc, once the others have ended"


def test_the_time_left_is_what_the_supervisor_said_less_what_passed() -> None:
    """It knows earlier builds and recipes; a trace does not."""
    build = followed(tick(4, planned=66))
    assert board_state(build).left is None
    build.apply(tick(5, planned=66, left_s=(60.0, 90.0)))
    assert board_state(build, now_s=15).left == TimeLeft(low_s=50, high_s=80)
    assert board_state(build, now_s=75).left == TimeLeft(low_s=0, high_s=20)
    build.apply(tick(6, left_s=(90.0, -1.0)))
    assert board_state(build).left == TimeLeft(low_s=0, high_s=0)


def test_a_phase_that_is_redone_waits_again() -> None:
    """With what it needs now."""
    build = followed(
        queued(1),
        tr.admitted(2, 1, 1500, waited_s=1, estimate_mib=1000),
        tr.phase_ended(3, 1, "killed-by-kernel", peak_mib=1),
        tr.requeued(at_s=3, phase_id=1, reserve_mib=1900, solo=True, lost_s=1),
    )
    state = board_state(build)
    assert (state.requeued, state.waiting, state.waits[0].needs_mib) == (1, 1, 1900)


def test_records_of_unknown_phases_are_passed_over() -> None:
    """Their beginning was torn."""
    build = followed(tr.admitted(at_s=2, phase_id=9, reserve_mib=1, waited_s=1, running=1))
    assert board_state(build).jobs == 0


# -- the file ------------------------------------------------------------------------------------------------


def new_of(tail: TraceTail) -> list[BuildEvent]:
    return [record for piece in tail.new() for record in piece]


def test_a_growing_trace_is_read_as_it_grows(tmp_path: Path) -> None:
    """A line counts when it is whole; what was torn is passed over."""
    path = tmp_path / "t.jsonl"
    writer = TraceWriter(path)
    writer.write(HEADER)
    tail = TraceTail(path)
    assert new_of(tail) == [HEADER]
    assert new_of(tail) == []
    line = msgspec.json.encode(tick(1))
    with path.open("ab") as file:
        file.write(line[:20])
    assert new_of(tail) == []
    with path.open("ab") as file:
        file.write(line[20:] + b"\nnot a record\n")
    assert new_of(tail) == [tick(1)]
    writer.close()
    tail.close()


def test_one_sees_whether_somebody_writes(tmp_path: Path) -> None:
    """While the writer lives, whoever it is that looks, and not afterwards."""
    path = tmp_path / "t.jsonl"
    writer = TraceWriter(path)
    writer.write(HEADER)
    one, other = TraceTail(path), TraceTail(path)
    assert one.is_written
    assert other.is_written
    assert idle_s(path) < 60
    writer.close()
    assert idle_s(path) == float("inf")
    assert not one.is_written
    assert not other.is_written
    one.close()
    other.close()


def test_a_removed_trace_is_read_to_its_end(tmp_path: Path) -> None:
    """It is known that it was removed."""
    path = tmp_path / "t.jsonl"
    writer = TraceWriter(path)
    writer.write(HEADER)
    tail = TraceTail(path)
    path.unlink()
    writer.write(tick(1))
    assert new_of(tail) == [HEADER, tick(1)]
    assert tail.is_removed
    writer.close()
    tail.close()


def test_a_trace_that_was_begun_anew_is_an_error(tmp_path: Path) -> None:
    """Another build with the same `--trace`."""
    path = tmp_path / "t.jsonl"
    path.write_bytes(msgspec.json.encode(HEADER) + b"\n" + msgspec.json.encode(tick(1)) + b"\n")
    tail = TraceTail(path)
    new_of(tail)
    path.write_bytes(b"{}")
    with pytest.raises(TraceError, match="begun anew"):
        new_of(tail)
    tail.close()


@pytest.mark.parametrize("content", [b"", b"{}\n", b"\x00\xff"])
def test_what_is_no_trace_is_not_followed(tmp_path: Path, content: bytes) -> None:
    """Said at once."""
    path = tmp_path / "t.jsonl"
    path.write_bytes(content)
    with pytest.raises(TraceError):
        TraceTail(path)
