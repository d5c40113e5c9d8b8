"""Where the cause of a failure is not known: the line to begin with, and what else of the log to look at. Pure.

Covers: logs that end badly, with the root line where there is one, and with whatever stands there where there is none.
Does *not* cover: whether a log ends badly (``root_line.log_end``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from builddoctor.core.verdict import Finding, Weight
from builddoctor.diagnose.log_facts import LogFacts
from builddoctor.diagnose.log_lines import Quote
from builddoctor.diagnose.log_scanner import Reading
from builddoctor.diagnose.root_line.by_findings import root_line
from builddoctor.diagnose.root_line.kept_lines import KeptLines, shown
from builddoctor.diagnose.root_line.line_words import BARE, CALLED, LACKS, MATTERS, TOOLS_OWN, speaks_of_failure
from builddoctor.diagnose.root_line.log_end import BANNER, said_last
from builddoctor.diagnose.root_line.reason_elsewhere import only_failed
from builddoctor.diagnose.root_line.reasons import reasons, said_near
from builddoctor.diagnose.root_line.tracebacks import HEADER, before_traceback, raised, source_of_bare
from builddoctor.diagnose.root_line.wrappers import wraps

LINES_NEXT = 2
REASONS = 3
"""other lines that may be it"""

_OF_NOTHING = re.compile(r"(?:Type|Attribute)Error: 'NoneType' object ")
NOTE = "note: "
"""pip's and compilers': what it wraps is said elsewhere"""
_LABEL = re.compile(r"[:\uff1a]$")
_PHASE = re.compile(r"^\* ERROR: \S{1,200} failed \(\w{1,20} phase\):$")
"""Portage: what the package itself says stands below it"""
_TITLE = re.compile(r"#?[=*-]{3,}\W{0,3}(?:ERROR|[Ee]rror)\b.{0,150}[=*-]{3,}#?$")
"""opam's and Julia's: a headline between rulers"""
_NUMBER = re.compile(r"\d{1,7} {4,}")
"""Spack numbers the lines that it quotes of a log"""
_RULER = re.compile(rf"(?:{_NUMBER.pattern})?[-=*#_]{{8,}}$")
_NO_MORE = re.compile(r"^configure: error: (?:[Cc]annot continue|[Aa]borting|[Gg]iving up)[.! ]*$")
_CONFIGURES_WARNING = "configure: WARNING: "
_CONTINUES = re.compile(
    r"\bmake\b|^ninja: |recipe for target|^raise |^\W{0,3}\w{0,12}\W{0,3}$|\b(?:INFO|NOTE)\b|:$|^exit code"
    r"|no error message"
)
"""next to the root line: what says nothing that it does not"""


def some_line(reading: Reading, facts: LogFacts) -> Finding:
    """To begin with: the root line, what stands near the end, or whatever there is."""
    found = root_line(reading, facts, None) or said_near(reading, reading.lines + 1) or _any_wrong(reading)
    said = _warned_before(_in_box(_below_label(found, reading), reading), reading)
    return _unnumbered(_of_nothing(said, reading))


def _any_wrong(reading: Reading) -> Finding:
    """Of a log that ends badly, with no line that is known: the first that speaks of a failure, else the last one."""
    lines = KeptLines(reading).last
    matter = (each for each in lines if MATTERS.search(each.text) and not wraps(each.text))
    last = [Quote(line=reading.lines, text=""), *lines[-1:], *said_last(lines)][-1]
    said = raised(lines) or reading.wrong or next(matter, last)
    # Of wrappers alone: the first of them that is no note.
    wrappers = [each for each in lines if wraps(each.text)]
    wrapper = next((each for each in wrappers if not each.text.startswith(NOTE)), said)
    return shown(wrapper if wraps(said.text) and wrapper.line < said.line else said)


def _below_label(found: Finding, reading: Reading) -> Finding:
    """What a program says below a line that only announces it: "Standard error:", "unable to load shared object:"."""
    kept = KeptLines(reading)
    text = kept.text(found.line) or found.text
    banner = re.match(BANNER, text)
    headline = banner or _TITLE.match(text)
    below = next((each for each in kept.below(found.line) if each.line - found.line <= LINES_NEXT), None)
    if below is None or wraps(below.text) or not (headline or _LABEL.search(text)):
        return found
    named = headline or TOOLS_OWN.match(below.text)
    says = banner or _PHASE.match(found.text) or (named and speaks_of_failure(below.text))
    return shown(below) if says else found


def _in_box(found: Finding, reading: Reading) -> Finding:
    """Of a headline between two rulers, as PETSc's configure prints: what stands below the second one."""
    kept = KeptLines(reading)
    around = kept.text(found.line - 1), kept.text(found.line + 1)
    below = next((each for each in kept.below(found.line + 1)[:1] if not _RULER.match(each.text)), None)
    if below is None or below.line != found.line + 2 or not all(map(_RULER.match, around)):
        return found
    return shown(below)


def _unnumbered(found: Finding) -> Finding:
    """Without the number that a quoted line of another log has."""
    text = _NUMBER.sub("", found.text, count=1) if _NUMBER.match(found.text) else found.text
    return found if text == found.text else shown(Quote(line=found.line, text=text))


def _warned_before(found: Finding, reading: Reading) -> Finding:
    """Of a configure script that only says that it stops: the first of the warnings right above, which say why."""
    if not _NO_MORE.match(found.text):
        return found
    kept, line = KeptLines(reading), found.line
    while kept.text(line - 1).startswith(_CONFIGURES_WARNING):
        line -= 1
    return found if line == found.line else shown(Quote(line=line, text=kept.text(line)))


def _of_nothing(found: Finding, reading: Reading) -> Finding:
    """Of an exception that says no more than that something was not there: what is said right before its traceback of
    something that is missing."""
    if not _OF_NOTHING.search(found.text):
        return found
    before = before_traceback(KeptLines(reading).above(found.line))[-LINES_NEXT:]
    said = [each for each in before if LACKS.search(each.text)]
    return shown(said[-1]) if said else found


def said_beside(root: Finding, reading: Reading) -> list[tuple[str, str]]:
    """What may be the reason as well, right next to the root line: ``("above", text)``, or ``("below", text)``."""
    kept = KeptLines(reading)
    if (source := source_of_bare(root.text, kept.above(root.line))) is not None:
        return [("above", source.text)]
    above, below = kept.above(root.line)[-1:], kept.below(root.line)[:1]
    near = [("above", each) for each in above] + [("below", each) for each in below]
    return [(where, each.text) for where, each in near if _may_be_it(each, root)][:1]


def _may_be_it(each: Quote, root: Finding) -> bool:
    near = abs(each.line - root.line) <= LINES_NEXT and each.text not in root.text and root.text not in each.text
    if not near or wraps(each.text) or _TITLE.search(each.text) or _CONTINUES.search(each.text):
        return False
    if only_failed(shown(each)):
        return only_failed(root)
    again = each.text.partition(":")[0] == root.text.partition(":")[0] and not CALLED.match(root.text)
    return not again and next(reasons([each], alone=True), None) is not None


def around(root: Finding, reading: Reading) -> list[str]:
    """What may say more than the root line, or instead of it: those next to it, other errors, what is called one, the
    last that matters, and where each of these begins to say it."""
    kept = KeptLines(reading)
    above, below = kept.above(root.line), kept.below(root.line)
    lines = [*above, Quote(line=root.line, text=root.text), *below]
    next_to_it = [*above[-LINES_NEXT:], lines[len(above)], *below[:LINES_NEXT]]
    errors = [Quote(line=each.line, text=each.text) for each in reading.findings if each.weight is not Weight.TRAILS]
    last = [each for each in lines if MATTERS.search(each.text)][-LINES_NEXT:]
    others = [each for each in dict.fromkeys(reasons(lines, alone=True)) if each.line != root.line][:REASONS]
    begins = _begins(lines, {root.line, *(each.line for each in others)}, root.line)
    called = [each for each in lines if CALLED.match(each.text)][:REASONS]
    told = {each.line: each.text for each in (*begins, *last, *others, *called, *errors[:LINES_NEXT], *next_to_it)}
    return [f"near line {number}: {text}" for number, text in sorted(told.items())]


def _begins(lines: Sequence[Quote], told: set[int], root: int) -> Iterator[Quote]:
    """The first line of the paragraph that holds the root line; what was printed right before a traceback, or before a
    line that only says that something failed; the line before one that goes on in the middle of a sentence."""
    paragraph = lines[0]
    for before, each in pairwise([Quote(line=0, text=""), *lines]):
        if each.line - before.line > 1:
            paragraph = each
        if each.line == root:
            yield paragraph
        goes_on = each.line in told and each.text[:1].islower()
        if before.line and (goes_on or HEADER.match(each.text) or BARE.search(each.text.rstrip("* "))):
            yield before
