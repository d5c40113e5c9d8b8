"""What a build prints, on its way above the board: nothing lost, nothing that moves the cursor."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builddoctor.render.painting import Painter
from builddoctor.render.passage import MOST_UNFINISHED, Passage


def passed(*pieces: bytes) -> list[bytes]:
    passage = Passage()
    return [line for piece in pieces for line in passage.feed(piece)] + passage.rest()


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=6))
def test_pieces_of_any_size_make_the_same_lines(data: bytes, cuts: list[int]) -> None:
    """However the pipe cuts it."""
    borders = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    pieces = [data[begin:end] for begin, end in itertools.pairwise(borders)]
    assert passed(*pieces) == passed(data)


@given(st.binary(max_size=300))
def test_no_output_moves_the_cursor(data: bytes) -> None:
    """Of escape sequences only colours, links and the clearing of a line's rest get through."""
    for line in passed(data):
        rest = re.sub(rb"\x1b\[[0-9;:]*m|\x1b\[K|\x1b\]8;[^\x07\x1b]*(?:\x07|\x1b\\)", b"", line)
        assert b"\x1b" not in rest
        assert not re.search(rb"[\x00-\x06\x0b\x0c\x0e-\x1a]", rest)


@given(st.lists(st.binary(max_size=60).map(lambda line: re.sub(rb"[\x00-\x1f\xc2]", b"", line)), max_size=20))
def test_plain_lines_pass_byte_by_byte(lines: list[bytes]) -> None:
    """Whatever their encoding is."""
    assert passed(b"".join(line + b"\n" for line in lines)) == lines


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"\x1b[31mred\x1b[0m\n", b"\x1b[31mred\x1b[0m"),
        (b"\x1b[01m\x1b[Kgcc:\x1b[m\x1b[K\n", b"\x1b[01m\x1b[Kgcc:\x1b[m\x1b[K"),
        (b"\x1b[2J\x1b[H\x1b[5A\x1b[?1049hall\n", b"all"),
        (b"\x1b]0;title\x07text\n", b"text"),
        (b"\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\\n", b"\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\"),
        (b"\x1bPdcs\x1b\\text\n", b"text"),
        (b"\x1bc\x0e\x1b(0text\n", b"text"),
        (b"windows\r\n", b"windows"),
        (b"10%\r20%\n", b"10%\r20%"),
        (b"C1 \xc2\x9b2J clears\n", b"C1 2J clears"),
    ],
)
def test_colours_pass_and_what_clears_does_not(data: bytes, line: bytes) -> None:
    """The words always do."""
    assert passed(data) == [line]


def test_colours_go_on_in_the_next_line() -> None:
    """Until they are reset."""
    passage = Passage()
    passage.feed(b"\x1b[1m\x1b[31mred\n")
    assert passage.style == b"\x1b[1m\x1b[31m"
    passage.feed(b"still\n")
    assert passage.style == b"\x1b[1m\x1b[31m"
    passage.feed(b"\x1b[0;32mgreen\n")
    assert passage.style == b"\x1b[0;32m"
    passage.feed(b"\x1b[m\n")
    assert passage.style == b""


@pytest.mark.parametrize(
    ("data", "seen"),
    [
        (b"one\nfetching... ", "fetching... "),
        (b"10%\r20%\r", "20%"),
        (b"\x1b[31mred", "red"),
        (b"half an esc\x1b[3", "half an esc"),
        (b"a\tb", "a       b"),
        ("half a sign €".encode()[:-1], "half a sign \ufffd"),
        (b"done\n", ""),
    ],
)
def test_the_unfinished_line_is_seen_as_text(data: bytes, seen: str) -> None:
    """Without what cannot be shown in one row."""
    passage = Passage()
    passage.feed(data)
    assert passage.unfinished == seen


def test_a_line_without_end_takes_no_end_of_memory() -> None:
    """It is broken where it gets too long; of a bar that writes over itself only the last state is kept."""
    lines = passed(*[b"x" * 1000] * 100)
    assert b"".join(lines) == b"x" * 100_000
    assert all(len(line) <= MOST_UNFINISHED for line in lines)
    assert passed(*[b"\r%d of many" % number for number in range(10_000)])[-1].endswith(b"\r9999 of many")


# -- painting ------------------------------------------------------------------------------------------------


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
