"""Words and tables of a build."""

from __future__ import annotations

import pytest
from rich.text import Text

from builddoctor.model.board import EventRow, WaitingRow
from builddoctor.model.past import PastPhase, PastUnit, Seen, UnitKey
from builddoctor.model.phase import PhaseKind
from builddoctor.render.board import board
from builddoctor.render.closing import closing
from builddoctor.render.history import past_rows, project_rows
from builddoctor.render.lines import event_line, progress_line
from builddoctor.render.tables import trace_rows, unit_rows
from builddoctor.trace.peek import Peek
from builddoctor.trace.report import PhaseRow, UnitRow
from unit.builders import board_state, header, running_row, summary


def lines(width: int = 120, **fields: object) -> list[str]:
    """The board's lines as plain text."""
    return [text.plain for text in board(board_state(**fields), width).renderables if isinstance(text, Text)]


def test_the_board_says_what_counts_at_one_glance() -> None:
    """Title and time, units, memory against budget and limit, jobs, the worst phase."""
    text = "\n".join(lines())
    for words in ("demo · sm_90", "12:41 elapsed", "41 of 66", "19.2 of 26.5 GiB budget", "limit 29.5", "now 7"):
        assert words in text
    assert any("cicc" in line and "gelu.cu" in line and "900 MiB" in line and "0:33" in line for line in lines())


def test_without_a_plan_the_board_counts_what_is_done() -> None:
    """Nobody has said how many units there will be."""
    assert any("41 done, 5 open" in line for line in lines(units_total=None))


def test_the_biggest_phases_are_shown_and_the_rest_summed_up() -> None:
    """Six rows, biggest first, and one line for the others."""
    rows = tuple(running_row(source=f"k{number}.cu", rss_mib=100.0 * number) for number in range(1, 10))
    shown = [line for line in lines(running=rows) if ".cu" in line]
    assert [line.split()[1] for line in shown] == ["k9.cu", "k8.cu", "k7.cu", "k6.cu", "k5.cu", "k4.cu"]
    assert any("3 more, 600 MiB" in line for line in lines(running=rows))


@pytest.mark.parametrize(
    ("reason", "waiting", "words"),
    [
        ("memory", 1, "waits     for 2.0 GiB: x.cu cicc, 512 MiB free, next release in about 0:12"),
        ("memory", 3, "512 MiB free, next release in about 0:12; 2 more wait"),
        ("it must run alone", 1, "to run alone: x.cu cicc, once the others have ended"),
        ("another runs alone", 1, "for the one that runs alone: x.cu cicc"),
        ("a reason of next year", 1, "(a reason of next year): x.cu cicc"),
    ],
)
def test_every_wait_has_its_reason_in_words(reason: str, waiting: int, words: str) -> None:
    """What is needed and what is in the way."""
    held = WaitingRow(kind="cicc", source="x.cu", needs_mib=2048, free_mib=512, reason=reason, waited_s=3, release_s=12)
    assert any(words in line for line in lines(held=held, waiting=waiting))


def test_phases_that_wait_for_a_core_are_counted() -> None:
    """No memory is missing; nothing is said when nobody waits."""
    assert any("3 for a core" in line for line in lines(waiting=3))
    assert not any("waiting" in line for line in lines(waiting=0))


def test_the_last_events_are_shown_with_their_time() -> None:
    """Three of them, the newest last, warnings in words too."""
    events = tuple(EventRow(at_s=60.0 * number, text=f"event {number}", warning=True) for number in range(5))
    assert [line.split(maxsplit=1) for line in lines(events=events)[-3:]] == [
        ["2:00", "event 2"],
        ["3:00", "event 3"],
        ["4:00", "event 4"],
    ]


def test_a_line_of_progress_without_a_terminal() -> None:
    """Everything in one line, the unknown left out."""
    assert progress_line(board_state()) == "[12:41] 41/66 units, 7 running, 3 waiting, 19.2 of 26.5 GiB budget"
    assert progress_line(board_state(units_total=None, waiting=0)).startswith("[12:41] 41 units, 7 running, 19.2")


def test_an_event_without_a_terminal_is_one_line() -> None:
    """With its time."""
    assert event_line(EventRow(at_s=62, text="redoes cicc of a.cu")) == "[1:02] redoes cicc of a.cu"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "✓ demo in 12:41"),
        ({"result": "failed", "exit_code": 3}, "✗ demo failed with exit code 3 after 12:41"),
        ({"result": "interrupted", "exit_code": 130}, "✗ demo interrupted after 12:41; nothing of it is left running"),
    ],
)
def test_the_last_words_say_how_it_went(fields: dict, words: str) -> None:
    """In the first line, with the time and the build's own exit code."""
    assert closing(summary(**fields), title="demo")[0] == words


def test_the_last_words_have_the_figures_and_the_trace() -> None:
    """Peak, counts, jobs, what the gates cost each, and where to read more."""
    text = "\n".join(closing(summary(), title="demo"))
    for words in (
        "peak 2.0 of 4.0 GiB",
        "65 units, 369 phases",
        "1 phase redone",
        "jobs 1.8",
        "(10 ms and",
        "/tmp/t.jsonl",
    ):
        assert words in text
    assert "2 phases redone" in "\n".join(closing(summary(requeued=2), title="demo"))


def test_a_build_without_gates_costs_nothing_each() -> None:
    """Nothing is divided by zero."""
    assert any("(0 ms and" in line for line in closing(summary(gates=0), title="demo"))


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        ("too-big", "cicc of a.cu does not fit: the kernel ended it at 3.9 GiB"),
        ("external-kill", "killed twice from outside"),
    ],
)
def test_a_verdict_names_the_phase_and_its_evidence(verdict: str, words: str) -> None:
    """What could not be saved, and what would help."""
    failed = summary(result="failed", exit_code=1, verdict=verdict)
    assert words in "\n".join(closing(failed, title="demo", blame="cicc of a.cu", peak_mib=4000))


def test_the_advice_about_a_runaway_is_another_compiler_and_never_fewer_jobs() -> None:
    """Lowering -j for it cost a user days (TransformerEngine#1996)."""
    failed = summary(result="failed", exit_code=1, verdict="runaway", runaways=1)
    text = "\n".join(closing(failed, title="demo", blame="cudafe++ of a.cu", peak_mib=30000))
    assert "cudafe++ of a.cu grew without end: 29.3 GiB" in text
    for words in ("minor version of nvcc", "host", "-std=c++17", "Fewer jobs cannot help"):
        assert words in text
    assert "-j" not in text
    assert "MAX_JOBS" not in text


def test_traces_are_listed_with_how_they_ended() -> None:
    """Id, start, time, exit code or that it was cut off, and the title or else the command."""
    whole = Peek(path="/t", header=header(), last_at_s=761, exit_code=0)
    cut = Peek(path="/t", header=header(title="", command=["ninja", "-C", "b"]), last_at_s=5, exit_code=None)
    rows = trace_rows([whole, cut])
    assert len(rows) == 3
    assert all(words in rows[1] for words in ("abc123", "2025-01-01", "12:41", "exit 0", "demo"))
    assert all(words in rows[2] for words in ("cut off", "ninja -C b"))
    assert trace_rows([]) == ["no traces yet"]


def test_units_are_listed_with_their_worst_phase() -> None:
    """Long names keep their end, which tells them apart; a unit without phases is listed too."""
    phases = [
        PhaseRow(phase_id=1, kind="cudafe++", arch="", reserve_mib=1, peak_mib=300),
        PhaseRow(phase_id=2, kind="cicc", arch="sm_90", reserve_mib=1, peak_mib=900),
    ]
    worst = UnitRow(unit="x" * 99 + "/gelu.cu", peak_mib=900, wall_s=62, phases=phases)
    units = [worst, UnitRow(unit="a.cu")]
    rows = unit_rows(units, width=100)
    assert all(words in rows[1] for words in ("900 MiB", "1:02", "…", "/gelu.cu", "cicc sm_90"))
    assert "cudafe++" not in rows[1]
    assert rows[2].split() == ["0", "MiB", "0:00", "0:00", "a.cu"]


def test_names_from_other_peoples_projects_cannot_move_the_cursor() -> None:
    """A history holds what sources and projects are called."""
    key = UnitKey(project="demo", place="src/\x1b[2Ja.cu")
    seen = (Seen(input_mib=1.0, peak_mib=900.0, wall_s=3.0),)
    phases = (PastPhase(kind=PhaseKind.CICC, arch="sm_90\r", tool="cicc", seen=seen),)
    shown = past_rows([PastUnit(key=key, phases=phases)]) + project_rows([("evil\x1b]0;x\x07\n", 1, 0.0)])
    assert all(each.isprintable() for line in shown for each in line)


def test_pauses_are_told_as_the_weaker_means_that_they_are() -> None:
    """With what to do about it; and not a word where there were none."""
    told = "\n".join(closing(summary(paused=3), title="demo"))
    assert "3 times a process that no gate caught was stopped" in told
    assert "weaker" in told
    assert "PATH" in told
    assert "once a process" in "\n".join(closing(summary(paused=1), title="demo"))
    assert "stopped" not in "\n".join(closing(summary(), title="demo"))
