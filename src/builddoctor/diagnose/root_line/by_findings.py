"""The line of a log that counts: the first error of the innermost layer that failed, in known words or others. Pure.

Covers: the root line of a log whose failure some entry of the catalogue knows, if only as a wrapper or a step.
Does *not* cover: what is the cause, or what is made of it (``diagnose.from_log``); logs in which nothing is known, and
what else to look at (``root_line.unknown_cause``).

Layers wrap each other: pip tells what a build hook said, that what ninja said, that what nvcc did. What only says that
something failed is a wrapper, whoever says it; what it wraps stands above it, below it, or in what it hands on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from builddoctor.core.verdict import Finding, Weight
from builddoctor.diagnose.catalogue import layer_of
from builddoctor.diagnose.log_facts import LogFacts
from builddoctor.diagnose.log_lines import Quote
from builddoctor.diagnose.log_scanner import Reading
from builddoctor.diagnose.root_line.finding_order import by_step, innermost
from builddoctor.diagnose.root_line.kept_lines import KeptLines, shown
from builddoctor.diagnose.root_line.line_words import speaks_of_failure
from builddoctor.diagnose.root_line.log_end import CMAKE_SAID
from builddoctor.diagnose.root_line.reasons import NEAR, said_near
from builddoctor.diagnose.root_line.tracebacks import CAUSED, raised
from builddoctor.diagnose.root_line.wrappers import is_wrapper, wraps

CHAIN = "chain-said"
"""a cause that is named below an error"""
MESSAGE, HANDED_ON = "message-below", "pip-subprocess"
EXCEPTIONS = frozenset(("python-raised", "python-raised-below"))

CHAIN_LINES = 6
"""from an error to the last of what it names as its causes"""
LINES_TO_QUOTED = 12
"""from a message to where the output begins that it quotes"""

_BARE_EXIT = re.compile(r"(?i)exit (?:code|status):? -?\d{1,5}")
"""pip's second line of what failed"""
_CARGOS = re.compile(r"error: (?:[Cc]ould not compile|failed to run custom build command for) [`\w]")
_EMPTY = re.compile(r": ?(?:WARNING: .*)?$")
_QUOTES = re.compile(r"(?:[Tt]he output was|the following output):$")


def root_line(reading: Reading, facts: LogFacts, cause: Finding | None) -> Finding | None:
    """The first error of the innermost layer that failed: what says the cause, else an error in a tool's own words,
    else what make or ninja say of their step. None where the log has no such line."""
    if cause is not None and cause.weight is Weight.SAYS:
        return _whole_message(cause, reading.findings)
    for among in by_step(reading, facts):
        errors = [each for each in among if each.weight in (Weight.HINTS, Weight.GUESSES, Weight.SHOWS)]
        inner = [each for each in errors if not is_wrapper(each) and not _around_output(each, among)]
        if (first := innermost(inner or errors)) is not None:
            if cause is not None and layer_of(cause.entry) <= layer_of(first.entry):
                return _whole_message(cause, reading.findings)
            return _behind(first, reading, among)
    driver = _step_of(each for each in reading.findings if each.weight is Weight.TRAILS)
    return None if driver is None else said_near(reading, driver.line) or _named_above(driver, reading)


def _whole_message(cause: Finding, findings: Sequence[Finding]) -> Finding:
    """Of a cause that is a line of CMake's message: the message, which begins with where it was sent from."""
    below = (each for each in findings if each.entry == CMAKE_SAID and 0 < cause.line - each.line <= CHAIN_LINES)
    return next((each for each in below if f": {cause.text}" in each.text), cause)


# -- nearer to what happened than an error ---------------------------------------------------------------------------


def _behind(found: Finding, reading: Reading, among: Sequence[Finding]) -> Finding:
    """What an error wraps, quotes or names as its cause; the error itself where it does not."""
    if is_wrapper(found):
        # A wrapper alone: what a tool said in words that nobody knows stands beside it.
        said = said_near(reading, found.line, reasons_alone=True) or _of_step_before(reading, found)
    elif found.entry in EXCEPTIONS:
        said = _of_exception_before(found, reading)
    else:
        said = _in_quoted_output(found, reading)
    return said or _above_chain(found, reading) or _end_of_chain(found, among)


def _of_exception_before(found: Finding, reading: Reading) -> Finding | None:
    """Of an exception that another one caused: that one, though nobody knows its name."""
    kept = KeptLines(reading)
    first = raised(kept.above(found.line))
    told = first is not None and ": " in first.text and any(each.text == CAUSED for each in kept.all)
    return shown(first) if first is not None and told else None


def _in_quoted_output(found: Finding, reading: Reading) -> Finding | None:
    """Of a message that quotes the output of a program: the first line of that which speaks of an error."""
    kept = KeptLines(reading)
    quotes = next((each.line for each in kept.all if each.line >= found.line and _QUOTES.search(each.text)), None)
    if quotes is None or quotes - found.line > LINES_TO_QUOTED:
        return None
    within = [each for each in kept.below(quotes) if each.line <= quotes + NEAR and not wraps(each.text)]
    return next((shown(each) for each in within if speaks_of_failure(each.text)), None)


def _around_output(found: Finding, findings: Sequence[Finding]) -> bool:
    """A cause that is named right below what pip handed on of a build, whose error is the inner one."""
    ends = (each.line for each in findings if each.entry == HANDED_ON)
    return found.entry == CHAIN and any(0 < found.line - end <= CHAIN_LINES for end in ends)


def _above_chain(found: Finding, reading: Reading) -> Finding | None:
    """Of a chain of causes that says no more than that a program failed: what cargo says above it of which package."""
    above = KeptLines(reading).above(found.line)[-1:]
    cargos = found.entry == CHAIN and is_wrapper(found)
    return next((shown(each) for each in above if cargos and _CARGOS.match(each.text)), None)


def _end_of_chain(found: Finding, findings: Sequence[Finding]) -> Finding:
    """The last of the causes that are named right below an error, or the error that its own message hands on: each is
    nearer to what happened."""
    if found.weight is not Weight.SHOWS:
        return found
    last = found
    for each in findings:
        near_by = each.entry == CHAIN and 0 < each.line - last.line <= CHAIN_LINES
        if near_by and not is_wrapper(each) and not _around_output(each, findings):
            last = each
    return _within_message(found, findings) if last is found else last


def _within_message(found: Finding, findings: Sequence[Finding]) -> Finding:
    """Of a message that begins with nothing, or with warnings: the error in it."""
    if found.entry != MESSAGE:
        return found
    near = (each for each in findings if 0 < each.line - found.line <= CHAIN_LINES and each.text in found.text)
    return next((each for each in near if _EMPTY.search(found.text.partition(each.text)[0])), found)


# -- steps of build tools --------------------------------------------------------------------------------------------


def _step_of(trails: Iterable[Finding]) -> Finding | None:
    """The innermost step that failed: of what wraps a whole build, the build tool's that stands above it."""
    numbered = list(trails)
    step = innermost(numbered)
    if step is None or not is_wrapper(step):
        return step
    return innermost(each for each in numbered if each.line < step.line and not is_wrapper(each)) or step


def _of_step_before(reading: Reading, wrapper: Finding) -> Finding | None:
    """Of a wrapper alone: the step that a build tool named above it as failed, or what stands right above that."""
    if wrapper.entry == CHAIN:
        return None
    step = _step_of(
        each for each in reading.findings if each.weight is Weight.TRAILS and 0 < wrapper.line - each.line <= NEAR
    )
    return None if step is None else said_near(reading, step.line) or step


def _named_above(driver: Finding, reading: Reading) -> Finding:
    """Of a bare number: the line above it, which says whose it is."""
    above = Quote(line=driver.line - 1, text=KeptLines(reading).text(driver.line - 1))
    return shown(above) if _BARE_EXIT.fullmatch(driver.text) and wraps(above.text) else driver
