"""What pictures of a build show, and the moments that are kept of a build of any length."""

from __future__ import annotations

from pathlib import Path

import pytest

from builddoctor.core.events import BuildEnded, Status, UnitEnded
from builddoctor.trace.analysis import take_picture
from builddoctor.trace.picture import FIRST_S, GROUPS, Picture, Spans, group_of
from builddoctor.trace.reader import TraceReader
from support import trace_events as tr
from support.made_traces import Made, Work, usual_units, write_trace
from unit.builders import header, summary


def _queued(phase_id: int, at_s: float = 0.0, tool: str = "cicc", kind: str = "cicc", arch: str = "sm_90") -> tr.Events:
    return tr.phase_asked(
        at_s=at_s,
        phase_id=phase_id,
        unit_id=f"u{phase_id}",
        kind=kind,
        tool=tool,
        source=f"src/{phase_id}.cu",
        arch=arch,
        estimate_mib=100.0,
        reserve_mib=120.0,
        estimate_source="prior",
    )


def _admitted(phase_id: int, at_s: float) -> tr.Events:
    return tr.admitted(at_s=at_s, phase_id=phase_id, reserve_mib=120.0, waited_s=0.5, running=1)


def _held(phase_id: int, at_s: float, rss_mib: float) -> tr.Events:
    return tr.sampled(at_s=at_s, phase_id=phase_id, rss_mib=rss_mib)


def _ended(phase_id: int, at_s: float, peak_mib: float = 100.0, outcome: str = "ok") -> tr.Events:
    return tr.phase_ended(at_s=at_s, phase_id=phase_id, outcome=outcome, peak_mib=peak_mib, wall_s=1.0, cpu_s=1.0)


def _picture(*records: tr.Events) -> Picture:
    return take_picture(tr.events(header(), *records))


def test_memory_is_told_by_tool_and_holder() -> None:
    """At the fullest moment two tools hold what they hold, the larger holder first."""
    seen = _picture(
        _queued(1),
        _queued(2, tool="ptxas", kind="ptxas"),
        _admitted(1, 1.0),
        _admitted(2, 1.0),
        _held(1, 2.0, 300.0),
        _held(2, 3.0, 500.0),
        _ended(1, 4.0, 300.0),
        _ended(2, 5.0, 500.0),
    )
    fullest = max(seen.moments, key=lambda each: each.total_mib)
    assert (fullest.at_s, fullest.total_mib) == (3.0, 800.0)
    assert dict(zip(GROUPS, fullest.held_mib, strict=True))["ptxas"] == 500.0
    assert fullest.holders == ((1, 500.0), (0, 300.0))
    assert seen.moments[-1].total_mib == 0.0


def test_a_phase_too_short_for_a_sample_shows_with_its_peak() -> None:
    """What ended between two looks is known by its end alone."""
    seen = _picture(_queued(1), _admitted(1, 1.0), _ended(1, 1.02, 75.0))
    assert max(each.total_mib for each in seen.moments) == 75.0


def test_lanes_are_taken_again() -> None:
    """As many as ran at once, and a free one before a new one."""
    seen = _picture(
        *(_queued(each) for each in (1, 2, 3)),
        _admitted(1, 1.0),
        _admitted(2, 1.0),
        _ended(1, 2.0),
        _admitted(3, 3.0),
        _ended(2, 4.0),
        _ended(3, 5.0),
    )
    assert [run.lane for run in seen.runs] == [0, 1, 0]
    assert seen.lanes == 2


def test_a_phase_that_is_run_again_has_two_runs_and_a_mark() -> None:
    """The killed run, the second one, and who killed it."""
    seen = _picture(
        _queued(1),
        _admitted(1, 1.0),
        _held(1, 2.0, 400.0),
        tr.killed(at_s=2.5, phase_id=1, reason="memory runs out"),
        _ended(1, 3.0, 400.0, "killed-by-us"),
        tr.requeued(at_s=3.0, phase_id=1, reserve_mib=600.0, solo=True, lost_s=2.0),
        _admitted(1, 4.0),
        _ended(1, 5.0, 420.0),
    )
    assert [(run.attempt, run.outcome) for run in seen.runs] == [(1, "killed-by-us"), (2, "ok")]
    mark, redo = seen.marks
    assert (mark.kind, mark.total_mib) == ("ended", 400.0)
    assert (redo.kind, redo.at_s) == ("warning", 3.0)
    assert redo.text.startswith("redoes cicc sm_90 of src/1.cu: ended by builddoctor, for want of memory at")
    assert mark.text == "builddoctor ended cicc sm_90 of src/1.cu at 400 MiB: memory runs out"


def test_what_a_phase_waited_for_is_known() -> None:
    """From the decision that held it."""
    seen = _picture(
        _queued(1),
        tr.held(0.5, 1, 120, 10),
        _admitted(1, 1.0),
        _ended(1, 2.0),
    )
    assert seen.runs[0].waited_for == "needs 120 MiB, 10 MiB free (memory)"
    assert [mark.kind for mark in seen.marks] == ["wait"]


def test_what_others_hold_is_not_room() -> None:
    """Room is what is free and what is ours, as the last tick had it."""
    tick = Status(
        at_s=1.0,
        budget_mib=2500.0,
        limit_mib=4096.0,
        headroom_mib=2000.0,
        ours_mib=1000.0,
        running=1,
        waiting=0,
        open_units=1,
    )
    assert _picture(tick).moments[-1].room_mib == 3000.0


def test_threads_are_those_of_open_units() -> None:
    """Their mean while they are open; what configure steps try out does not count."""
    seen = _picture(
        tr.unit_began(at_s=0.0, unit_id="a", source="a.cu", threads=4),
        tr.unit_began(at_s=0.0, unit_id="b", source="b.cu", threads=2),
        tr.unit_began(at_s=0.0, unit_id="c", source="c.cu", threads=9, counted=False),
        _queued(1, 1.0),
        UnitEnded(at_s=2.0, unit_id="a"),
        _queued(2, 3.0),
    )
    assert seen.moments[-1].threads == 2.0
    assert 3.0 in {each.threads for each in seen.moments}
    assert seen.finished == {"a"}


def test_runs_of_a_torn_trace_reach_to_its_end() -> None:
    """They have no outcome, and the most that they were seen with."""
    seen = _picture(_queued(1), _admitted(1, 1.0), _held(1, 2.0, 300.0), _held(1, 7.0, 200.0))
    (run,) = seen.runs
    assert (run.end_s, run.outcome, run.peak_mib, run.peak_at_s) == (7.0, "", 300.0, 2.0)
    assert seen.summary is None


def test_records_without_their_beginning_are_passed_over() -> None:
    """Ends, samples and admissions of phases that nobody announced."""
    seen = _picture(_ended(7, 1.0), _held(8, 2.0, 1e6), _admitted(9, 3.0), BuildEnded(at_s=4.0, summary=summary()))
    assert seen.runs == ()
    assert max(each.total_mib for each in seen.moments) == 0.0


@pytest.mark.parametrize(
    ("tool", "kind", "group"),
    [
        ("cicc", "cicc", "cicc"),
        ("/usr/libexec/gcc/cc1plus", "preprocess", "cc1plus"),
        ("clang-18", "host", "cc1plus"),
        ("collect2", "link", "ld"),
        ("ld.lld", "link", "ld"),
        ("fatbinary", "nvlink", "other"),
        ("", "", "other"),
    ],
)
def test_tools_have_their_groups(tool: str, kind: str, group: str) -> None:
    """By the program's name, and by what it does where the name is not known."""
    assert group_of(tool, kind) == group


def test_a_whole_build_adds_up(tmp_path: Path) -> None:
    """Of a build by the real writer: every phase has its run, and no more ran at once than there were cores."""
    build = Made(units=[*usual_units(), ("tail.cu", [Work(kind="cicc", peak_mib=50, wall_s=0.1)])], cores=3)
    seen = take_picture(TraceReader(write_trace(tmp_path / "t.jsonl", build)), most_moments=100)
    assert len(seen.runs) == 16 * 5 + 2
    assert seen.lanes == 3
    assert len(seen.moments) <= 203
    assert max(each.running for each in seen.moments) == 3


def _fed(changes: list[tuple[float, float]], most: int = 1500) -> list[tuple[float, float]]:
    """Times and totals that are kept; the state is the total itself."""
    spans: Spans[float] = Spans(most)
    held = 0.0
    for at_s, total in changes:
        spans.advance(at_s, held, lambda: held)  # noqa: B023 - called at once
        held = total
        spans.offer(held, lambda: held)  # noqa: B023 - called at once
    return spans.kept(held, lambda: held)


def test_few_changes_are_all_kept() -> None:
    """With the time of each, and what lies between them carried on from span to span."""
    kept = _fed([(0.0, 1.0), (1.0, 5.0), (2.0, 2.0)])
    assert (1.0, 5.0) in kept
    assert kept[-1] == (2.0, 2.0)
    assert [at_s for at_s, _ in kept] == sorted(at_s for at_s, _ in kept)


def test_a_peak_between_two_looks_is_not_lost() -> None:
    """Within one span the fullest moment stands for it."""
    kept = _fed([(0.0, 1.0), (FIRST_S * 0.2, 9.0), (FIRST_S * 0.4, 2.0), (10.0, 2.0)])
    assert max(total for _, total in kept) == 9.0


def test_what_falls_is_seen_to_fall() -> None:
    """After a peak the next span begins with what was held over the border, not with the peak."""
    kept = _fed([(0.0, 9.0), (0.01, 1.0), (10.0, 1.0)])
    assert [total for at_s, total in kept if at_s > FIRST_S / 2] == [1.0] * (len(kept) - 1)


def test_their_number_is_bounded_and_the_peak_stays() -> None:
    """A hundred thousand changes over ten hours: at most twice the number that was asked for."""
    changes = [(0.36 * step, float(step % 97)) for step in range(100_000)]
    changes[54_321] = (0.36 * 54_321, 1000.0)
    kept = _fed(changes, most=200)
    assert len(kept) <= 2 * 200 + 3
    assert (0.36 * 54_321, 1000.0) in kept


def test_clocks_that_go_back_do_no_harm() -> None:
    """Times only go on; what is said to be earlier counts as now."""
    kept = _fed([(5.0, 1.0), (-1e9, 2.0), (6.0, 3.0), (1e9, 4.0)])
    assert [at_s for at_s, _ in kept] == sorted(at_s for at_s, _ in kept)
    assert kept[-1] == (1e9, 4.0)
