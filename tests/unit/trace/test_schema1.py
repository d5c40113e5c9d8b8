"""Traces of schema 1 read as the builddoctor that wrote them read them.

``tests/data/schema1``: traces by that builddoctor's writer, and what its report, its picture, its tables and its export
for Perfetto had of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from builddoctor.core.events import (
    Admit,
    BuildEvent,
    Continue,
    ContinueReason,
    GiveUp,
    Header,
    Kill,
    MemorySampled,
    Note,
    Pause,
    PhaseAsked,
    PhaseEnded,
    Queue,
    ReleaseUnit,
    Requeue,
    UnitBegan,
)
from builddoctor.core.evidence import KillCause
from builddoctor.core.phase import Outcome
from builddoctor.trace.analysis import fold, peek, read_build, take_picture
from builddoctor.trace.board import board_state
from builddoctor.trace.exports.perfetto import perfetto_json
from builddoctor.trace.exports.tables import TABLES
from builddoctor.trace.reader import TraceReader, TraceTail
from unit.builders import header

DATA = Path(__file__).parents[2] / "data" / "schema1"
NAMES = ["redone", "runaway", "torn"]


def read_then(name: str) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.json.decode((DATA / f"{name}.read.json").read_bytes())
    return told


def as_json(value: object) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def events_of(tmp_path: Path, *records: dict[str, Any]) -> list[BuildEvent]:
    """These records in a trace of schema 1, as events; without the header."""
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in (header(schema=1), *records)))
    reader = TraceReader(path)
    first, *rest = reader
    assert isinstance(first, Header)
    assert reader.skipped == 0
    return rest


ASKED = {
    "t": "ask", "at_s": 1.0, "phase_id": 1, "unit_id": "u1", "kind": "cicc", "tool": "cicc", "source": "a.cu",
    "arch": "sm_90", "estimate_mib": 100.0, "reserve_mib": 150.0, "estimate_source": "prior",
}  # fmt: skip
ADMITTED = {"t": "admit", "at_s": 2.0, "phase_id": 1, "reserve_mib": 160.0, "waited_s": 1.0, "running": 1}
ENDED = {
    "t": "end", "at_s": 9.0, "phase_id": 1, "outcome": "killed-by-kernel", "signal": 9, "cause": "cgroup",
    "peak_mib": 900.0, "wall_s": 7.0, "cpu_s": 6.0,
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_the_report_is_the_same(name: str) -> None:
    """Units, phases with their runs, timeline, what happened, how it ends."""
    now, then = as_json(read_build(DATA / f"{name}.jsonl")), read_then(name)["report"]
    # Both say which trace it is; a field of its header that holds its default is no longer written.
    now["header"], then["header"] = now["header"]["trace_id"], then["header"]["trace_id"]
    if now["summary"] is not None:
        # Newer than these traces.
        assert now["summary"].pop("left_s") is None
        assert (now["summary"].pop("stored"), now["summary"].pop("stored_s")) == (0, 0.0)
        assert now["summary"].pop("suspended") == 0
    for row in (row for unit in now["units"] for row in unit["phases"]):
        assert all((run.pop("elsewhere"), run.pop("stood_s")) == (None, 0.0) for run in row["attempts"])
    for each in (now, then):
        each["given_up"] = [row["phase_id"] for row in each["given_up"]]
        each["commands"], each["kept"] = len(each["commands"]), len(each["kept"])
    assert now == then


@pytest.mark.parametrize("name", NAMES)
def test_the_picture_is_the_same(name: str) -> None:
    """Runs in their lanes, and memory at every moment. A give-up is marked once; waits in words belong to no run."""
    now = as_json(take_picture(TraceReader(DATA / f"{name}.jsonl"), most_moments=40))
    then = read_then(name)["picture"]
    assert {run.pop("node") for run in now["runs"]} <= {""}
    for each in (now, then):
        for run in each["runs"]:
            run.pop("waited_for")
        for moment in each["moments"]:
            # A phase that was given up waited until the end, then.
            moment.pop("waiting")
    assert now["runs"] == then["runs"]
    assert now["moments"] == then["moments"]
    assert sorted(now["finished"]) == sorted(then["finished"])
    assert (now["lanes"], now["last_at_s"]) == (then["lanes"], then["last_at_s"])
    told = [mark for mark in then["marks"] if mark["kind"] != "warning"]
    assert [mark for mark in now["marks"] if mark["kind"] != "warning"] == told


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("table", TABLES)
def test_the_tables_are_the_same(name: str, table: str) -> None:
    """Row by row."""
    assert [list(row) for row in TABLES[table].rows(DATA / f"{name}.jsonl")] == read_then(name)["tables"][table]


@pytest.mark.parametrize("name", ["runaway", "torn"])
def test_the_export_for_perfetto_is_the_same(name: str) -> None:
    """Event by event, but for the notes that said a decision once more."""
    now = msgspec.json.decode(b"".join(perfetto_json(TraceReader(DATA / f"{name}.jsonl"))))["traceEvents"]
    then = msgspec.json.decode((DATA / f"{name}.perfetto.json").read_bytes())["traceEvents"]
    assert now == [event for event in then if not event["name"].startswith(("redoes ", "gives up on "))]


def test_its_ends_can_be_peeked_at_and_followed() -> None:
    """As with a trace of today."""
    path = DATA / "redone.jsonl"
    assert peek(path).result == "ok"
    tail = TraceTail(path)
    state = board_state(fold(event for piece in tail.new() for event in piece))
    tail.close()
    assert (state.units_done, state.requeued, state.jobs) == (6, 1, 0)


def test_samples_can_be_passed_over() -> None:
    """Undecoded."""
    kinds = {type(event) for event in TraceReader(DATA / "redone.jsonl", curves=False)}
    assert MemorySampled not in kinds
    assert PhaseEnded in kinds


def test_a_unit_takes_its_name_from_the_record_before(tmp_path: Path) -> None:
    """And threads that were chosen come when it is released."""
    name = {"t": "name", "at_s": 1.0, "unit_id": "u1", "project": "demo", "place": "a.cu"}
    unit = {"t": "unit", "at_s": 1.0, "unit_id": "u1", "source": "/src/a.cu", "archs": ["sm_90"], "threads": 4}
    opened = {"t": "unit-open", "at_s": 2.0, "unit_id": "u1", "waited_s": 1.0, "threads": 1}
    began, released = events_of(tmp_path, name, unit, opened)
    assert isinstance(began, UnitBegan)
    assert began.key is not None
    assert (began.key.place, began.unit.archs, began.unit.threads) == ("a.cu", ("sm_90",), 4)
    assert isinstance(released, ReleaseUnit)
    assert released.threads == 1


def test_the_life_of_a_phase_becomes_facts_and_decisions(tmp_path: Path) -> None:
    """The estimate is that of the question, the reserve that of each decision; notes that repeat a record are gone."""
    asked, queue, admit, sample, end, redo = events_of(
        tmp_path,
        ASKED,
        ADMITTED,
        {"t": "rss", "at_s": 3.0, "phase_id": 1, "rss_mib": 640.0},
        ENDED,
        {"t": "requeue", "at_s": 9.0, "phase_id": 1, "reserve_mib": 1350.0, "solo": True, "lost_s": 7.0},
        {"t": "note", "at_s": 9.0, "text": "redoes cicc sm_90 of a.cu: ended by the kernel", "level": "warning"},
    )
    assert isinstance(asked, PhaseAsked)
    assert isinstance(queue, Queue)
    assert isinstance(admit, Admit)
    assert isinstance(sample, MemorySampled)
    assert isinstance(end, PhaseEnded)
    assert isinstance(redo, Requeue)
    assert (queue.estimate.peak_mib, queue.estimate.reserve_mib) == (100.0, 150.0)
    assert (admit.estimate.peak_mib, admit.estimate.reserve_mib, admit.alone) == (100.0, 160.0, True)
    assert (sample.rss_mib, sample.held_mib) == (((1, 640.0),), 640.0)
    assert (end.outcome, end.cause) == (Outcome.KILLED_BY_KERNEL, KillCause.CGROUP)
    assert (redo.estimate.reserve_mib, redo.solo, redo.peak_mib) == (1350.0, True, 900.0)


def test_reasons_stay_as_they_were_said(tmp_path: Path) -> None:
    """Nothing is made of their words; a wait stays a note."""
    kill, given_up, wait = events_of(
        tmp_path,
        {"t": "kill", "at_s": 4.0, "phase_id": 1, "reason": "200 MiB left"},
        {"t": "give-up", "at_s": 5.0, "phase_id": 1, "verdict": "too-big", "reason": "alone"},
        {"t": "note", "at_s": 6.0, "text": "waits: x", "level": "hold"},
    )
    assert isinstance(kill, Kill)
    assert isinstance(given_up, GiveUp)
    assert isinstance(wait, Note)
    assert (kill.said, given_up.said, wait.text) == ("200 MiB left", "alone", "waits: x")


def test_pauses_are_told_by_their_records(tmp_path: Path) -> None:
    """Not once more by the notes beside them."""
    pause, goes_on = events_of(
        tmp_path,
        {"t": "pause", "at_s": 4.0, "pid": 7, "name": "cc1plus", "rss_mib": 900.0, "free_mib": 40.0},
        {"t": "note", "at_s": 4.0, "text": "stops cc1plus (process 7) for a while", "level": "warning"},
        {"t": "continue", "at_s": 9.0, "pid": 7, "name": "cc1plus", "stopped_s": 5.0, "reason": "memory is back"},
        {"t": "note", "at_s": 9.0, "text": "continues cc1plus (process 7) after 5 s: memory is back"},
    )
    assert isinstance(pause, Pause)
    assert isinstance(goes_on, Continue)
    assert (pause.process.pid, pause.free_mib) == (7, 40.0)
    assert goes_on.reason is ContinueReason.MEMORY_BACK


def test_a_record_with_words_that_nobody_wrote_costs_its_line(tmp_path: Path) -> None:
    """An outcome that is none, say."""
    path = tmp_path / "t.jsonl"
    lines = (header(schema=1), ASKED, ADMITTED, {**ENDED, "outcome": "eaten"})
    path.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in lines))
    assert read_build(path).skipped == 1
