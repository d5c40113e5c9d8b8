"""What a trace says: units, peaks, how many at once, and how it ends."""

from __future__ import annotations

import gzip
from pathlib import Path

import msgspec

from builddoctor.core.events import BuildEnded, BuildResult, ContinueReason, Resume, Suspend, ToolkitChosen
from builddoctor.trace.analysis import fold
from builddoctor.trace.board import board_state
from builddoctor.trace.reader import TraceReader
from builddoctor.trace.report import TraceReport
from builddoctor.trace.state import BuildState
from support import trace_events as tr
from support.told import digest
from unit.builders import header, summary

REAL = Path(__file__).parents[2] / "data" / "traces" / "attention-kernels-2662-mib.jsonl.gz"


def queued(phase_id: int, unit_id: str = "u1", kind: str = "cicc", at_s: float = 1.0) -> tr.Events:
    return tr.phase_asked(
        at_s=at_s,
        phase_id=phase_id,
        unit_id=unit_id,
        kind=kind,
        tool=kind,
        source="a.cu",
        arch="sm_90",
        estimate_mib=100,
        reserve_mib=150,
        estimate_source="prior",
    )


def admit(phase_id: int, waited_s: float = 0.0) -> tr.Events:
    return tr.admitted(at_s=2.0, phase_id=phase_id, reserve_mib=150, waited_s=waited_s, running=1)


def finish(phase_id: int, peak_mib: float = 100.0, outcome: str = "ok", wall_s: float = 5.0) -> tr.Events:
    return tr.phase_ended(
        at_s=9.0, phase_id=phase_id, outcome=outcome, exit_code=0, peak_mib=peak_mib, wall_s=wall_s, cpu_s=4.0
    )


def unit(unit_id: str, source: str, *, counted: bool = True) -> tr.Events:
    return tr.unit_began(at_s=1.0, unit_id=unit_id, source=source, counted=counted)


def read(*records: tr.Events) -> TraceReport:
    return digest(tr.events(header(), *records))


def test_units_come_worst_first_with_their_phases() -> None:
    """A unit's peak is its worst phase's, its time the sum of them all."""
    told = read(
        unit("u1", "small.cu"),
        unit("u2", "big.cu"),
        *(queued(1, "u1"), queued(2, "u2"), queued(3, "u2")),
        *(admit(1), admit(2), admit(3)),
        *(finish(1, 300), finish(2, 900), finish(3, 1200)),
    )
    assert [(row.unit, row.peak_mib, row.wall_s) for row in told.units] == [("big.cu", 1200, 10), ("small.cu", 300, 5)]
    assert [row.phase_id for row in told.units[0].phases] == [2, 3]


def test_a_phase_that_ran_twice_is_one_row() -> None:
    """Tries add up, the highest peak stays, the last outcome counts."""
    told = read(
        unit("u1", "a.cu"),
        queued(1),
        admit(1, 2.0),
        finish(1, 900, "killed-by-kernel"),
        tr.requeued(at_s=9.0, phase_id=1, reserve_mib=1350, solo=True, lost_s=5.0),
        admit(1, 3.0),
        finish(1, 700),
    )
    (row,) = told.units[0].phases
    assert (row.requeues, row.peak_mib, row.outcome) == (1, 900, "ok")
    assert (row.wall_s, row.cpu_s, row.waited_s) == (10, 8, 5)


def test_a_phase_that_stood_still_took_what_it_worked() -> None:
    """The board says so meanwhile; then how long it stood is told beside its time."""
    stands = Suspend(at_s=3.0, phase_id=1, held_mib=90.0, left_mib=10.0, growth_mib_s=20.0)
    goes_on = Resume(at_s=5.5, phase_id=1, stood_s=2.5, reason=ContinueReason.MEMORY_BACK)
    begun = (header(), unit("u1", "a.cu"), queued(1), admit(1), stands)
    (row,) = board_state(fold(tr.events(*begun)), now_s=5.0).running
    assert (row.suspended, row.running_s) == (True, 1.0)
    (row,) = board_state(fold(tr.events(*begun, goes_on)), now_s=6.0).running
    assert (row.suspended, row.running_s) == (False, 1.5)
    state = fold(tr.events(*begun, goes_on, finish(1)))
    (attempt,) = state.report().units[0].phases[0].attempts
    assert (attempt.stood_s, attempt.wall_s) == (2.5, 5.0)
    assert state.counts.suspended == 1
    told = [each.text for each in state.report().events]
    assert told == [
        "stops cicc sm_90 of a.cu for a while at 90 MiB: 10 MiB free, and others can end first",
        "continues cicc sm_90 of a.cu after 2 s: memory is back",
    ]


def test_how_many_run_at_once_is_counted() -> None:
    """Phases that were admitted and had not ended yet."""
    state = BuildState()
    for event in tr.events(
        header(), queued(1), queued(2), queued(3), queued(4), admit(1), admit(2), finish(1), admit(3)
    ):
        state.apply(event)
    assert state.jobs.most == 2


def test_a_lost_line_does_not_spoil_the_count_of_what_follows() -> None:
    """An end whose admission was torn away takes no other phase's place."""
    state = fold(tr.events(header(), *map(queued, (1, 2, 3)), finish(1), admit(2), admit(3)))
    assert state.jobs.most == 2


def test_a_trace_that_was_cut_off_says_so() -> None:
    """Without its summary there is no exit code; what was sampled of a running phase stands."""
    told = read(unit("u1", "a.cu"), queued(1), admit(1), tr.sampled(at_s=7.0, phase_id=1, rss_mib=640))
    assert (told.whole, told.exit_code, told.last_at_s) == (False, None, 7.0)
    assert told.units[0].peak_mib == 640
    assert told.units[0].phases[0].outcome == ""


def test_a_whole_trace_has_the_builds_exit_code() -> None:
    """The summary is its last line."""
    told = read(BuildEnded(at_s=99.0, summary=summary(exit_code=137, result=BuildResult.FAILED)))
    assert (told.whole, told.exit_code, told.last_at_s) == (True, 137, 99.0)


def test_a_toolkit_that_was_chosen_later_is_the_builds() -> None:
    """Repros, recipes and diagnosis go by it."""
    started = msgspec.structs.replace(header(), toolkit="/usr/local/cuda", nvcc="13.0.88")
    chosen = ToolkitChosen(at_s=3.0, toolkit="/opt/cuda-13.1", nvcc="13.1.115")
    told = digest(tr.events(started, chosen))
    assert (told.header.toolkit, told.header.nvcc) == ("/opt/cuda-13.1", "13.1.115")
    said = told.events[0]
    assert (said.kind, said.text) == ("note", "from here on the build takes CUDA 13.1.115 of /opt/cuda-13.1")


def test_what_configure_steps_compile_is_no_unit() -> None:
    """Units that are not counted, and phases of units that are not known, are left out."""
    told = read(unit("u1", "CMakeCUDACompilerId.cu", counted=False), queued(1), queued(2, "lost"), finish(2))
    assert told.units == []


def test_records_of_phases_that_were_never_announced_are_passed_over() -> None:
    """A torn announcement costs that phase alone."""
    told = read(unit("u1", "a.cu"), admit(7), tr.sampled(at_s=3.0, phase_id=7, rss_mib=10), finish(7))
    assert told.units[0].phases == []


def test_a_unit_without_phases_has_no_peak() -> None:
    """Nothing is made up for it."""
    told = read(unit("u1", "a.cu"))
    assert (told.units[0].peak_mib, told.units[0].wall_s) == (0, 0)


def test_a_build_that_goes_on_shows_the_same_without_what_has_ended(tmp_path: Path) -> None:
    """Of a real build: board and counts are those of a state that keeps all, and at the end nothing is left."""
    path = tmp_path / "trace.jsonl"
    path.write_bytes(gzip.decompress(REAL.read_bytes()))
    whole, live = BuildState(), BuildState(rows=False)
    for event in TraceReader(path):
        whole.apply(event)
        live.apply(event)
        assert board_state(live) == board_state(whole)
        assert len(live.phases) <= len(live.open) + 1
    assert msgspec.json.encode(vars(live.counts)) == msgspec.json.encode(vars(whole.counts))
    assert (len(whole.phases), len(live.phases), len(live.units)) == (95, 0, 0)
