"""Pictures of any build on any terminal."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console, Group

from builddoctor.core.board import BoardState, EventRow, WaitingRow, WaitReason
from builddoctor.ui.board import board
from builddoctor.ui.progress import progress_line
from unit.builders import board_state, running_row

MOST_ROWS = 17
"""However much runs, the board stays at the foot of the terminal."""

WIDTHS = st.integers(20, 200)
NAMES = st.one_of(
    st.text(st.characters(codec="ascii", categories=("L", "N", "P")), max_size=120), st.just("src/編譯器核心.cu")
)
SIZES = st.floats(0, 2e6)
TIMES = st.floats(0, 4e5)
COUNTS = st.integers(0, 100_000)
STATES = st.builds(
    board_state,
    title=NAMES,
    elapsed_s=TIMES,
    units_done=COUNTS,
    units_open=COUNTS,
    units_total=st.none() | COUNTS,
    phases_done=COUNTS,
    requeued=COUNTS,
    used_mib=SIZES,
    budget_mib=SIZES,
    limit_mib=SIZES,
    limited_by=NAMES,
    jobs_mean=st.floats(0, 500),
    running=st.lists(
        st.builds(running_row, source=NAMES, rss_mib=SIZES, estimate_mib=SIZES, running_s=TIMES), max_size=9
    ).map(tuple),
    waiting=COUNTS,
    held=st.none()
    | st.builds(
        WaitingRow,
        kind=st.just("cudafe++"),
        source=NAMES,
        needs_mib=SIZES,
        free_mib=SIZES,
        reason=st.sampled_from(WaitReason),
        waited_s=TIMES,
    ),
    events=st.lists(st.builds(EventRow, at_s=TIMES, text=NAMES), max_size=5).map(tuple),
)


def rows(state: BoardState) -> int:
    """How many lines the board means to have."""
    return len(board(state, 200))


def shown(state: BoardState, width: int) -> list[str]:
    """The board as a terminal of this width shows it."""
    screen = io.StringIO()
    Console(file=screen, width=width, color_system=None, highlight=False).print(Group(*board(state, width)))
    return screen.getvalue().split("\n")[:-1]


@given(state=STATES, width=WIDTHS)
def test_no_line_of_the_board_is_wider_than_the_terminal(state: BoardState, width: int) -> None:
    """None is wider, and none wraps, which would push the board up; wide characters count double."""
    lines = shown(state, width)
    assert [line for line in lines if cell_len(line) > width] == []
    assert len(lines) == rows(state) <= MOST_ROWS


@pytest.mark.parametrize("width", [80, 100])
def test_an_ordinary_build_fits_an_ordinary_terminal(width: int) -> None:
    """A limit with a long path, and a build of many hours, included."""
    path = "/sys/fs/cgroup/system.slice/docker-0123456789abcdef.scope/memory.max"
    state = board_state(limited_by=path, elapsed_s=40_000)
    assert len(shown(state, width)) == rows(state)


@pytest.mark.parametrize("text", ["two\nlines", "a\r\nb", "\x1b[31mred"])
def test_a_name_with_control_characters_does_not_break_the_board(text: str) -> None:
    """A shell script as the build command has line ends in it; a file's name may have anything."""
    state = board_state(title=text, running=(running_row(source=text),), events=(EventRow(at_s=1, text=text),))
    lines = shown(state, 200)
    assert len(lines) == rows(state)
    assert not any(char in line for line in lines for char in "\r\x1b")


@given(state=STATES)
def test_progress_is_one_line(state: BoardState) -> None:
    """Whatever the figures."""
    assert "\n" not in progress_line(state)
