"""CMake files as text: comments taken away, and commands with the certainty that they are run.

Covers: line, trailing and bracket comments; quoted and bracket arguments; what stands in a block (``if``, ``foreach``,
``function`` …) or behind a ``return()`` that stands in one. Takes time in proportion to the text, whatever it holds.
Does *not* cover: evaluating conditions, files that are included, and generator expressions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

MOST_CHARACTERS = 256 * 1024
"""of a file whose commands are taken apart; PyTorch's is 60 KB"""

_TOKEN = re.compile(
    r"""
    (?P<open>\#?\[(?P<equals>=*)\[)
    | (?P<comment>\#[^\n]*)
    | (?P<quoted>"(?:[^"\\]+|\\.)*"?)
    | (?P<paren>[()])
    | (?P<word>(?:[^\s()\#"\\]+|\\.)+)
    """,
    re.VERBOSE | re.DOTALL,
)
_SPECIAL = re.compile(r'\#\[(?P<equals>=*)\[|(?P<comment>\#[^\n]*)|"(?:[^"\\]+|\\.)*"?', re.DOTALL)
_OPEN = frozenset(("if", "foreach", "while", "function", "macro"))
_CLOSE = frozenset(f"end{name}" for name in _OPEN)


class Command(msgspec.Struct, frozen=True):
    """``add_subdirectory(third_party/a)``."""

    name: str
    """in small letters"""
    args: tuple[str, ...]
    """without quotes; variables as they stand there"""
    certain: bool
    """no condition and no block around it: whoever reads the file runs it"""


def without_comments(text: str) -> str:
    """The same text, comments left out; what stands in quotes stays as it is."""
    kept: list[str] = []
    done = 0
    while (found := _SPECIAL.search(text, done)) is not None:
        if found["equals"] is not None:
            closer = f"]{found['equals']}]"
            kept.append(text[done : found.start()])
            end = text.find(closer, found.end())
            if end < 0:
                return "".join(kept)
            done = end + len(closer)
        else:
            kept.append(text[done : found.start() if found["comment"] is not None else found.end()])
            done = found.end()
    return "".join(kept) + text[done:]


def commands(text: str) -> Iterator[Command]:
    """All commands in their order. A text that is too long gives none: nothing is certain of it."""
    if len(text) > MOST_CHARACTERS:
        return
    blocks, left, in_function = 0, False, 0
    for name, args in _calls(text):
        if name in _CLOSE:
            blocks = max(0, blocks - 1)
            in_function = max(0, in_function - (name in ("endfunction", "endmacro")))
            continue
        yield Command(name=name, args=args, certain=not blocks and not left)
        if name in _OPEN:
            blocks += 1
            in_function += name in ("function", "macro")
        elif name == "return" and not in_function:
            left = True


def _calls(text: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    name, args, depth = "", list[str](), 0
    for kind, word in _words(text):
        if kind == "paren":
            depth = depth + 1 if word == "(" else max(0, depth - 1)
            if word == "(" and depth == 1:
                args = []
                continue
            if word == ")" and not depth:
                if name:
                    yield name, tuple(args)
                name = ""
        if depth:
            args.append(word)
        elif kind == "word":
            name = word.lower()


def _words(text: str) -> Iterator[tuple[str, str]]:
    """(kind, text) without comments; a bracket that nobody closes ends the file, as for CMake."""
    place = 0
    while (token := _TOKEN.search(text, place)) is not None:
        place = token.end()
        if token["open"] is not None:
            closer = f"]{token['equals']}]"
            end = text.find(closer, place)
            if end < 0:
                return
            if not token["open"].startswith("#"):
                yield "quoted", text[place:end]
            place = end + len(closer)
        elif token["quoted"] is not None:
            yield "quoted", token["quoted"].strip('"')
        elif token["comment"] is None:
            yield ("paren" if token["paren"] is not None else "word"), token[0]
