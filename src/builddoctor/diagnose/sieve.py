"""Which of many texts are in a block of a log, at a cost that hardly depends on how many they are. Pure.

Covers: the block's own words are looked up first; a text is searched only where all its words are there.
Does *not* cover: what a text means (``diagnose.scanning``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_LETTERS = bytes(code if chr(code).isalpha() and code < 128 else 0x20 for code in range(256))
_ASCII = bytes(range(128))
_WORD = re.compile(rb"[A-Za-z]+")
_BEYOND = re.compile(rb"[\x80-\xff]+")


class _Text:
    """One text, and what of a block's words it takes to be there."""

    __slots__ = ("beyond", "parts", "text", "words")

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.beyond = tuple(_BEYOND.findall(text))
        """bytes that are no ASCII"""
        self.words: frozenset[bytes] = frozenset()
        """words of a block, whole"""
        self.parts: tuple[bytes, ...] = ()
        """beginnings and ends of words: with a blank where the word ends"""
        for match in _WORD.finditer(text):
            before = b" " if match.start() > 0 else b""
            after = b" " if match.end() < len(text) else b""
            if before and after:
                self.words |= {match[0]}
            else:
                self.parts += (before + match[0] + after,)


class Sieve:
    """Texts to be found, as they stand."""

    def __init__(self, texts: Iterable[bytes]) -> None:
        self._texts = [_Text(text) for text in sorted(set(texts))]

    def texts_in(self, block: bytes) -> set[bytes]:
        """Those of the texts that the block holds."""
        words = set(block.translate(_LETTERS).split())
        joined = b" %b " % b" ".join(words)
        beyond = b"" if block.isascii() else block.translate(None, _ASCII)
        return {
            each.text
            for each in self._texts
            if each.words <= words
            and all(part in joined for part in each.parts)
            and all(run in beyond for run in each.beyond)
            and each.text in block
        }

    def without(self, text: bytes) -> None:
        """That text is no longer of interest."""
        self._texts = [each for each in self._texts if each.text != text]


def starts_of_lines(block: bytes, text: bytes) -> Iterator[int]:
    """Where lines with that text begin, in order. The block ends with a line feed."""
    at = block.find(text)
    while at >= 0:
        yield block.rfind(b"\n", 0, at) + 1
        at = block.find(text, block.index(b"\n", at))


def starts_from_the_end(block: bytes, text: bytes) -> Iterator[int]:
    """The same, the last one first."""
    at = block.rfind(text)
    while at >= 0:
        start = block.rfind(b"\n", 0, at) + 1
        yield start
        at = block.rfind(text, 0, start)
