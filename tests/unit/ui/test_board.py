"""The live board: what is left out where there is little room, details, signs, time left in words."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from builddoctor.core.board import EventRow, TimeLeft, WaitingRow, WaitReason
from builddoctor.core.phase import STORE
from builddoctor.ui.board import KEYS, Painter, board
from builddoctor.ui.layout import ASCII
from unit.builders import board_state, running_row

WAIT = WaitingRow(
    kind="cicc", source="src/gelu.cu", needs_mib=3686, free_mib=2150, reason=WaitReason.MEMORY, waited_s=75
)
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
    return [text.plain for text in picture]


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


def test_a_compiler_beyond_its_estimate_is_said_to_be_over_it() -> None:
    """*1.2 GiB of ~134 MiB* would read as a mistake. gcc's part is host code, not a host."""
    rows = (running_row(kind="host", rss_mib=1229, estimate_mib=134), running_row(rss_mib=100, estimate_mib=134))
    large, small = (line for line in shown(100, 30, running=rows) if "134 MiB" in line)
    assert re.match(r"  host code +\S.* 1\.2 GiB over 134 MiB", large)
    assert "100 MiB of ~134 MiB" in small


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


def test_a_trace_that_is_silent_says_so() -> None:
    """In place of a clock that would go on."""
    assert shown(silent_s=22)[0].endswith("no word for 0:22")
    assert "no word" not in shown(silent_s=11)[0], "a build that compiles nothing says something every ten seconds"


def usual(width: int = 120, **fields: object) -> list[str]:
    """The lines of a board with few rows."""
    return [text.plain for text in board(board_state(**fields), width)]


def test_the_board_says_what_counts_at_one_glance() -> None:
    """Title and time, units, memory against budget and limit, jobs, the worst phase."""
    text = "\n".join(usual())
    for words in ("demo · sm_90", "12:41 elapsed", "41 of 66", "19.2 of 26.5 GiB budget", "limit 29.5", "now 7"):
        assert words in text
    assert any("cicc" in line and "gelu.cu" in line and "900 MiB" in line and "0:33" in line for line in usual())


def test_without_a_plan_the_board_counts_what_is_done() -> None:
    """Nobody has said how many units there will be."""
    assert any("41 done, 5 open" in line for line in usual(units_total=None))


def test_the_biggest_phases_are_shown_and_the_rest_summed_up() -> None:
    """Six rows, biggest first, and one line for the others."""
    rows = tuple(running_row(source=f"k{number}.cu", rss_mib=100.0 * number) for number in range(1, 10))
    shown = [line for line in usual(running=rows) if ".cu" in line]
    assert [line.split()[1] for line in shown] == ["k9.cu", "k8.cu", "k7.cu", "k6.cu", "k5.cu", "k4.cu"]
    assert any("3 more, 600 MiB" in line for line in usual(running=rows))


@pytest.mark.parametrize(
    ("reason", "waiting", "words"),
    [
        (WaitReason.MEMORY, 1, "waits     for 2.0 GiB: x.cu cicc, 512 MiB free, next release in about 0:12"),
        (WaitReason.MEMORY, 3, "512 MiB free, next release in about 0:12; 2 more wait"),
        (WaitReason.ALONE, 1, "to run alone: x.cu cicc, once the others have ended"),
        (WaitReason.OTHER_ALONE, 1, "for a phase that runs alone: x.cu cicc"),
        (WaitReason.FREEING, 1, "for the memory of a phase that was ended: x.cu cicc"),
    ],
)
def test_every_wait_has_its_reason_in_words(reason: WaitReason, waiting: int, words: str) -> None:
    """What is needed and what is in the way."""
    held = WaitingRow(kind="cicc", source="x.cu", needs_mib=2048, free_mib=512, reason=reason, waited_s=3, release_s=12)
    assert any(words in line for line in usual(held=held, waiting=waiting))


def test_phases_that_wait_for_a_core_are_counted() -> None:
    """No memory is missing; nothing is said when nobody waits."""
    assert any("3 for a core" in line for line in usual(waiting=3))
    assert not any("waiting" in line for line in usual(waiting=0))


def test_the_last_events_are_shown_with_their_time() -> None:
    """Three of them, the newest last, warnings in words too."""
    events = tuple(EventRow(at_s=60.0 * number, text=f"event {number}", warning=True) for number in range(5))
    assert [line.split(maxsplit=1) for line in usual(events=events)[-3:]] == [
        ["2:00", "event 2"],
        ["3:00", "event 3"],
        ["4:00", "event 4"],
    ]


class Screen:
    """As much of a terminal as the painter uses: rows that scroll, a cursor, clearing."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self.lines = [""] * rows
        self.scrolled: list[str] = []
        self.row = self.column = 0

    def write(self, data: bytes) -> None:
        for token in re.findall(r"\x1b\[[?0-9;]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", data.decode()):
            if token == "\r":
                self.column = 0
            elif token == "\n":
                self._feed()
            elif token.startswith("\x1b["):
                self._control(token[2:-1], token[-1])
            else:
                for char in token:
                    self._put(char)

    def _put(self, char: str) -> None:
        if self.column == self.columns:
            self.column = 0
            self._feed()
        line = self.lines[self.row].ljust(self.column)
        self.lines[self.row] = line[: self.column] + char + line[self.column + 1 :]
        self.column += 1

    def _feed(self) -> None:
        if self.row == self.rows - 1:
            self.scrolled.append(self.lines.pop(0))
            self.lines.append("")
        else:
            self.row += 1

    def _control(self, number: str, letter: str) -> None:
        if letter == "A":
            self.row = max(0, self.row - int(number or 1))
        elif letter in "KJ":
            self.lines[self.row] = self.lines[self.row][: self.column]
            if letter == "J":
                self.lines[self.row + 1 :] = [""] * (self.rows - self.row - 1)
        else:
            assert letter in "mhl", letter

    @property
    def all(self) -> list[str]:
        whole = [line.rstrip() for line in [*self.scrolled, *self.lines]]
        while whole and not whole[-1]:
            whole.pop()
        return whole


COLUMNS, ROWS = 20, 10
BOARDS = st.lists(st.text("abc xyz", max_size=COLUMNS - 1).map(str.encode), min_size=1, max_size=ROWS - 3)
TEXTS = st.lists(st.text("mnop q", max_size=COLUMNS * 2 + 3).map(str.encode), min_size=1, max_size=14)


@given(st.lists(st.tuples(st.booleans(), TEXTS, BOARDS), min_size=1, max_size=12))
def test_text_stands_above_the_board_whatever_came_before(steps: list[tuple[bool, list[bytes], list[bytes]]]) -> None:
    """Every line of text once and in order, then the board as it is now, and nothing of older ones."""
    screen, painter = Screen(COLUMNS, ROWS), Painter()
    printed: list[str] = []
    for is_text, text, lines in steps:
        if is_text:
            screen.write(painter.text(text, lines, (COLUMNS, ROWS)))
            for line in text:
                whole = line.decode()
                rows = [whole[at : at + COLUMNS] for at in range(0, len(whole), COLUMNS)] or [""]
                printed += [row.rstrip() for row in rows]
        else:
            screen.write(painter.paint(lines, (COLUMNS, ROWS)))
        expected = [*printed, *(line.decode().rstrip() for line in lines)]
        while expected and not expected[-1]:
            expected.pop()
        assert screen.all == expected


def test_what_did_not_change_is_not_drawn_again() -> None:
    """Nothing flickers: an equal board is no byte, and of another one only its new lines come."""
    painter = Painter()
    painter.paint([b"one", b"two", b"three"], (80, 24))
    assert painter.paint([b"one", b"two", b"three"], (80, 24)) == b""
    changed = painter.paint([b"one", b"2", b"three"], (80, 24))
    assert b"2" in changed
    assert b"one" not in changed


def test_when_it_goes_nothing_of_it_stays() -> None:
    """The cursor is where it began."""
    screen, painter = Screen(COLUMNS, ROWS), Painter()
    screen.write(painter.text([b"text"], [b"a", b"b"], (COLUMNS, ROWS)))
    screen.write(painter.erase())
    assert screen.all == ["text"]
    assert (screen.row, screen.column) == (1, 0)


BOARDS = st.lists(st.text("abc xyz", max_size=COLUMNS - 1).map(str.encode), min_size=1, max_size=ROWS - 3)


TEXTS = st.lists(st.text("mnop q", max_size=COLUMNS * 2 + 3).map(str.encode), min_size=1, max_size=14)


def test_a_phase_on_another_machine_says_which() -> None:
    """Its memory is that one's: none is shown."""
    (line,) = [line for line in shown(running=(running_row(source="gelu.cu", node="gpu2"),)) if "on gpu2" in line]
    assert any("from the store" in line for line in shown(running=(running_row(source="gelu.cu", node=STORE),)))
    assert "gelu.cu" in line
    assert "MiB" not in line
    assert "of ~" not in line
