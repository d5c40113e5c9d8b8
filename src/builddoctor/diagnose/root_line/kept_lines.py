"""Lines of a log that are at hand once it was read: its last ones, and those around the first step that failed. Pure.

Covers: which these are, what stands above and below a line among them, one of them as a finding.
Does *not* cover: reading a log (``diagnose.log_scanner``), what a line means (``root_line.line_words``).
"""

from __future__ import annotations

from builddoctor.core.verdict import Finding, Weight
from builddoctor.diagnose.log_lines import Quote
from builddoctor.diagnose.log_scanner import Reading


class KeptLines:
    """``last``: those at the end of the log. ``all``: these and the others, in order. None of them is empty."""

    def __init__(self, reading: Reading) -> None:
        numbered = zip(reading.tail_numbers, reading.tail, strict=True)
        self.last = [Quote(line=line, text=text) for line, text in numbered]
        self._by_number = {each.line: each for each in (*self.last, *reading.near)}
        self.all = sorted(self._by_number.values(), key=lambda each: each.line)

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


def shown(said: Quote) -> Finding:
    """A line that no entry of the catalogue knows, as what is shown of a failure."""
    return Finding(entry="", verdict=None, weight=Weight.SHOWS, line=said.line, text=said.text)
