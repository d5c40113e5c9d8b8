"""What a build prints, on its way above the board: nothing lost, nothing that moves the cursor."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builddoctor.ui.screen import MOST_UNFINISHED, OutputFilter


def passed(*pieces: bytes) -> list[bytes]:
    output_filter = OutputFilter()
    return [line for piece in pieces for line in output_filter.feed(piece)] + output_filter.rest()


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
    output_filter = OutputFilter()
    output_filter.feed(b"\x1b[1m\x1b[31mred\n")
    assert output_filter.style == b"\x1b[1m\x1b[31m"
    output_filter.feed(b"still\n")
    assert output_filter.style == b"\x1b[1m\x1b[31m"
    output_filter.feed(b"\x1b[0;32mgreen\n")
    assert output_filter.style == b"\x1b[0;32m"
    output_filter.feed(b"\x1b[m\n")
    assert output_filter.style == b""


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
    output_filter = OutputFilter()
    output_filter.feed(data)
    assert output_filter.unfinished == seen


def test_a_line_without_end_takes_no_end_of_memory() -> None:
    """It is broken where it gets too long; of a bar that writes over itself only the last state is kept."""
    lines = passed(*[b"x" * 1000] * 100)
    assert b"".join(lines) == b"x" * 100_000
    assert all(len(line) <= MOST_UNFINISHED for line in lines)
    assert passed(*[b"\r%d of many" % number for number in range(10_000)])[-1].endswith(b"\r9999 of many")


# -- painting ------------------------------------------------------------------------------------------------
