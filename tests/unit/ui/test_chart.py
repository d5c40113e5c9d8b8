"""Charts drawn with characters: memory over time, and the grid below."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from rich.text import Text

from builddoctor.core.events import BuildEvent
from builddoctor.ui.chart import Chart, timeline
from builddoctor.ui.layout import ASCII, UNICODE
from support.pages import plain
from unit.small_traces import read, tick
from unit.ui.test_trace_page import given_up


def chart(columns: int = 20, rows: int = 8) -> Chart:
    """With ticks at both ends of each axis."""
    return Chart(columns, rows, x_ticks=[(0, "0:00"), (1, "9:59")], y_ticks=[(0, "0"), (1, "16")], signs=UNICODE)


def test_a_chart_is_as_large_as_it_was_asked_to_be() -> None:
    """With frame, ticks and labels."""
    drawn = plain(chart().lines())
    assert len(drawn) == 8
    assert {len(line) for line in drawn[:-1]} == {20}
    assert drawn[1].startswith("16┤")
    assert drawn[-3].startswith(" 0┤")
    assert drawn[-1].split() == ["0:00", "9:59"]


def test_what_is_filled_ends_within_a_cell() -> None:
    """In eighths, so that a tenth of the memory can be told from none."""
    grid = chart()
    grid.fill([0.0, 0.05, 0.5, 1.0, 7.0, -3.0], "█", "cyan")
    columns = ["".join(line[3 + at] for line in plain(grid.lines())[1:-2]) for at in range(6)]
    assert columns == ["     ", "    ▂", "  ▄██", "█████", "█████", "     "]


def test_a_curve_has_no_gaps() -> None:
    """However steep it is."""
    grid = chart()
    grid.curve([(0.0, 1.0), (0.1, 0.0), (1.0, 0.0)], "·", "")
    assert all("·" in line for line in plain(grid.lines())[1:-2])


def test_labels_below_do_not_touch() -> None:
    """Those that would are left out."""
    grid = Chart(30, 6, x_ticks=[(at / 20, f"{at}:00") for at in range(21)], y_ticks=[], signs=ASCII)
    words = plain(grid.lines())[-1].split()
    assert words[0] == "0:00"
    assert len(words) > 3
    assert all(word.endswith(":00") for word in words)


def test_without_unicode_pictures_are_ascii() -> None:
    """The frame, the bars and the lines too."""
    drawn = timeline(given_up(), width=60, height=10, signs=ASCII)
    assert all(line.plain.isascii() for line in drawn)
    assert any("####" in line.plain for line in drawn)
    blocks = timeline(given_up(), width=60, height=10, signs=UNICODE)
    assert any("█" in line.plain for line in blocks)


@pytest.mark.parametrize(
    "records",
    [[], [tick(1.0, 5)], [tick(1.0, 0, 0, 0), tick(1.0, 0, 0, 0)], [tick(0.0, 1e12, -1e12, 1e12), tick(1e9, 1, 1, 1)]],
    ids=["none", "one", "nothing of nothing", "absurd"],
)
def test_a_picture_is_drawn_of_whatever_there_is(records: Sequence[BuildEvent]) -> None:
    """Or words say that there is none."""
    drawn = timeline(read(*records), width=60, height=10, signs=UNICODE)
    assert drawn
    assert all(len(line.plain) <= 62 for line in drawn)


def test_styles_carry_nothing_that_words_do_not() -> None:
    """Every mark in the picture is a letter of its own."""
    lines: list[Text] = timeline(given_up(), width=100, height=12, signs=UNICODE)
    letters = {char for line in lines[1:] for char in line.plain if char in "KEX"}
    assert letters == {"K", "E", "X"}
