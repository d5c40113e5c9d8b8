"""The line of a log that says why something failed in words that no entry of the catalogue knows. Pure.

Covers: the likeliest of some lines, by what their words say; that near a line which only says that a step failed.
Does *not* cover: kinds of words (``root_line.line_words``), which error counts where one is known
(``root_line.by_findings``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from builddoctor.core.verdict import Finding
from builddoctor.diagnose.log_lines import Quote
from builddoctor.diagnose.log_scanner import Reading, failure
from builddoctor.diagnose.root_line.finding_order import innermost
from builddoctor.diagnose.root_line.kept_lines import KeptLines, shown
from builddoctor.diagnose.root_line.line_words import (
    ADVISES,
    BARE,
    DEMANDS,
    KILLED,
    LACKS,
    LACKS_TOO,
    NEGATES,
    NO_REASON,
    STARTED,
    TOOLS_OWN,
    WORDS,
    is_command,
    tells,
)
from builddoctor.diagnose.root_line.tracebacks import without_frames
from builddoctor.diagnose.root_line.wrappers import handed_on, wraps

NEAR = 20
"""lines that are not empty, before a build tool's own: where the reason stands, if it stands anywhere"""
LINES_ABOVE = 2
"""before what ended: what was printed last"""

LAST_WORD = "compilation-terminated"

_CMAKE_WARNS = re.compile(r"CMake (?:Deprecation )?Warning\b")
_STACK = re.compile(r"Call Stack \(most recent call first\)")

NINJA = "FAILED: "
_SAYS_BELOW = re.compile(rf"{NINJA}|(?:error|Error|ERROR): |==> Error: ProcessError: ")
_NINJAS_OWN = re.compile(rf"\[\d{{1,6}}/\d{{1,6}}\] |ninja: |{NINJA}|Traceback |^\[end of output\]")
_COMMAND = re.compile(r" -\w|&&|(?:^|[\w/\\])\S*\.\w{1,4}$")

_ENDED = re.compile(
    r"(?:[\w./-]{0,100}make|scons)(?:\[\d{1,4}\])?: \*\*\* |\+{1,3} exit [1-9]"
    r"|(?:Error: )?Process completed with exit code"
    r"|The command ['\"\[].{1,600}['\"\]] (?:returned a non-zero code|exited with)"
    r"|(?:ERROR: )?(?:failed to solve: )?process \".{1,600}\" did not complete"
    r"|collect2: |\S{0,200}ld: final link failed|\S{0,200}clang(?:\+\+)?: error: linker command failed"
)
"""what a build tool or CI says of a step right below the last that it printed"""


def reasons(lines: Iterable[Quote], *, alone: bool) -> Iterator[Quote]:
    """The first of these lines in each kind of words, the likeliest kind first. ``alone``: not one that says no more
    than that something failed."""
    likely = [each for each in lines if not NO_REASON.search(each.text) and not is_command(each.text)]
    telling = [each for each in likely if not BARE.search(each.text)]
    plain = [each for each in telling if not ADVISES.match(each.text)]
    kinds: tuple[tuple[Callable[[str], object], list[Quote]], ...] = (
        (tells, telling),
        (LACKS.search, plain),
        (LACKS_TOO.search, plain),
        (KILLED.search, plain),
        (tells, [] if alone else likely),
        (DEMANDS.search, likely),
        (NEGATES.search, plain),
    )
    for says, among in kinds:
        first = next((each for each in among if says(each.text)), None)
        if first is not None:
            yield first


def said_near(reading: Reading, line: int, *, reasons_alone: bool = False) -> Finding | None:
    """Where no text of an error is known but a build tool's own, in that line: the first one just before it that speaks
    of an error, else of something that is missing, else the last that the tool printed; ninja prints what a tool said
    after its own line and the command."""
    kept = KeptLines(reading)
    known = {each.line for each in reading.findings}
    others = [each for each in _no_warnings(kept.all) if each.line not in known and not wraps(each.text)]
    handed = handed_on(others)
    before = [each for each in others if each.line < line][-NEAR:]
    after = _below_step(kept, others, line)
    reason = next(reasons([*after, *(handed or before)], alone=reasons_alone), None)
    if reason is not None:
        return shown(reason)
    if reasons_alone and (stopped := _stopped_before(reading, handed[-1].line if handed else line)) is not None:
        return stopped
    # In no known words.
    printed = without_frames(handed) or _printed_by_step(kept, others, after, line)
    said = [each for each in printed if WORDS.search(each.text) and not NO_REASON.search(each.text)]
    return shown(said[-1]) if said else None


def _no_warnings(lines: Sequence[Quote]) -> Iterator[Quote]:
    """Without the messages of CMake's warnings, as far as no empty line stands in them, and the stack below them."""
    last = 0
    for each in lines:
        within = each.line == last + 1 or (_STACK.match(each.text) is not None and each.line <= last + 2)
        if _CMAKE_WARNS.match(each.text) or (last and within):
            last = each.line
        else:
            last = 0
            yield each


def _below_step(kept: KeptLines, others: Sequence[Quote], line: int) -> list[Quote]:
    """Those of the others that stand below a line which comes before what is said of it."""
    said = kept.text(line)
    if not _SAYS_BELOW.match(said):
        return []
    # Below ninja's own line stands the command, unless a copy left it out.
    below = kept.text(line + 1)
    left_out = below != "" and (failure().is_it(below) or not _COMMAND.search(below))
    begin = line + 1 if said.startswith(NINJA) and not left_out else line
    return [each for each in others if each.line > begin][:NEAR]


def _printed_by_step(kept: KeptLines, others: Sequence[Quote], after: Sequence[Quote], line: int) -> Sequence[Quote]:
    """What the tool printed, as far as the place of these lines says it."""
    if kept.text(line).startswith(NINJA):
        own = next((place for place, each in enumerate(after) if _NINJAS_OWN.match(each.text)), len(after))
        return after[:own]
    return _right_above(others, kept.text(line), line)


def _right_above(lines: Sequence[Quote], driver: str, line: int) -> list[Quote]:
    """The last that was printed above what a build tool or CI says of a step that ended: of make's, in the form in
    which programs speak, for a command may stand there."""
    if not _ENDED.match(driver):
        return []
    above = [each for each in lines if line - LINES_ABOVE <= each.line < line and not STARTED.match(each.text)]
    return [each for each in above if TOOLS_OWN.match(each.text)] if "***" in driver else above


def _stopped_before(reading: Reading, line: int) -> Finding | None:
    """A compiler's last word shortly before a wrapper: how many errors it counted, where a copy left them out."""
    return innermost(each for each in reading.findings if each.entry == LAST_WORD and 0 < line - each.line <= NEAR)
