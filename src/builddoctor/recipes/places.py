"""Where in a TOML text a value stands: lines for messages, and spans for updating it. Pure.

Covers: headers ``[table]`` and ``[[array]]``, dotted keys, inline tables and lists over any number of lines, quoted
keys. The text must be TOML; of one that is not, some of the answers are wrong, and none is an exception.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from builddoctor.recipes.tokens import Token, line_at, tokens
from builddoctor.recipes.toml import loads

Path = tuple[str | int, ...]
"""Such as ``("units", 3, "phases", 0, "peak_mib")``, counted from 0."""


class Spot(NamedTuple):
    """Something that has a path begins here: a header, a key, or an element of a list."""

    path: Path
    start: int
    header: bool = False


def line_of(text: str, path: Path) -> int:
    """The line of what has this path; where it is not in the text, of the nearest thing around it."""
    best = Spot((), 0)
    for spot in spots(text) if path else ():
        if spot.path[: len(path)] == path:
            return line_at(text, spot.start)
        if len(spot.path) > len(best.path) and spot.path == path[: len(spot.path)]:
            best = spot
    return line_at(text, best.start)


def spots(text: str) -> Iterator[Spot]:
    """All headers, keys and elements of lists, in the order of the text."""
    reader = _Reader(text)
    for token in tokens(text):
        yield from reader.take(token)


class _Level:
    """An open bracket of a value."""

    __slots__ = ("index", "path", "wanted")

    def __init__(self, path: Path, index: int) -> None:
        self.path = path
        self.index = index
        """of the element to come in a list; -1 in an inline table"""
        self.wanted = True
        """an element or a key is to come; else its value, or a comma"""


class _Reader:
    """The place in a TOML text, token by token."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._table: Path = ()
        self._counts: dict[Path, int] = {}
        self._levels: list[_Level] = []
        self._keys: list[Token] = []
        self._header = 0
        """brackets of the header that we are in"""
        self._value: Path | None = None
        """path of the value that is to come or has begun, outside of any bracket"""

    def take(self, token: Token) -> Iterator[Spot]:
        if token.kind == "#":
            return
        if self._levels:
            yield from self._inside(token)
        elif self._header:
            yield from self._in_header(token)
        elif token.kind == "\n":
            self._keys, self._value = [], None
        elif self._value is not None:
            self._open(token, self._value)
        elif token.kind == "[" and not self._keys:
            self._header = 1
        elif token.kind == "word":
            self._keys.append(token)
        elif token.kind == "=" and self._keys:
            yield from self._named(self._table)
            self._value = (*self._table, *map(self._name, self._keys))

    def _in_header(self, token: Token) -> Iterator[Spot]:
        if token.kind == "[" and not self._keys:
            self._header = 2
        elif token.kind == "word":
            self._keys.append(token)
        elif token.kind in "]\n":
            if self._keys:
                self._table = self._resolved([self._name(key) for key in self._keys], many=self._header == 2)
                start = self._text.rfind("[", 0, self._keys[0].start)
                yield Spot(self._table, start - (self._header == 2), header=True)
            self._keys = []
            # The second bracket of an array's header is left over; on the rest of the line nothing else may stand.
            self._header, self._value = 0, None if token.kind == "\n" else ()

    def _resolved(self, names: list[str], *, many: bool) -> Path:
        path: Path = ()
        for number, name in enumerate(names):
            path = (*path, name)
            if many and number == len(names) - 1:
                self._counts[path] = self._counts.get(path, 0) + 1
            if path in self._counts:
                path = (*path, self._counts[path] - 1)
        return path

    def _inside(self, token: Token) -> Iterator[Spot]:
        level = self._levels[-1]
        if token.kind in "]}":
            self._levels.pop()
            self._keys = []
        elif token.kind == ",":
            level.wanted, level.index = True, level.index + (level.index >= 0)
            self._keys = []
        elif token.kind == "\n":
            return
        elif level.index >= 0:
            if level.wanted:
                path = (*level.path, level.index)
                yield Spot(path, token.start)
                level.wanted = False
                self._open(token, path)
        elif not level.wanted:
            self._open(token, (*level.path, *map(self._name, self._keys)))
        elif token.kind == "word":
            self._keys.append(token)
        elif token.kind == "=":
            yield from self._named(level.path)
            level.wanted = False

    def _open(self, token: Token, path: Path) -> None:
        if token.kind in "[{":
            self._levels.append(_Level(path, 0 if token.kind == "[" else -1))
            self._keys = []

    def _named(self, path: Path) -> Iterator[Spot]:
        for key in self._keys:
            path = (*path, self._name(key))
            yield Spot(path, key.start)

    def _name(self, key: Token) -> str:
        word = self._text[key.start : key.end]
        if word[0] not in "\"'":
            return word
        if "\\" not in word:
            return word[1:-1]
        try:
            return next(iter(loads(f"{word}=0")))
        except (ValueError, StopIteration):
            return word[1:-1]
