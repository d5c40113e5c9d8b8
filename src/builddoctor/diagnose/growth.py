"""Sizes of compilers that a log holds: rows of ``top`` and ``ps``, or what somebody wrote beside. Pure.

Covers: which compiler was how large, in the order of the lines, and whether somebody says that it grew.
Does *not* cover: what follows from it (``diagnose.from_text``).
"""

from __future__ import annotations

import re

from builddoctor.diagnose.cleaning import clean
from builddoctor.diagnose.log_facts import Growth, Quote
from builddoctor.diagnose.sieve import starts_of_lines
from builddoctor.units import whole_number

TOOLS = (b"cudafe++", b"cicc", b"ptxas", b"cc1plus")
LONGEST_ROW = 300
"""A command line is longer, and holds sizes of something else."""
MOST_ROWS = 20_000
LEAST_MIB = 64.0
FELL = 0.9
"""smaller than that share of before: it came down"""

_TOP = re.compile(
    r"^\s*\d{1,8} +\S{1,40} +(?:-?\d{1,3}|rt) +-?\d{1,3} +\S{1,12} +(\d[\d.]{0,12}[kmgtp]?) +\S{1,12} +[RSDTtZI] "
)
_PS_AUX = re.compile(
    r"^\s*\S{1,40} +\d{1,8} +[\d.]{1,6} +[\d.]{1,6} +\d{1,20} +(\d{1,20}) +\S{1,12} +[RSDTZI][\w<+]{0,4} "
)
_PS_RSS = re.compile(r"^\s*\d{1,8} +(\d{4,12}) +(?:\S{1,8} +){0,3}\S{0,200}(?:cudafe\+\+|cicc|ptxas|cc1plus)")
_WITH_UNIT = re.compile(r"(?<![\w./-])(\d{1,6}(?:\.\d{1,3})?) ?([MGT])(?:i?B)?(?![\w/])", re.IGNORECASE)
_ROW_TOOL = re.compile(r"(?<![\w-])(?:\S{0,200}/)?(cudafe\+\+|cicc|ptxas|cc1plus)(?![\w.-])")
_UNITS = {"k": 1 / 1024, "m": 1.0, "g": 1024.0, "t": 1024.0**2, "p": 1024.0**3}

_GROWS = re.compile(
    r"(?i)\b(?:memory|RES|RSS|RAM|cudafe\+\+|cicc|ptxas|cc1plus)\b.{0,120}?"
    r"(?:without (?:a |any )?(?:plateau|bound|end|limit)|no plateau|never (?:stops|plateaus)"
    r"|keeps? (?:on )?(?:growing|increasing|rising)|still (?:growing|rising)|unbounded"
    r"|(?:grows?|growing|increas(?:es|ing)|rising) (?:continuously|steadily|endlessly|indefinitely|forever|unbounded)"
    r"|(?:continuously|steadily|endlessly|relentlessly) (?:grow|increas|ris))"
)
_GROW_WORDS = (b"grow", b"increas", b"plateau", b"unbounded", b"rising")


class GrowthTable:
    """Fed with blocks of whole lines."""

    def __init__(self) -> None:
        self.words: Quote | None = None
        self._rows = 0
        self._of: dict[str, Growth] = {}

    def found(self) -> tuple[Growth, ...]:
        """The largest first."""
        return tuple(sorted(self._of.values(), key=lambda each: -each.last_mib))

    def feed(self, block: bytes, first: int) -> None:
        """``first``: the number of the block's first line."""
        starts = {start for tool in TOOLS if tool in block for start in starts_of_lines(block, tool)}
        line, counted = first, 0
        for start in sorted(starts):
            line, counted = line + block.count(b"\n", counted, start), start
            end = block.index(b"\n", start)
            if end - start <= LONGEST_ROW and self._rows < MOST_ROWS:
                self._rows += 1
                self._row(line, block[start:end])
        if self.words is None:
            self._look_for_words(block, first)

    def _look_for_words(self, block: bytes, first: int) -> None:
        for word in _GROW_WORDS:
            if word not in block:
                continue
            for looked, start in enumerate(starts_of_lines(block, word)):
                text = clean(block[start : min(block.index(b"\n", start), start + 2000)])
                if _GROWS.search(text):
                    self.words = Quote(line=first + block.count(b"\n", 0, start), text=text[:400])
                    return
                if looked > 200:
                    break

    def _row(self, line: int, row: bytes) -> None:
        text = clean(row)
        tool, size = _ROW_TOOL.search(text), size_mib(text)
        if tool is None or size is None or size < LEAST_MIB:
            return
        quote = Quote(line=line, text=text)
        had = self._of.get(tool[1])
        if had is None:
            self._of[tool[1]] = Growth(
                tool=tool[1], first_mib=size, last_mib=size, points=1, falls=0, first=quote, last=quote
            )
            return
        self._of[tool[1]] = Growth(
            tool=had.tool,
            first_mib=had.first_mib,
            last_mib=size,
            points=had.points + 1,
            falls=had.falls + (size < FELL * had.last_mib),
            first=had.first,
            last=quote,
        )


def size_mib(row: str) -> float | None:
    """What a row says that a process holds; None when it says nothing of that kind."""
    if (top := _TOP.search(row)) is not None:
        number, unit = top[1].rstrip("kmgtp"), top[1][-1]
        return _scaled(number, unit if unit.isalpha() else "k")
    for pattern in (_PS_AUX, _PS_RSS):
        if (found := pattern.search(row)) is not None:
            kib = whole_number(found[1])
            return None if kib is None else kib / 1024
    if (found := _WITH_UNIT.search(row)) is not None:
        return _scaled(found[1], found[2].lower())
    return None


def _scaled(number: str, unit: str) -> float | None:
    try:
        return float(number) * _UNITS[unit]
    except (ValueError, KeyError):
        return None
