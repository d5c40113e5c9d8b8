"""What a report has of a build; which phase is meant, and the command that is shown for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from builddoctor.core.errors import UsageError
from builddoctor.core.events import (
    BuildEnded,
    BuildEvent,
    InputsKept,
    Note,
    NoteLevel,
    PhaseStarted,
    UnitCommand,
    UnitEnded,
)
from builddoctor.diagnose.from_trace import repro_command
from builddoctor.trace.analysis import read_build
from builddoctor.trace.report import TraceReport, choose_phase
from builddoctor.trace.state import MOST_EVENTS
from support import trace_events as tr
from support.told import digest
from unit.builders import header, summary
from unit.small_traces import admitted, asked, ended, read, tick, unit, written


def test_each_run_of_a_phase_is_kept() -> None:
    """Its start, its end, what was set aside, who ended it and why."""
    told = read(
        unit(),
        asked(1),
        admitted(1, 2.0, running=4),
        PhaseStarted(at_s=2.1, phase_id=1, pid=7),
        tr.killed(at_s=6.0, phase_id=1, reason="200 MiB left"),
        ended(1, 7.0, "killed-by-us", 900, signal=9, exit_code=None),
        tr.requeued(at_s=7.1, phase_id=1, reserve_mib=1350, solo=True, lost_s=5.0),
        admitted(1, 8.0),
        ended(1, 13.0, "ok", 1000),
    )
    (phase,) = told.phases
    first, second = phase.attempts
    assert (first.admitted_at_s, first.started_at_s, first.ended_at_s, first.running) == (2.0, 2.1, 7.0, 4)
    assert (first.outcome, first.signal, first.killed_for, first.peak_mib) == ("killed-by-us", 9, "200 MiB left", 900)
    assert (second.admitted_at_s, second.outcome, second.peak_mib) == (8.0, "ok", 1000)
    assert (phase.outcome, phase.requeues, phase.lost_s, phase.running) == ("ok", 1, 5.0, False)
    assert [event.kind for event in told.events] == ["kill", "requeue"]
    assert told.events[0].text == "builddoctor ends cicc sm_90 of /src/a.cu: 200 MiB left"
    assert told.units[0].requeues == 1


def test_a_phase_that_waits_to_be_run_again_has_no_outcome() -> None:
    """A trace that stops there does not say how the phase ended: it had not."""
    told = read(unit(), asked(1), admitted(1), ended(1, 7.0, "killed-by-kernel", cause="cgroup"))
    assert told.phases[0].outcome == "killed-by-kernel"
    again = tr.requeued(at_s=7.1, phase_id=1, reserve_mib=1350, solo=False, lost_s=5.0)
    told = read(unit(), asked(1), admitted(1), ended(1, 7.0, "killed-by-kernel", cause="cgroup"), again)
    assert (told.phases[0].outcome, told.phases[0].running) == ("", False)


@pytest.mark.parametrize(
    ("cause", "who"),
    [("cgroup", "the kernel"), ("oomd", "systemd-oomd"), ("outside", "something else"), ("", "something unknown")],
)
def test_a_kill_that_was_not_ours_names_who_it_was(cause: str, who: str) -> None:
    """Also where nothing is known of it."""
    told = read(unit(), asked(1), admitted(1), ended(1, 7.0, "killed-outside", 640, cause=cause))
    assert [(event.kind, event.text) for event in told.events] == [
        ("killed", f"cicc sm_90 of /src/a.cu killed by {who} at 640 MiB")
    ]


def test_units_know_their_estimate_and_their_end() -> None:
    """The estimate is the one of the phase that has the peak."""
    told = read(unit(threads=4), asked(1), admitted(1), ended(1, peak_mib=640), UnitEnded(at_s=11.0, unit_id="u1"))
    (row,) = told.units
    assert (row.unit, row.output, row.threads) == ("/src/a.cu", "a.o", 4)
    assert (row.peak_mib, row.estimate_mib, row.waited_s) == (640, 100, 1.0)
    assert (row.began_at_s, row.ended_at_s) == (0.5, 11.0)
    assert row.worst is row.phases[0]


def test_a_link_is_named_by_what_it_makes() -> None:
    """It has no source."""
    assert read(unit(source="", output="lib.so")).units[0].unit == "lib.so"


def test_phases_of_configure_steps_are_kept_apart() -> None:
    """They count among the phases, and not among the units."""
    told = read(unit(counted=False), asked(1), asked(2, unit_id="lost"))
    assert told.units == []
    assert [phase.phase_id for phase in told.other_phases] == [1, 2]
    assert [phase.phase_id for phase in told.phases] == [1, 2]


def test_the_timeline_tells_ours_from_others() -> None:
    """What is used under the tightest limit, less what this build holds; the threads are those of open units."""
    told = read(unit(threads=2), tick(1.0, 500, headroom_mib=3000), UnitEnded(at_s=1.5, unit_id="u1"), tick(2.0, 0))
    first, second = told.timeline
    assert (first.used_mib, first.ours_mib, first.others_mib) == (1096, 500, 596)
    assert (first.running, first.waiting, first.open_units, first.threads) == (1, 2, 3, 2)
    assert second.threads == 0


@pytest.mark.parametrize("length_s", [50, 5_000, 300_000])
def test_the_timeline_stays_short_and_keeps_the_fullest_moment(length_s: int) -> None:
    """However long the build was: of each span of time the moment at which phases held most."""
    spike_s = length_s * 2 // 3
    records = [tick(float(at_s), 100) for at_s in range(0, length_s, max(1, length_s // 5000))]
    records += [tick(float(spike_s), 4000)]
    told = digest(tr.events(header(), *records), points=100)
    assert 20 <= len(told.timeline) <= 100
    assert max((point.ours_mib, point.at_s) for point in told.timeline) == (4000, spike_s)
    assert told.timeline == sorted(told.timeline, key=lambda point: point.at_s)
    assert told.peak_mib == 4000


def test_events_of_each_kind_are_bounded() -> None:
    """A build that waits all the time does not push out what was killed."""
    waits = [Note(at_s=1.0, text="waits: x", level=NoteLevel.HOLD)] * (MOST_EVENTS + 7)
    gave_up = tr.gave_up(at_s=3.0, phase_id=1, verdict="too-big", reason="alone")
    told = read(unit(), asked(1), *waits, Note(at_s=2.0, text="careful", level=NoteLevel.WARNING), gave_up)
    assert len(told.events) == MOST_EVENTS + 2
    assert told.left_out == 7
    assert [event.kind for event in told.events[-2:]] == ["warning", "give-up"]
    assert told.events[-1].text == "cicc sm_90 of /src/a.cu cannot be saved (too-big): alone"


def test_a_torn_trace_has_the_memory_of_what_ran_last(tmp_path: Path) -> None:
    """Samples of phases are passed over, but not of those that had not ended where the trace does."""
    path = written(
        tmp_path / "t.jsonl",
        unit(),
        *(asked(1), admitted(1), tr.sampled(at_s=3.0, phase_id=1, rss_mib=70), ended(1, 4.0, peak_mib=80)),
        *(asked(2), admitted(2, 5.0), tr.sampled(at_s=6.0, phase_id=2, rss_mib=640)),
        *(tr.sampled(at_s=7.5, phase_id=2, rss_mib=600), tick(8.0, 600)),
        tail=b'{"t":"rss","at_s":9',
    )
    told = read_build(path)
    first, second = told.phases
    assert (first.peak_mib, first.running) == (80, False)
    assert (second.peak_mib, second.running, second.attempts[0].wall_s) == (640, True, 2.5)
    assert (told.whole, told.exit_code, told.last_at_s, told.skipped) == (False, None, 8.0, 0)
    assert told.last_points[-1].at_s == 8.0
    assert told.peak_mib == 640


def test_samples_of_phases_that_ended_are_not_needed(tmp_path: Path) -> None:
    """A file and its records tell the same."""
    records = [unit(), asked(1), admitted(1), tr.sampled(at_s=3, phase_id=1, rss_mib=70), ended(1), tick(9.5, 70)]
    end = BuildEnded(at_s=10.0, summary=summary())
    path = written(tmp_path / "t.jsonl", *records, end)
    assert read_build(path) == read(*records, end)
    assert read_build(path).peak_mib == summary().peak_mib


@pytest.mark.parametrize("figure", [1e13, 1e300])
def test_a_summary_beyond_belief_is_none(figure: float) -> None:
    """The trace then counts as one that stops short."""
    assert not read(BuildEnded(at_s=1.0, summary=summary(wall_s=figure))).whole


def test_a_number_beyond_belief_costs_its_line(tmp_path: Path) -> None:
    """No sum of such numbers is ever made."""
    lines = b'{"t":"note","at_s":1e300,"text":"x"}\n{"t":"note","at_s":2.0,"text":"y"}\n'
    told = read_build(written(tmp_path / "t.jsonl", tail=lines))
    assert (told.last_at_s, told.skipped, [event.text for event in told.events]) == (2.0, 1, ["y"])


def test_a_second_header_changes_nothing() -> None:
    """Two traces glued together are read as the first."""
    assert read(header(trace_id="other"), trace_id="first").header.trace_id == "first"


def report(*more: BuildEvent) -> TraceReport:
    """Unit u1 (/src/a.cu) with cudafe++ (1), cicc (2) and a larger cicc (3); u2 (/src/b.cu) with ptxas (4)."""
    lines: list[tr.Events] = [header(), unit(), unit(unit_id="u2", source="/src/b.cu", output="b.o")]
    for number, (unit_id, kind) in enumerate([("u1", "cudafe++"), ("u1", "cicc"), ("u1", "cicc"), ("u2", "ptxas")], 1):
        lines += [ask(number, unit_id, kind), admitted(number, float(number))]
        lines.append(ended(number, number + 0.5, peak_mib=100.0 * number))
    return digest(tr.events(*lines, *more))


def ask(number: int, unit_id: str, tool: str) -> tr.Events:
    source = {"u1": "/src/a.cu", "u2": "/src/b.cu"}[unit_id]
    return tr.phase_asked(float(number), number, unit_id, tool, tool, source, estimate_mib=100, reserve_mib=150)


def summed_up(trace: str) -> BuildEnded:
    return BuildEnded(at_s=20.0, summary=summary(trace=trace))


def command(unit_id: str = "u1") -> UnitCommand:
    return UnitCommand(at_s=0.0, unit_id=unit_id, tool="nvcc", cwd="/src", argv=["-c", "a.cu"])


def kept(phase_id: int) -> InputsKept:
    return InputsKept(at_s=9.0, phase_id=phase_id, tool="/cuda/cicc", argv=["a.ii"], cwd="/src", files=[])


@pytest.mark.parametrize("wanted", ["1", "/src/a.cu:cudafe++", "a.cu:cudafe++", "a:cudafe++"])
def test_a_phase_is_named_by_number_or_by_unit_and_program(wanted: str) -> None:
    """A source by its path, its name, or its name without the suffix."""
    assert choose_phase(report(), wanted).phase_id == 1


def test_of_several_the_largest_is_meant() -> None:
    """``a.cu`` alone, or a program that ran twice for it."""
    assert choose_phase(report(), "a.cu").phase_id == 3
    assert choose_phase(report(), "a.cu:cicc").phase_id == 3
    assert choose_phase(report(), "b").phase_id == 4


@pytest.mark.parametrize("wanted", ["99", "c.cu", "a.cu:nvlink", "a.cu:cicc:sm_75", ":", "a.cu:"])
def test_what_does_not_name_a_phase_is_said(wanted: str) -> None:
    """With the forms that do; an empty program means any."""
    if wanted == "a.cu:":
        assert choose_phase(report(), wanted).phase_id
        return
    with pytest.raises(UsageError) as caught:
        choose_phase(report(), wanted)
    assert "builddoctor trace units" in caught.value.hint


def test_without_a_word_it_is_the_one_that_died() -> None:
    """Given up before failed by itself; in a build in which none died it has to be said."""
    given_up = tr.gave_up(at_s=8.0, phase_id=3, verdict="too-big", reason="killed while it ran alone")
    failed = [ask(5, "u2", "ptxas"), admitted(5, 7.0), ended(5, 7.5, outcome="failed")]
    assert choose_phase(report(*failed), "").phase_id == 5
    assert choose_phase(report(*failed, given_up), "").phase_id == 3
    with pytest.raises(UsageError, match="no phase of this build died"):
        choose_phase(report(), "")


def test_the_command_is_shown_where_something_can_come_of_it() -> None:
    """With an input that was kept, or the unit's command; otherwise nothing is promised."""
    plain = report()
    phases = {phase.phase_id: phase for phase in plain.phases}
    assert repro_command(plain, phases[1]) == ""
    name = plain.header.trace_id
    assert repro_command(report(command()), phases[1]) == f"builddoctor trace repro {name} 1"
    assert repro_command(report(command()), phases[4]) == ""
    assert repro_command(report(kept(4)), phases[4]) == f"builddoctor trace repro {name} 4"


def test_a_trace_elsewhere_is_named_by_its_file() -> None:
    """An id is looked up in builddoctor's own folder alone; a file's name is quoted."""
    told = report(command(), summed_up(trace="/my builds/it's.jsonl"))
    assert repro_command(told, told.phases[0]) == """builddoctor trace repro '/my builds/it'"'"'s.jsonl' 1"""
    name = told.header.trace_id
    told = report(command(), summed_up(trace=f"/home/me/traces/20260101-{name}.jsonl"))
    assert repro_command(told, told.phases[0]) == f"builddoctor trace repro {name} 1"
