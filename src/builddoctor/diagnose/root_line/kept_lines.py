"""Lines of a log that are at hand once it was read: its last ones, and those around the first step that failed. Pure.

Covers: which these are, without what people ask of a system after a build, what stands above and below a line among
them, one of them as a finding.
Does *not* cover: reading a log (``diagnose.log_scanner``), what a line means (``root_line.line_words``).
"""

from __future__ import annotations

import re

from builddoctor.core.verdict import Finding, Weight
from builddoctor.diagnose.log_lines import TYPED_AT, Quote
from builddoctor.diagnose.log_scanner import Reading

_PROMPT = rf"(?:{TYPED_AT}|(?:\([\w ./~-]{{1,40}}\) ?)?[$%])"
"""CI prints the short ones, too"""
_WAITS = re.compile(_PROMPT)
_TYPED = re.compile(rf"{TYPED_AT} ?[\w./\\~-]")
_COMMAND = re.compile(rf"{_PROMPT} ?[\w./\\~-]")
_ASKS = re.compile(
    rf"{_PROMPT} ?(?:(?:nvidia-smi|which|where|whereis|ls|dir|uname|lsb_release|printenv)\b"
    r"|[\w./+~-]{1,80} (?:--?[Vv]ersion|-[Vv]|list|show|freeze|info)\b)"
)
"""a command that only shows what there is, as people add it below what failed"""


class KeptLines:
    """``last``: those at the end of the log, without what was asked after it. ``all``: these and the others, in order.
    None of them is empty."""

    def __init__(self, reading: Reading) -> None:
        numbered = zip(reading.tail_numbers, reading.tail, strict=True)
        self.last = _before_questions([Quote(line=line, text=text) for line, text in numbered])
        self._by_number = {each.line: each for each in (*self.last, *reading.near)}
        self.all = sorted(self._by_number.values(), key=lambda each: each.line)

    @property
    def commands(self) -> list[int]:
        """Numbers of those in which somebody typed a command."""
        return [each.line for each in self.all if _TYPED.match(each.text)]

    def text(self, line: int) -> str:
        """Of this line; empty where it was not kept."""
        kept = self._by_number.get(line)
        return "" if kept is None else kept.text

    def above(self, line: int) -> list[Quote]:
        """Those before it."""
        return [each for each in self.all if each.line < line]

    def below(self, line: int) -> list[Quote]:
        """Those after it."""
        return [each for each in self.all if each.line > line]


def _before_questions(lines: list[Quote]) -> list[Quote]:
    """Lines before the first command, of those behind the last other one, that only asks; no prompt that waits."""
    if lines and _WAITS.fullmatch(lines[-1].text):
        lines = lines[:-1] or lines
    commands = [place for place, each in enumerate(lines) if _COMMAND.match(each.text)]
    others = [place for place in commands if not _ASKS.match(lines[place].text)]
    asked = next((place for place in commands if place > max(others, default=-1)), None)
    return lines[:asked] or lines


def shown(said: Quote) -> Finding:
    """A line that no entry of the catalogue knows, as what is shown of a failure."""
    return Finding(entry="", verdict=None, weight=Weight.SHOWS, line=said.line, text=said.text)
