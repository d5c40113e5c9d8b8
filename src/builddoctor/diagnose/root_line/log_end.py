"""The end of a log: whether it ends badly, and what it says last. Pure.

Covers: logs in which no entry of the catalogue says why something failed.
Does *not* cover: landmarks of whole logs, such as the last success (``diagnose.log_scanner``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from builddoctor.core.verdict import Finding, Weight
from builddoctor.diagnose.catalogue import Layer, layer_of
from builddoctor.diagnose.log_lines import Quote
from builddoctor.diagnose.log_scanner import Reading, failure
from builddoctor.diagnose.root_line.kept_lines import KeptLines, shown
from builddoctor.diagnose.root_line.line_words import ASKS, GAVE_UP, HARMLESS, NO_REASON, WORDS, ends_in_trouble
from builddoctor.diagnose.root_line.tracebacks import raised_above_frames

BANNER = r"\W{0,6}(?:ERROR|FATAL(?: ERROR)?)\W{0,6}$"
"""of a script: what is wrong stands below it"""

LAST_WORDS = 3
"""lines at the end: what these say is about the whole build"""
_FAILED = re.compile(
    r"\bFAILED\b|\b[Ee]xit status [1-9]|^status [1-9]\d{0,2}$|[Ee]rrors? while running|: Broken pipe$"
    r"|\bexited with (?:code )?(?!0\b)\d|\bAborted\b|^The configuration failed|^Failing command: "
    r"|\bmake(?:\[\d{1,4}\])?: (?:\*\*\*[ N]|stopped in /)|^NMAKE : .{0,20}U1\d{3}: "
    r"|^installation of package \S{1,80} had non-zero exit status$|^ExitFailure -?[1-9]"
    r"|\bfailed (?:during|while|to (?:install|build|compile|configure|link|load))\b"
    r"|^while loading .{1,300}, in expression starting on line \d|^(?:Quitting|Aborting|Bailing out)[.! ]*$"
    rf"|^{BANNER}"
)

_WENT_ON = re.compile(
    r"^-- (?:Build files have been written|Generating done)|^config(?:ure|\.status): creating "
    r"|^Your branch is up to date|^Already on |\(ignored\)$"
)
"""printed after an error that did not stop the build"""
_CONFIGURED = re.compile(r"-- Configuring done")
CMAKE_SAID = "cmake-said"

_RULER = re.compile(r"[-=*#_]{8,}$")
LINES_OF_A_BOX = 12
_NOT_SAID = re.compile(
    r"^(?:\S{0,80}|\[[^\]]{1,80}\])[$#>]$|^status \d+$|^at [\w.<>`$/ ]{1,200}[(\[]|^[-*•] \S{1,80}$"
    r"|^Post job cleanup|^(?:Cleaning up|Terminate) orphan |: recipe for target '"
    r"|^\(?(?:[Aa]n? )?(?:complete|full|detailed) (?:log|output)s? |^[\w./\\:~-]{1,300}\.log$"
)
"""prompts, ends of "exit status", frames of a stack, items of a list, where a log is, and what CI does at its end"""


def ends_badly(reading: Reading, trails: Sequence[Finding]) -> bool:
    """The end of a log says that something failed, and nothing after it that all is well."""
    lines = KeptLines(reading).last
    errors = [
        each.line
        for each in reading.findings
        if each.weight in (Weight.GUESSES, Weight.SHOWS) and layer_of(each.entry) < Layer.DRIVER.rank
    ]
    bad = [*_troubles(lines), *errors, *(each.line for each in trails)]
    went_on = max((each.line for each in lines if _WENT_ON.search(each.text)), default=0)
    return max(bad, default=0) > went_on or _failed_generating(reading, lines, went_on)


def _troubles(lines: Sequence[Quote]) -> Iterator[int]:
    """Numbers of those of the last lines that say that something failed."""
    wrong, last = failure(), said_last(lines)
    for each in lines:
        if wrong.is_it(each.text) and not HARMLESS.search(each.text):
            yield each.line
        if GAVE_UP.search(each.text) and not NO_REASON.search(each.text):
            yield each.line
    yield from (each.line for each in lines[-LAST_WORDS:] if _FAILED.search(each.text))
    yield from (each.line for each in last if ends_in_trouble(each.text))
    yield from (each.line for each in last[-1:] if ASKS.search(each.text))
    if (above := raised_above_frames(lines)) is not None:
        yield above.line


def _failed_generating(reading: Reading, lines: Sequence[Quote], went_on: int) -> bool:
    """CMake writes build files all the same where it finds an error while it generates them."""
    configured = max((each.line for each in lines if _CONFIGURED.match(each.text)), default=went_on)
    said = (each.line for each in reading.findings if each.entry == CMAKE_SAID)
    return any(configured < line < went_on for line in said)


def said_last(lines: Sequence[Quote]) -> Sequence[Quote]:
    """The last line that says anything; all of a box between rulers, where the log ends with one."""
    told = [place for place, each in enumerate(lines) if WORDS.search(each.text) and not _NOT_SAID.search(each.text)]
    if not told:
        return []
    rulers = [place for place, each in enumerate(lines) if _RULER.match(each.text)]
    above = [place for place in rulers if place < told[-1]][-1:]
    if above and rulers[-1] > told[-1] and told[-1] - above[0] <= LINES_OF_A_BOX:
        return lines[above[0] + 1 : told[-1] + 1]
    return [lines[told[-1]]]


def last_words(reading: Reading) -> str:
    """The last line that says anything, as it is quoted; empty where there is none."""
    return "".join(shown(each).quoted for each in said_last(KeptLines(reading).last)[-1:])
