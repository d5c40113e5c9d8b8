"""A trace for other tools: events for Perfetto, and tables as CSV, SQLite and Parquet."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
import sys
from pathlib import Path

import pytest

from builddoctor.core.errors import ExtraMissingError, TraceError
from builddoctor.core.events import Admit, Note, PhaseEnded
from builddoctor.trace.exports.perfetto import perfetto_json
from builddoctor.trace.exports.tables import TABLES, write_csv, write_parquet, write_sqlite
from builddoctor.trace.reader import TraceReader
from support import trace_events as tr
from support.chrome_events import Event, checked, slices
from support.made_traces import Made, usual_units, write_trace
from unit.builders import header

FATES = {
    "good": Made(units=usual_units()),
    "redone": Made(units=usual_units(gelu={"cicc": "killed-once"})),
    "too-big": Made(units=usual_units(gelu={"cicc": "too-big"})),
    "runaway": Made(units=usual_units(swiglu={"cudafe": "runaway"})),
    "torn": Made(units=usual_units(), stop_at_s=60.0),
}

EVIL = "src/\x1b]0;owned\x07<script>\n=cmd\udcff.cu"


def exported(path: Path) -> list[Event]:
    return checked(b"".join(perfetto_json(TraceReader(path))))


@pytest.fixture(params=FATES)
def any_trace(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A good build, and builds that went wrong in every way."""
    return write_trace(tmp_path / "t.jsonl", FATES[request.param])


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return write_trace(tmp_path / "t.jsonl", FATES["good"])


@pytest.fixture
def evil(tmp_path: Path) -> Path:
    """Names that nobody should be shown as they are."""
    records = (
        header(title=EVIL),
        tr.phase_asked(
            at_s=1, phase_id=1, unit_id="u", kind="cicc", tool=EVIL, source=EVIL, estimate_mib=1, reserve_mib=1,
            estimate_source=EVIL,
        ),
        tr.admitted(at_s=1, phase_id=1, reserve_mib=1, waited_s=0, running=1),
        tr.sampled(at_s=2, phase_id=1, rss_mib=5),
        tr.phase_ended(at_s=3, phase_id=1, peak_mib=5, wall_s=2, cpu_s=1),
        Note(at_s=3, text=EVIL),
    )  # fmt: skip
    path = tmp_path / "evil.jsonl"
    from builddoctor.trace.writer import TraceWriter

    writer = TraceWriter(path)
    for record in records:
        writer.write(*tr.events(record))
    writer.close()
    return path


def test_every_build_makes_events_that_a_strict_reader_takes(any_trace: Path) -> None:
    """Slices in lanes that never overlap, flows that lie in slices, waits in pairs, whatever came of the build."""
    assert slices(exported(any_trace))


def test_each_run_of_a_phase_is_a_slice(any_trace: Path) -> None:
    """With its figures; one that the trace cuts off ends where the trace does."""
    records = list(TraceReader(any_trace))
    admitted = sorted((round(record.at_s * 1e6), record.phase_id) for record in records if isinstance(record, Admit))
    events = exported(any_trace)
    assert sorted((event["ts"], event["args"]["phase"]) for event in slices(events)) == admitted
    ends = {record.phase_id: record for record in records if isinstance(record, PhaseEnded)}
    last_us = round(max(record.at_s for record in records) * 1e6)
    for event in slices(events):
        end = ends.get(event["args"]["phase"])
        if end is None:
            assert event["args"]["outcome"] == "the trace ends here"
            assert event["ts"] + event["dur"] == last_us
        else:
            assert event["args"]["peak_mib"] == end.peak_mib


def test_lanes_are_as_many_as_ran_at_once(good: Path) -> None:
    """One for each core that was used, the lowest first."""
    most = max(record.running for record in TraceReader(good) if isinstance(record, Admit))
    names = [event["args"]["name"] for event in exported(good) if event["name"] == "thread_name"]
    assert names == [f"lane {number:02}" for number in range(1, most + 1)]


def test_flows_lead_from_the_front_end_to_the_back_ends(good: Path) -> None:
    """Front end, cicc, ptxas, host compile of each unit, in this order."""
    events = exported(good)
    at = {(event["tid"], event["ts"]): event for event in slices(events)}
    pairs: dict[int, list[Event]] = {}
    for event in events:
        if event["ph"] in ("s", "f"):
            pairs.setdefault(event["id"], []).append(event)
    kinds = set()
    for begin, end in pairs.values():
        target = at[(end["tid"], end["ts"])]
        source = max(
            (slice_ for slice_ in slices(events) if slice_["tid"] == begin["tid"] and slice_["ts"] <= begin["ts"]),
            key=lambda slice_: slice_["ts"],
        )
        assert source["args"]["unit"] == target["args"]["unit"]
        kinds.add((source["cat"], target["cat"]))
    assert {("cudafe++", "cicc"), ("cicc", "ptxas"), ("ptxas", "host")} <= kinds


def test_counters_say_memory_budget_limit_and_jobs(good: Path) -> None:
    """And the memory of each lane, back to nothing after each run."""
    events = exported(good)
    counters = {event["name"] for event in events if event["ph"] == "C"}
    assert {"memory of the build", "budget", "limit", "jobs", "phases that wait", "memory in lane 01"} <= counters
    (limit,) = [event["args"] for event in events if event["name"] == "limit"]
    assert limit == {"MiB": 8192.0}
    assert [event["args"] for event in events if event["name"] == "memory in lane 01"][-1] == {"MiB": 0.0}


def test_names_from_a_tree_are_only_text(evil: Path) -> None:
    """No control character and no broken UTF-8 in any export."""
    exported(evil)
    for table in TABLES.values():
        out = io.StringIO()
        write_csv(evil, table, out)
        assert not any(char < " " and char != "\n" for char in out.getvalue())
        out.getvalue().encode()
    assert all(len(row) == len(TABLES["phases"].columns) for row in csv.reader(io.StringIO(_csv(evil, "phases"))))


def _csv(path: Path, table: str) -> str:
    out = io.StringIO()
    write_csv(path, TABLES[table], out)
    return out.getvalue()


@pytest.mark.parametrize("table", TABLES)
def test_the_tables_are_the_same_in_every_format(any_trace: Path, tmp_path: Path, table: str) -> None:
    """CSV, SQLite and Parquet, row by row; each has its heading."""
    rows = list(TABLES[table].rows(any_trace))
    assert rows
    names = [name for name, _ in TABLES[table].columns]
    told = list(csv.reader(io.StringIO(_csv(any_trace, table))))
    assert told[0] == names
    assert told[1:] == [["" if value is None else str(value) for value in row] for row in rows]
    target = tmp_path / "t.sqlite"
    write_sqlite(any_trace, target)
    with sqlite3.connect(target) as database:
        assert database.execute(f"select * from {table}").fetchall() == rows
        assert [column[1] for column in database.execute(f"pragma table_info({table})")] == names
    database.close()
    parquet = pytest.importorskip("pyarrow.parquet")
    write_parquet(any_trace, TABLES[table], tmp_path / "t.parquet")
    read = parquet.read_table(tmp_path / "t.parquet")
    assert read.column_names == names
    assert [tuple(row.values()) for row in read.to_pylist()] == rows


def test_the_database_says_what_was_built(good: Path, tmp_path: Path) -> None:
    """Header and summary, and a question that people ask: the worst phase."""
    write_sqlite(good, tmp_path / "t.sqlite")
    with sqlite3.connect(tmp_path / "t.sqlite") as database:
        facts = dict(database.execute("select name, value from build"))
        (worst,) = database.execute("select source from phases order by peak_mib desc limit 1").fetchone()
    database.close()
    assert json.loads(facts["command"]) == ["ninja"]
    assert (facts["cores"], facts["limit_mib"], facts["summary_result"]) == (4, 8192.0, "ok")
    assert worst == "gemm/cutlass_grouped_gemm.cu"


def test_a_phase_that_was_redone_has_a_row_for_each_run(tmp_path: Path) -> None:
    """How each of them ended."""
    path = write_trace(tmp_path / "t.jsonl", FATES["redone"])
    rows = [
        dict(zip((n for n, _ in TABLES["phases"].columns), row, strict=True)) for row in TABLES["phases"].rows(path)
    ]
    twice = [row for row in rows if row["kind"] == "cicc" and "gelu" in str(row["source"])]
    assert [(row["attempt"], row["outcome"]) for row in twice] == [(1, "killed-by-kernel"), (2, "ok")]


def test_what_looks_like_a_formula_is_marked_as_text(tmp_path: Path) -> None:
    """A spreadsheet would calculate it."""
    path = write_trace(tmp_path / "t.jsonl", Made(units=[("=1+1.cu", FATES["good"].units[0][1])]))
    assert "'=1+1.cu" in _csv(path, "units")


def test_parquet_without_pyarrow_says_what_to_install(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what needs nothing."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ExtraMissingError, match="pyarrow") as caught:
        write_parquet(good, TABLES["phases"], good.with_suffix(".parquet"))
    assert "pip install pyarrow" in caught.value.hint


@pytest.mark.parametrize("table", TABLES)
def test_what_is_no_trace_is_an_error(tmp_path: Path, table: str) -> None:
    """In every format."""
    path = tmp_path / "t.jsonl"
    path.write_text("{}\n")
    with pytest.raises(TraceError):
        list(TABLES[table].rows(path))
    with pytest.raises(TraceError):
        list(perfetto_json(TraceReader(path)))


def test_a_lane_is_free_again_only_when_its_slice_has_ended(tmp_path: Path) -> None:
    """Clocks that go back a little, and two events at one time, make no slices over each other."""
    from builddoctor.trace.writer import TraceWriter

    writer = TraceWriter(tmp_path / "t.jsonl")
    writer.write(header())
    for phase_id, (begins_s, ends_s) in enumerate(((1.0, 2.0), (2.0, 2.0), (1.9999999, 3.0), (2.5, 2.4)), 1):
        writer.write(
            *tr.phase_asked(
                at_s=begins_s, phase_id=phase_id, unit_id="u", kind="host", tool="cc1plus", source="a.cpp",
                estimate_mib=1, reserve_mib=1, estimate_source="prior",
            )
        )  # fmt: skip
        writer.write(tr.admitted(at_s=begins_s, phase_id=phase_id, reserve_mib=1, waited_s=0, running=1))
        writer.write(tr.phase_ended(at_s=ends_s, phase_id=phase_id, outcome="ok", peak_mib=1, wall_s=1, cpu_s=1))
    writer.close()
    assert len(slices(exported(tmp_path / "t.jsonl"))) == 4
