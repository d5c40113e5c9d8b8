"""A build in single lines: progress, events, waits, time left, and how it ended."""

from __future__ import annotations

import pytest

from builddoctor.core.board import EventRow, TimeLeft, WaitingRow, WaitReason
from builddoctor.core.events import BuildResult
from builddoctor.ui.progress import closing, event_line, left_words, progress_line, progress_lines, wait_line
from unit.builders import board_state, summary


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
        ({"result": BuildResult.FAILED, "exit_code": 3}, "✗ demo failed with exit code 3 after 12:41"),
        (
            {"result": BuildResult.INTERRUPTED, "exit_code": 130},
            "✗ demo interrupted after 12:41; nothing of it is left running",
        ),
    ],
)
def test_the_last_words_say_how_it_went(fields: dict, words: str) -> None:
    """In the first line, with the time and the build's own exit code."""
    assert closing(summary(**fields), title="demo")[0] == words


def test_a_command_that_compiled_nothing_has_no_figures_of_compilers() -> None:
    """A server for one: a peak of nothing and no jobs would say that something was not seen."""
    words = closing(summary(units=0, phases=0, limit_mib=2048.0), title="vllm serve")
    assert words[1] == "  no gate was asked: it called no compiler that has one · limit 2.0 GiB · kernel kills 0"


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
        ("too-big", "cicc of a.cu does not fit: it was ended at 3.9 GiB"),
        ("external-kill", "killed twice from outside"),
    ],
)
def test_a_verdict_names_the_phase_and_its_evidence(verdict: str, words: str) -> None:
    """What could not be saved, and what would help."""
    failed = summary(result=BuildResult.FAILED, exit_code=1, verdict=verdict)
    assert words in "\n".join(closing(failed, title="demo", blame="cicc of a.cu", peak_mib=4000))


def test_the_advice_about_a_runaway_is_another_compiler_and_never_fewer_jobs() -> None:
    """Lowering -j for it cost a user days (TransformerEngine#1996)."""
    failed = summary(result=BuildResult.FAILED, exit_code=1, verdict="runaway", runaways=1)
    text = "\n".join(closing(failed, title="demo", blame="cudafe++ of a.cu", peak_mib=30000))
    assert "cudafe++ of a.cu grew without end: 29.3 GiB" in text
    for words in ("minor version of nvcc", "host", "-std=c++17", "Fewer jobs cannot help"):
        assert words in text
    assert "-j" not in text
    assert "MAX_JOBS" not in text


def test_pauses_are_told_as_the_weaker_means_that_they_are() -> None:
    """With what to do about it; and not a word where there were none."""
    told = "\n".join(closing(summary(paused=3), title="demo"))
    assert "3 times a process that no gate caught was stopped" in told
    assert "weaker" in told
    assert "PATH" in told
    assert "once a process" in "\n".join(closing(summary(paused=1), title="demo"))
    assert "stopped" not in "\n".join(closing(summary(), title="demo"))


@pytest.mark.parametrize(
    ("low_s", "high_s", "words"),
    [
        (5, 40, "less than a minute left"),
        (30, 150, "less than 3 min left"),
        (370, 470, "6 to 8 min left"),
        (350, 358, "5 to 6 min left"),
        (360, 360, "about 6 min left"),
        (1500, 2300, "25 to 40 min left"),
        (5000, 7100, "80 to 120 min left"),
        (7200, 9000, "2 to 2.5 h left"),
        (90_000, 140_000, "25 to 40 h left"),
        (0, 90_000, "less than 25 h left"),
        (float("nan"), 10, ""),
        (10, float("inf"), ""),
    ],
)
def test_time_left_is_never_finer_than_is_known(low_s: float, high_s: float, words: str) -> None:
    """A range in whole minutes, or in steps of five; outward, so that it says no more than is known."""
    assert left_words(TimeLeft(low_s=low_s, high_s=high_s)) == words


def test_without_a_terminal_the_same_is_said_in_lines() -> None:
    """Time left in the line of progress, and why the first one waits."""
    held = WaitingRow(
        kind="cicc", source="src/gelu.cu", needs_mib=3686, free_mib=2150, reason=WaitReason.MEMORY, waited_s=75
    )
    state = board_state(left=TimeLeft(low_s=370, high_s=470), held=held, elapsed_s=762)
    assert progress_line(state).endswith("budget, 6 to 8 min left")
    assert wait_line(762, held) == "[12:42] waits for 3.6 GiB: src/gelu.cu cicc, 2.1 GiB free"
    assert progress_lines(state) == [progress_line(state), wait_line(762, held)]


def test_the_last_words_say_what_the_store_has_spared() -> None:
    assert "  12 phases from the store: 6:20 of compiling" in closing(summary(stored=12, stored_s=380.4), title="demo")
    assert "store" not in "\n".join(closing(summary(), title="demo"))
