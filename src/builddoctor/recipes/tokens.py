"""A TOML text in pieces: enough to bound it before it is parsed, and to find lines in it. Pure.

Covers: strings of all four kinds, comments, brackets, words. Does *not* cover: what they mean, or whether the text is
TOML at all: that is for ``tomllib``, whose work is bounded by what is counted here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_NEXT = re.compile(r"""\n\s*|["'#\[\]{}=,.]|[^\s"'#\[\]{}=,.]+""")
_BASIC_STOP = re.compile(r'[\\"\n]')
_LITERAL_STOP = re.compile(r"['\n]")
_BASIC_LINES_STOP = re.compile(r'\\|"""')


class Token(NamedTuple):
    """One piece; blanks are between them."""

    kind: str
    """``word`` for a bare word or a string, ``#`` for a comment to its line's end, else the character itself; several
    newlines are one piece"""
    start: int
    end: int


def tokens(text: str, start: int = 0) -> Iterator[Token]:
    """All pieces of a text, in order. Any text has some; its time grows with the text's length alone."""
    position, search = start, _NEXT.search
    while (found := search(text, position)) is not None:
        begin, position = found.span()
        character = text[begin]
        if character in "\"'":
            position = end_of_string(text, begin)
            yield Token("word", begin, position)
        elif character == "#":
            position = text.find("\n", begin)
            position = len(text) if position < 0 else position
            yield Token("#", begin, position)
        else:
            yield Token(character if character in "\n[]{}=,." else "word", begin, position)


def end_of_string(text: str, start: int) -> int:
    """Where the string ends that begins at ``start``: behind its last quote, or where its line or the text ends."""
    quote = text[start]
    if text.startswith(quote * 3, start):
        return _end_of_lines(text, start + 3, quote)
    position = start + 1
    stop = _BASIC_STOP if quote == '"' else _LITERAL_STOP
    while (found := stop.search(text, position)) is not None:
        if text[found.start()] != "\\":
            return found.start() + (text[found.start()] == quote)
        position = found.start() + 2
    return len(text)


def _end_of_lines(text: str, position: int, quote: str) -> int:
    """Likewise for a string of several lines; up to two quotes more belong to it."""
    if quote == "'":
        end = text.find("'''", position)
    else:
        while (found := _BASIC_LINES_STOP.search(text, position)) is not None and found[0] == "\\":
            position = found.start() + 2
        end = -1 if found is None else found.start()
    if end < 0:
        return len(text)
    end += 3
    while end < len(text) and text[end] == quote and text[end - 5 : end] != quote * 5:
        end += 1
    return end


def line_at(text: str, position: int) -> int:
    """Number of the line that holds this position, from 1."""
    return text.count("\n", 0, position) + 1
