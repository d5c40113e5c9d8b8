"""The doctor's page: one line a check, hints that can be pasted. Pure: checks in, lines out.

Colour carries nothing that the words do not. Texts hold names of any files and folders: nothing in them
reaches the terminal as a control sequence.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from rich.text import Text

from builddoctor.core.check import Check, Status
from builddoctor.core.units import escaped, one_line

TOPIC_CELLS = 15
STATUS_CELLS = 9
LEAST_CELLS = 24
"""for the text; below, lines are longer than the page"""

NARROW_CELLS = 60
"""Below this the text stands under topic and status instead of beside them."""

NARROW_MARGIN_CELLS = 2

_STYLES = {Status.OK: "green", Status.WARNING: "yellow", Status.PROBLEM: "bold red"}


def check_lines(checks: Sequence[Check], *, width: int) -> list[str]:
    """The page. A topic is named once; a long text goes on under itself; hints stand on a line of their own.

    ``width``: cells of a line.
    """
    narrow = width < NARROW_CELLS
    margin = " " * (NARROW_MARGIN_CELLS if narrow else TOPIC_CELLS + STATUS_CELLS)
    room = max(LEAST_CELLS, width - len(margin))
    lines: list[str] = []
    topic = ""
    for check in grouped(checks):
        head = check.topic if check.topic != topic else ""
        topic = check.topic
        first, *rest = textwrap.wrap(one_line(check.text), room, break_on_hyphens=False) or [""]
        if narrow:
            rest, first = [first, *rest], ""
        lines.append(f"{one_line(head):<{TOPIC_CELLS}}{check.status.value:<{STATUS_CELLS}}{first}".rstrip())
        lines += [margin + line for line in rest]
        if check.hint:
            # Never wrapped: it has to survive copy and paste.
            lines.append(f"{margin}→ {escaped(check.hint)}")
    return lines


def styled(line: str) -> Text:
    """One line of the page with its status in colour, and hints apart from what they follow."""
    text = Text(line)
    word = line[TOPIC_CELLS : TOPIC_CELLS + STATUS_CELLS].strip()
    is_head = line[:1] != " " or not line[:TOPIC_CELLS].strip()
    for status, style in _STYLES.items():
        if is_head and word == status.value:
            text.stylize(style, TOPIC_CELLS, TOPIC_CELLS + len(word))
    if line.startswith(" ") and line.lstrip(" ").startswith("→"):
        text.stylize("cyan", line.index("→"))
    return text


def grouped(checks: Sequence[Check]) -> list[Check]:
    """Topics in the order in which they first came up, each with its worst line first."""
    topics = list(dict.fromkeys(check.topic for check in checks))
    return [
        check
        for topic in topics
        for check in sorted((c for c in checks if c.topic == topic), key=lambda c: -c.status.rank)
    ]


def verdict_line(checks: Sequence[Check]) -> str:
    """``1 problem, 2 warnings. A build now would not succeed.``"""
    problems = sum(check.status is Status.PROBLEM for check in checks)
    warnings = sum(check.status is Status.WARNING for check in checks)
    if not problems and not warnings:
        return "No problems found."
    counts = [
        f"{number} {word}{'s' * (number != 1)}"
        for number, word in ((problems, "problem"), (warnings, "warning"))
        if number
    ]
    line = ", ".join(counts) + "."
    if any(check.stops_build for check in checks):
        line += " A build now would be stopped before it starts."
    if any(check.fix for check in checks):
        line += " `builddoctor doctor --fix` shows what it can fix."
    return line


def brief_lines(checks: Sequence[Check]) -> list[str]:
    """What is worth a line before a build: warnings and problems only."""
    return [_brief(check) for check in grouped(checks) if check.status is not Status.OK]


def _brief(check: Check) -> str:
    named = check.text if check.text.startswith(check.topic) else f"{check.topic}: {check.text}"
    return one_line(named) + (f"  → {escaped(check.hint)}" if check.hint else "")
