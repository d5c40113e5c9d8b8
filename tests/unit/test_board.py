"""The live board: what is left out where there is little room, details, signs, time left in words."""

from __future__ import annotations

import pytest
from rich.cells import cell_len
from rich.text import Text

from builddoctor.model.board import EventRow, TimeLeft, WaitingRow
from builddoctor.render.board import KEYS, board, fit_left
from builddoctor.render.lines import left_words, progress_line, wait_line
from builddoctor.render.signs import ASCII, UNICODE, signs_for
from unit.builders import board_state, running_row

WAIT = WaitingRow(kind="cicc", source="src/gelu.cu", needs_mib=3686, free_mib=2150, reason="memory", waited_s=75)
FULL = {
    "running": tuple(
        running_row(source=f"fused_attn/kernel_{number}.cu", rss_mib=100.0 * number, left_s=62.0, evidence="history")
        for number in range(30)
    ),
    "waits": tuple(WAIT for _ in range(12)),
    "held": WAIT,
    "waiting": 12,
    "events": tuple(EventRow(at_s=number, text=f"event {number}") for number in range(5)),
    "left": TimeLeft(low_s=370, high_s=470),
}


def shown(width: int = 100, height: int = 30, **fields: object) -> list[str]:
    """The board's lines as plain text."""
    options = {name: fields.pop(name) for name in ("detailed", "keys", "signs") if name in fields}
    picture = board(board_state(**{**FULL, **fields}), width, height, **options)  # type: ignore[arg-type]
    return [text.plain for text in picture.renderables if isinstance(text, Text)]


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 200])
@pytest.mark.parametrize("height", [1, 2, 6, 12, 20, 24, 30, 50, 100])
@pytest.mark.parametrize("detailed", [False, True])
def test_the_board_leaves_room_for_the_output(width: int, height: int, detailed: bool) -> None:
    """It takes half of the rows, detailed all but four, and never a whole line; it fits the width."""
    lines = shown(width, height, detailed=detailed, keys=KEYS)
    assert len(lines) <= max(1, height - 4 if detailed else height // 2)
    assert all(cell_len(line) < max(2, width) for line in lines)


def test_a_very_low_terminal_has_one_line() -> None:
    """All that counts in it."""
    assert shown(100, 8) == ["[12:41] 41/66 units, 7 running, 12 waiting, 19.2 of 26.5 GiB budget, 6 to 8 min left"]


def test_a_narrow_board_keeps_what_went_wrong() -> None:
    """The count of phases goes first; what was redone and killed stays."""
    units = next(line for line in shown(60, 20, kernel_kills=2) if line.startswith("units"))
    assert "redone 1 · kernel kills 2" in units
    assert "phases" not in units
    assert "redone" not in next(line for line in shown(60, 20, requeued=0) if line.startswith("units"))


def test_time_left_stands_in_the_first_line() -> None:
    """At any width."""
    assert shown(100)[0].endswith("12:41 elapsed, 6 to 8 min left")
    assert shown(60)[0].endswith("12:41, 6 to 8 min left")
    assert shown(100, left=None)[0].endswith("12:41 elapsed")


def test_a_long_path_keeps_its_end() -> None:
    """There it differs from the others; folders are cut at their border where that is near."""
    assert fit_left("transformer_engine/common/activation/gelu.cu", 30, "…") == "…/common/activation/gelu.cu"
    assert fit_left("a_very_long_name_of_a_file_indeed.cu", 12, "...") == "...indeed.cu"
    assert fit_left("src/編譯器核心.cu", 10, "…") == "…器核心.cu"
    assert fit_left("short.cu", 30, "…") == "short.cu"


def test_details_say_what_estimates_rest_on_and_everybody_who_waits() -> None:
    """As far as there is room; what is left out is counted."""
    lines = shown(160, 40, detailed=True)
    assert sum("kernel_" in line for line in lines) > 10
    assert all("~1:02 left" in line and "history" in line for line in lines if "kernel_" in line)
    waits = [line for line in lines if "for 3.6 GiB: src/gelu.cu cicc, 2.1 GiB free" in line]
    assert len(waits) == 7
    assert all(line.endswith("1:15") for line in waits)
    assert any(line.strip() == "…5 more" for line in lines)


def test_keys_are_told_where_there_are_any() -> None:
    """Not where nobody reads them, and not on a low terminal."""
    assert shown(keys=KEYS)[-1] == KEYS
    assert shown(keys=KEYS, detailed=True)[-1].startswith("d fewer details")
    assert KEYS not in shown(keys=None)
    assert KEYS not in shown(100, 16, keys=KEYS)


def test_in_ascii_the_board_is_ascii() -> None:
    """Names of files lose what the terminal cannot show, and bars are drawn all the same."""
    lines = shown(signs=ASCII, title="編譯 · sm_90", running=(running_row(source="src/編譯器.cu"),))
    assert all(line.isascii() for line in lines)
    assert any(line.startswith("memory    [####") for line in lines)
    assert all(cell_len(line) < 100 for line in lines)


@pytest.mark.parametrize(
    ("env", "unicode"),
    [
        ({"LANG": "en_US.UTF-8"}, True),
        ({"LC_CTYPE": "C.utf8"}, True),
        ({"LC_ALL": "C", "LANG": "en_US.UTF-8"}, False),
        ({"LANG": "de_DE.ISO-8859-1"}, False),
        ({}, False),
        ({"LANG": "en_US.UTF-8", "TERM": "linux"}, False),
    ],
)
def test_signs_follow_the_locale_and_the_terminal(env: dict[str, str], unicode: bool) -> None:
    """LC_ALL before LC_CTYPE before LANG, as programs in C have it."""
    assert signs_for(env) is (UNICODE if unicode else ASCII)


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
    assert progress_line(board_state(left=FULL["left"])).endswith("budget, 6 to 8 min left")
    assert wait_line(762, WAIT) == "[12:42] waits for 3.6 GiB: src/gelu.cu cicc, 2.1 GiB free"


def test_a_trace_that_is_silent_says_so() -> None:
    """In place of a clock that would go on."""
    assert shown(silent_s=12)[0].endswith("no word for 0:12")
    assert "no word" not in shown(silent_s=1)[0]
