"""A verdict as a person reads it: what died, why, what to do, cheapest first, and the evidence. Pure.

Covers: the parts that the page of a trace and ``explain`` share, and the page of ``explain``.
Does *not* cover: how a verdict is arrived at (``diagnose``), or a trace's own page (``render.trace_page``).

Texts come from logs and traces of anybody: nothing in them reaches the terminal as a control sequence. Colour carries
nothing that the words do not.
"""

from __future__ import annotations

import textwrap

from rich.text import Text

from builddoctor.model.verdict import Fix, Verdict, VerdictName
from builddoctor.units import escaped, one_line

LABEL_CELLS = 8
LEAST_CELLS = 20
LONGEST_EVIDENCE = 600

IN_WORDS: dict[VerdictName, str] = {
    "parallel": "too many at once",
    "too-big": "one compiler that does not fit",
    "runaway": "a compiler that grows without end",
    "rlimit": "a limit of the process itself",
    "cgroup-parent": "a memory limit that others share",
    "numa-policy": "some memory nodes were full, others not",
    "tmpfs": "files that live in memory",
    "disk-full": "no space left",
    "external-kill": "killed from outside",
    "oomd": "killed by a daemon that guards memory",
    "scheduler-kill": "killed by the scheduler",
    "not-redoable": "killed for memory, and it cannot be run again",
    "toolchain": "the toolchain",
    "source": "the source, or what it needs",
    "gpu-oom": "the GPU's memory, not the host's",
    "unknown": "the cause is not known",
}


def explain_page(name: str, verdict: Verdict, *, lines: int, width: int) -> list[Text]:
    """What was made of a text. ``name``: the file; ``width``: cells of a line, only what is to be pasted is longer."""
    if verdict.verdict is None:
        where = f" in {lines} line{'s' * (lines != 1)}" if lines else ""
        head = f"· {name}: nothing to explain{where}"
        return [Text(_cut(head, width), style="bold"), *labelled("why", verdict.why, width)]
    words = IN_WORDS[verdict.verdict]
    head = f"✗ {name}: {words} ({verdict.verdict}, {verdict.confidence} confidence)"
    return [
        *wrapped_title(head, width),
        *labelled("died", verdict.died, width, "bold red"),
        *labelled("why", verdict.why, width),
        *labelled("next", verdict.fixes[0].text if verdict.fixes else "", width),
        *fix_lines(verdict, width),
        *evidence_lines(verdict, width),
    ]


def wrapped_title(text: str, width: int) -> list[Text]:
    """A headline of a failure."""
    lines = textwrap.wrap(one_line(text), max(LEAST_CELLS, width), subsequent_indent="  ", break_on_hyphens=False)
    return [Text(line, style="bold red") for line in lines]


def labelled(label: str, text: str, width: int, style: str = "") -> list[Text]:
    """``  why     it does not fit …``, going on under itself; nothing for no text."""
    if not text:
        return []
    room = max(LEAST_CELLS, width - LABEL_CELLS - 2)
    first, *rest = textwrap.wrap(one_line(text), room, break_on_hyphens=False) or [""]
    indent = " " * (LABEL_CELLS + 2)
    head = Text(f"  {label:<{LABEL_CELLS}}", style="dim").append(first, style=f"not dim {style}".strip())
    return [head, *(Text(indent + line, style=style) for line in rest)]


def heading(words: str) -> list[Text]:
    """A blank line and a heading."""
    return [Text(), Text(words, style="bold")]


def fix_lines(verdict: Verdict, width: int) -> list[Text]:
    """The ways out, numbered."""
    if not verdict.fixes:
        return []
    lines = heading("what to do, cheapest first")
    for number, fix in enumerate(verdict.fixes, 1):
        lines += _fix(number, fix, width, builds=verdict.verdict != "gpu-oom")
    return lines


def _fix(number: int, fix: Fix, width: int, *, builds: bool) -> list[Text]:
    mark = "changes the binary" if fix.changes_binary else "changes nothing in the binary"
    notes = [note for note in (mark if builds else "", fix.effect) if note]
    indent = " " * (len(str(number)) + 4)
    lines = _wrapped(f"  {number}. ", indent, f"{fix.text} ({'; '.join(notes)})" if notes else fix.text, width)
    if fix.command:
        # Never wrapped: it has to survive copy and paste.
        lines.append(Text(f"{indent}{escaped(fix.command)}", style="cyan"))
    return lines


def evidence_lines(verdict: Verdict, width: int) -> list[Text]:
    """What the verdict goes by; nothing where there is none."""
    if verdict.verdict is None or not verdict.evidence:
        return []
    lines = heading(f"evidence for {one_line(verdict.verdict)} ({verdict.confidence} confidence)")
    for text in verdict.evidence:
        lines += _wrapped("  - ", "    ", _cut(text, LONGEST_EVIDENCE), width)
    return lines


def _wrapped(first: str, rest: str, text: str, width: int) -> list[Text]:
    room = max(LEAST_CELLS, width - len(rest))
    head, *more = textwrap.wrap(one_line(text), room, break_on_hyphens=False) or [""]
    return [Text(first + head), *(Text(rest + line) for line in more)]


def _cut(text: str, cells: int) -> str:
    text = one_line(text)
    return text if len(text) <= cells else text[: max(1, cells - 1)] + "…"
