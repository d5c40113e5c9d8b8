"""Logs of any bytes in any pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builddoctor.diagnose.catalogue import Entry, load_catalogue
from builddoctor.diagnose.log_lines import LONGEST_LINE, Lines, Sieve, clean, text_of
from builddoctor.diagnose.log_scanner import MOST_KEPT, Reading, Scanner
from support.examples import examples

CATALOGUE = load_catalogue()
EXAMPLES = [line for entry in CATALOGUE for line in (entry.example, *entry.also)]

HOSTILE = LONGEST_LINE // 4

AROUND = st.sampled_from(
    [
        "{}",
        "#12 34.56 {}",
        "\x1b[31m{}\x1b[0m",
        "a\rb\r{}",
        "{}\r",
        "2025-01-01T00:00:00Z {}",
        "  │ {}",
        "0: {}",
        "x {} y",
    ]
)
LINE = st.one_of(
    st.binary(max_size=40),
    st.builds(lambda around, line: around.format(line).encode(), AROUND, st.sampled_from(EXAMPLES)),
    st.sampled_from(
        [b"", b"[1/2] nvcc -c x.cu", b"[2/2] Linking x", b"Killed", b"\x1b[", b"\xef\xbb\xbf", b"\xff\xfe"]
    ),
)
LOG = st.lists(LINE, max_size=12).map(b"\n".join)


def read(pieces: list[bytes]) -> Reading:
    scanner = Scanner(CATALOGUE)
    given_back = [finding for piece in pieces for finding in scanner.feed(piece)]
    reading = scanner.finish()
    assert all(each in reading.findings or reading.count(each.entry) > MOST_KEPT for each in given_back)
    return reading


def cut(log: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(log) + 1) for place in places})
    return [log[start:end] for start, end in zip([0, *ends], [*ends, len(log)], strict=True)]


@given(log=LOG, places=st.lists(st.integers(0, 10_000), max_size=8))
def test_the_same_is_found_whatever_the_pieces_are(log: bytes, places: list[int]) -> None:
    """Cut anywhere: within a line, a sequence, a character, a mark."""
    assert read(cut(log, places)) == read([log])


@examples(15)
@given(log=LOG)
def test_the_same_is_found_byte_by_byte(log: bytes) -> None:
    """Cut at every byte."""
    assert read([log[at : at + 1] for at in range(len(log))]) == read([log])


@given(line=st.binary(max_size=300))
def test_any_bytes_become_a_line_that_can_be_shown(line: bytes) -> None:
    """Never an error, never a control character, cleaning what is clean changes nothing more."""
    assert clean(line).isprintable()
    assert "\n" not in text_of(line)


@given(
    pieces=st.lists(
        st.one_of(
            st.binary(max_size=30),
            st.sampled_from([b"\n", b"\r", b"\r\n"]),
            st.builds(lambda size: b"z" * size, st.integers(LONGEST_LINE - 2, LONGEST_LINE + 2)),
        ),
        max_size=8,
    )
)
def test_no_line_is_longer_than_it_may_be(pieces: list[bytes]) -> None:
    """And as many line feeds come out as went in."""
    lines = Lines()
    out = b"".join(lines.feed(piece) for piece in pieces) + lines.rest()
    once = Lines()
    assert out == once.feed(b"".join(pieces)) + once.rest()
    if not b"".join(pieces).startswith((b"\xff\xfe", b"\xfe\xff")):
        assert out.count(b"\n") == b"".join(pieces).count(b"\n")
    assert all(len(line) <= LONGEST_LINE for line in out.split(b"\n"))


@given(
    texts=st.sets(st.text("ab :é已", min_size=1, max_size=6), min_size=1, max_size=6),
    block=st.text("ab :é已\n", max_size=60),
)
def test_a_sieve_misses_no_text_and_invents_none(texts: set[str], block: str) -> None:
    """Exactly those that the block holds."""
    wanted = {text.encode() for text in texts}
    assert Sieve(wanted).texts_in(block.encode()) == {text for text in wanted if text in block.encode()}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("entry", CATALOGUE, ids=lambda entry: entry.name)
def test_no_hostile_line_takes_long(entry: Entry) -> None:
    """Long lines made of a pattern's own texts: the time limit is all that is tested."""
    line = entry.example
    for piece in {line, line[: len(line) // 2], *entry.triggers[:2], " ", "a", "/a", "1"}:
        hostile = (piece * (HOSTILE // len(piece.encode()) + 1)).encode()[:HOSTILE]
        scanner = Scanner([entry])
        scanner.feed(entry.triggers[0].encode() + hostile + b"\n")
        assert scanner.finish().lines == 1
