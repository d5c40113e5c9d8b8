"""The doctor's page."""

from __future__ import annotations

from typing import Any

import pytest

from builddoctor.core.check import Check, Status, Topic
from builddoctor.ui.doctor_page import brief_lines, check_lines, styled, verdict_line


def check(status: Status = Status.OK, **fields: Any) -> Check:
    """One check of topic ``memory``."""
    return Check(**{"name": "x", "topic": Topic.MEMORY, "text": "all is well", "status": status, **fields})


PROBLEM = check(
    Status.PROBLEM, topic=Topic.SOURCE, text="3rdparty/cutlass is empty", hint="git submodule update --init"
)


def test_a_line_says_topic_status_and_why() -> None:
    """The topic once, its worst line first, the hint on its own line and whole."""
    lines = check_lines([check(), check(Status.WARNING, text="/tmp is memory", hint="h " * 90), PROBLEM], width=80)
    assert lines[0].split() == ["memory", "warning", "/tmp", "is", "memory"]
    assert lines[1].strip() == "→ " + ("h " * 90).rstrip()
    assert lines[2].split() == ["ok", "all", "is", "well"]
    assert lines[3].startswith("source")


@pytest.mark.parametrize("width", [0, 40, 60, 100, 300])
def test_texts_wrap_under_themselves(width: int) -> None:
    """On any width, nothing of a text is lost, and no line but a hint is longer than it must be."""
    text = "word " * 60
    lines = check_lines([check(text=text)], width=width)
    assert " ".join(lines).split() == ["memory", "ok", *text.split()]
    assert all(len(line) <= max(width, 26) for line in lines)


def test_on_a_narrow_page_texts_stand_below_topic_and_status() -> None:
    """Below 60 columns there is no room beside them; the status keeps its colour, and no word of a text gets one."""
    lines = check_lines([PROBLEM, check(text="xxxxxxxxxxxx warning")], width=40)
    assert lines == [
        "source         problem",
        "  3rdparty/cutlass is empty",
        "  → git submodule update --init",
        "memory         ok",
        "  xxxxxxxxxxxx warning",
    ]
    assert [len(styled(line).spans) for line in lines] == [1, 0, 1, 1, 0]


@pytest.mark.parametrize(
    ("checks", "line"),
    [
        ([check()], "No problems found."),
        ([], "No problems found."),
        ([check(Status.WARNING), check(Status.WARNING)], "2 warnings."),
        ([PROBLEM, check(Status.WARNING)], "1 problem, 1 warning."),
    ],
)
def test_the_verdict_counts(checks: list[Check], line: str) -> None:
    """Problems first."""
    assert verdict_line(checks) == line


def test_the_verdict_says_what_follows() -> None:
    """That a build would be stopped, and that there are fixes."""
    line = verdict_line([check(Status.PROBLEM, stops_build=True, fix="submodules")])
    assert "stopped before it starts" in line
    assert "--fix" in line


def test_before_a_build_only_trouble_is_told() -> None:
    """One line each, with its topic named once."""
    lines = brief_lines([check(), PROBLEM, check(Status.WARNING, topic=Topic.NVCC, text="nvcc 13.0 is old")])
    assert lines == ["source: 3rdparty/cutlass is empty  → git submodule update --init", "nvcc 13.0 is old"]


def test_colour_adds_and_changes_no_word() -> None:
    """The text of a styled line is the line."""
    for line in check_lines([check(), PROBLEM], width=80):
        assert styled(line).plain == line
    assert styled(check_lines([PROBLEM], width=80)[0]).spans


EVIL = "\x1b]0;owned\x07\x9b2J\r\u202eno\udcff"


def test_names_from_a_tree_cannot_move_the_cursor() -> None:
    """Topic, text and hint: no control character gets through, whatever a CMakeCache.txt or a folder is called."""
    evil = check(Status.PROBLEM, topic=f"t{EVIL}", text=f"was configured with {EVIL}", hint=f"rm -r '{EVIL}/a\nb'")
    for line in [*check_lines([evil], width=100), *brief_lines([evil])]:
        assert line.isprintable()


def test_a_hint_never_names_another_file() -> None:
    """A blank in place of a control character would: `rm -r` of what is pasted."""
    evil = check(Status.WARNING, hint="rm -r 'a\tb/CMakeFiles'")
    assert check_lines([evil], width=100)[-1].strip() == r"→ rm -r 'a\tb/CMakeFiles'"
    assert brief_lines([evil])[0].endswith(r"→ rm -r 'a\tb/CMakeFiles'")
