"""A log of any length, read once in a stream: what of it the catalogue knows, where it failed, how it ended.

Covers: chunks of any size (the same findings whatever they are, but for entries with ``below``: those lines must be in
the same chunk), a few findings of each entry with a count, the last lines; the lines in which build tools themselves
say that a step failed or that all went well. Memory is bounded by one chunk. Does *not* cover: what follows from the
findings (``diagnose.from_log``). Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cache, cached_property

import msgspec

from builddoctor.core.units import one_line
from builddoctor.core.verdict import Finding, Weight
from builddoctor.diagnose.catalogue import Entry
from builddoctor.diagnose.log_lines import (
    BLOCK,
    TYPED_AT,
    Lines,
    Quote,
    Sieve,
    clean,
    starts_from_the_end,
    starts_of_lines,
    text_of,
    without_sequences,
)
from builddoctor.trace.masking import mask_line

MOST_KEPT = 5
"""findings of an entry: the first four, and the last"""

MOST_COUNTED = 1000
"""lines of an entry; it is not looked for any longer then"""

LINES_BEFORE = 6
"""lines in which what must stand before (``Entry.after``) is looked for"""
LINES_BELOW, LONGEST_BELOW = 3, 4096
"""lines, and bytes, in which what must stand after (``Entry.below``) is looked for, in the same block"""

MESSAGE_LINES, MESSAGE_BYTES = 5, 2048
"""of a message that goes on below its first line (``Entry.goes_on``), as CMake's"""
INDENTED_LINES = 12
"""of one that is indented, and has empty lines within"""

LEAST_QUOTED = 3
"""ends of lines in one line that is the literal of a program"""

QUOTED_CODE = "raise "
"""a line of source in a traceback: what it says stands below once more, as the exception's own"""

TAIL = 40
NEAR_STEP = 20
"""lines before the first that says that a step failed, and after it: what is said of it stands there"""
LONGEST_SHOWN = 400

BRANCH, PLAIN_BRANCH = "╰─▶ ".encode(), b"`-> "
"""before the last cause in a tree of them: what is in front of every line is taken off before patterns see it"""
BRANCH_ENTRY = "chain-said"
MOST_BRANCHES = 8


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What a log said."""

    lines: int
    findings: tuple[Finding, ...] = ()
    """in the order of their lines"""
    counts: tuple[tuple[str, int], ...] = ()
    """entry and lines that it knows; MOST_COUNTED: that many or more"""
    failing: int | None = None
    """line of the first step that failed: ninja's ``FAILED:``, make's ``***``"""
    succeeded: int | None = None
    """line of the last success"""
    ok: bool = False
    """a build succeeded, and nothing failed after"""
    tail: tuple[str, ...] = ()
    """the last lines that are not empty, cleaned and masked"""
    tail_numbers: tuple[int, ...] = ()
    """of those lines"""
    wrong: Quote | None = None
    """the first line that says of anything that it went wrong"""
    tried: frozenset[int] = frozenset()
    """lines of findings about files that were compiled to try something out"""
    near: tuple[Quote, ...] = ()
    """lines that are not empty, around the first that a build tool says of a step that failed"""

    def count(self, entry: str) -> int:
        """Lines that an entry knows."""
        return dict(self.counts).get(entry, 0)


class Scanner:
    """Fed with the bytes of one log."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._known = [_Known(entry) for entry in entries]
        self._of_word: dict[bytes, list[int]] = {}
        for place, known in enumerate(self._known):
            for trigger in known.entry.triggers:
                self._of_word.setdefault(trigger.encode(), []).append(place)
        self._step, self._failure, self._success = failed_step(), failure(), success()
        # The words of landmarks are searched by the same sieve.
        self._sieve = Sieve(
            [*self._of_word, *self._step.words, *self._failure.words, *self._success.words, BRANCH, PLAIN_BRANCH]
        )
        self._lines = Lines()
        self._count = 0
        self._before: list[bytes] = []
        self._open: list[_Open] = []
        self._failing: int | None = None
        self._failed = 0
        self._wrong: Quote | None = None
        self._succeeded = 0
        self._tried: set[int] = set()
        self._near: list[tuple[int, bytes]] = []
        self._near_due: int | None = None
        self._branches: list[Finding] = []

    def feed(self, data: bytes) -> list[Finding]:
        """The next bytes; gives back what is new of the lines that became whole with them."""
        found: list[Finding] = []
        for start in range(0, len(data), BLOCK):
            found += self.scan(without_sequences(self._lines.feed(data[start : start + BLOCK])))
        return found

    def scan(self, block: bytes) -> list[Finding]:
        """The next of ``log_lines.Blocks``, in place of bytes to ``feed``; gives back what is new."""
        if not block:
            return []
        found = self._continued(block)
        words = self._sieve.texts_in(block)
        if words:
            found += self._entries(block, words)
            self._landmarks(block, words)
        if self._near_due is None:
            self._look_around(block, found)
        elif self._near_due:
            self._near_after(block, 0, self._count + 1)
        self._count += block.count(b"\n")
        recent = block.rsplit(b"\n", TAIL + 1)[-TAIL - 1 : -1]
        self._before = [*self._before, *recent][-TAIL:]
        return found

    def finish(self) -> Reading:
        """All of it, with the last line where it has no end."""
        rest = self._lines.rest()
        if rest:
            self.scan(without_sequences(rest if rest.endswith(b"\n") else rest + b"\n"))
        for each in self._open:
            each.known.took(each.finding())
        self._open = []
        kept = [finding for known in self._known for finding in known.kept]
        told = {finding.line for finding in kept}
        branches = [finding for finding in self._branches if finding.line not in told]
        findings = sorted([*kept, *branches], key=lambda each: each.line)
        last_bad = max([self._failed, *(finding.line for finding in findings)])
        last = enumerate(reversed(self._before))
        tail = [(self._count - behind, text) for behind, line in last if (text := clean(line))]
        edges = [number for number, text in tail if is_last_edge(text)]
        succeeded = max([self._succeeded, *edges])
        return Reading(
            lines=self._count,
            findings=tuple(findings),
            counts=tuple((known.entry.name, known.count) for known in self._known if known.count),
            failing=self._failing,
            succeeded=succeeded or None,
            ok=succeeded > last_bad,
            tail=tuple(_shortened(text) for _, text in reversed(tail)),
            tail_numbers=tuple(number for number, _ in reversed(tail)),
            wrong=self._wrong,
            tried=frozenset(self._tried),
            near=tuple(Quote(line=line, text=_shortened(text)) for line, raw in self._near if (text := clean(raw))),
        )

    def _entries(self, block: bytes, words: set[bytes]) -> list[Finding]:
        places: dict[int, set[int]] = {}
        for word in words & self._of_word.keys():
            for start in starts_of_lines(block, word):
                places.setdefault(start, set()).update(self._of_word[word])
        found: list[Finding] = []
        line, counted = self._count + 1, 0
        for start in sorted(places):
            line, counted = line + block.count(b"\n", counted, start), start
            raw = block[start : block.index(b"\n", start)]
            text = text_of(raw)
            if text.startswith(QUOTED_CODE):
                continue
            quoted = _quoted_lines(text)
            for place in sorted(places[start]):
                known = self._known[place]
                if known.count >= MOST_COUNTED:
                    continue
                if match := next(filter(None, map(known.pattern.search, quoted)), None):
                    around = self._fits(known, block, start)
                    if around is None:
                        continue
                    if self._tries(block, start):
                        self._tried.add(line)
                    if known.entry.goes_on:
                        self._open.append(_Open(known, match, line, match.string, _indent(raw)))
                        found += self._continued(block[block.index(b"\n", start) + 1 :], self._open[-1:])
                        break
                    found += known.took(_finding(known.entry, match, line, match.string, around))
                    if known.count == MOST_COUNTED:
                        self._forget(place)
                    break
        return found

    def _look_around(self, block: bytes, found: Sequence[Finding]) -> None:
        """The lines around the first that says that a step failed, where this block has it."""
        trails = (finding.line for finding in found if finding.weight is Weight.TRAILS)
        step = min([*trails, *([] if self._failing is None else [self._failing])], default=None)
        if step is None:
            return
        start = 0
        for _ in range(step - self._count - 1):
            start = block.index(b"\n", start) + 1
        before = [*self._before, *block[:start].rsplit(b"\n", NEAR_STEP + 1)[-NEAR_STEP - 1 : -1]][-NEAR_STEP:]
        self._near = [(step - behind, line) for behind, line in enumerate(reversed(before), 1)][::-1]
        self._near_due = NEAR_STEP + 1
        self._near_after(block, start, step)

    def _near_after(self, block: bytes, start: int, line: int) -> None:
        due = self._near_due or 0
        lines = block[start:].split(b"\n", due)[: min(due, block.count(b"\n", start))]
        self._near += [(line + behind, text) for behind, text in enumerate(lines)]
        self._near_due = due - len(lines)

    def _continued(self, below: bytes, of: Sequence[_Open] | None = None) -> list[Finding]:
        """Messages that go on in these lines; gives back those that are whole now."""
        found: list[Finding] = []
        for each in list(self._open if of is None else of):
            each.below += below[: MESSAGE_BYTES - len(each.below)]
            if each.is_whole:
                self._open.remove(each)
                found += each.known.took(each.finding())
        return found

    def _fits(self, known: _Known, block: bytes, start: int) -> list[re.Match[str]] | None:
        """What must stand before and after does: what was found after it; None where one of them does not."""
        if known.after and not self._preceded(known.after, block, start):
            return None
        below = self._followed(known.below, block, start) if known.below else None
        return None if known.below and below is None else [below] if below is not None else []

    def _preceded(self, after: re.Pattern[str], block: bytes, start: int) -> bool:
        """One of the lines before has what must stand before."""
        near = block[:start].rsplit(b"\n", LINES_BEFORE + 1)[-LINES_BEFORE - 1 : -1]
        lines = [*self._before, *near][-LINES_BEFORE:]
        return any(after.search(text_of(line)) for line in lines)

    def _followed(self, below: re.Pattern[str], block: bytes, start: int) -> re.Match[str] | None:
        """What the first of the lines after that has what must stand there says."""
        near = block[start : start + LONGEST_BELOW].split(b"\n", LINES_BELOW + 1)[1 : LINES_BELOW + 1]
        return next(filter(None, (below.search(text_of(line)) for line in near)), None)

    def _tries(self, block: bytes, start: int) -> bool:
        """The command right before compiles a file that was made to try something out, as a check for a flag does."""
        near = block[max(0, start - LONGEST_BELOW) : start].split(b"\n")[:-1]
        lines = [*self._before[-LINES_TRIED:], *near][-LINES_TRIED:]
        command = next((line for line in reversed(lines) if _COMPILES.search(line)), b"")
        return _TRIES.search(command) is not None

    def _forget(self, place: int) -> None:
        """No longer look for what was found often enough."""
        needed = {*self._step.words, *self._failure.words, *self._success.words}
        for word, places in list(self._of_word.items()):
            if place in places:
                places.remove(place)
            if not places:
                del self._of_word[word]
                if word not in needed:
                    self._sieve.without(word)

    def _landmarks(self, block: bytes, words: set[bytes]) -> None:
        def line(start: int) -> int:
            return self._count + 1 + block.count(b"\n", 0, start)

        if self._failing is None and (start := self._step.first(block, words)) is not None:
            self._failing = line(start)
        for branch in {BRANCH, PLAIN_BRANCH} & words:
            self._last_causes(block, branch, line)
        if (start := self._failure.last(block, words)) is not None:
            if self._wrong is None and (first := self._failure.first(block, words)) is not None:
                text = clean(block[first : block.index(b"\n", first)])[:LONGEST_SHOWN]
                self._wrong = Quote(line=line(first), text=text)
            self._failed = line(start)
        if (start := self._success.last(block, words)) is not None:
            self._succeeded = line(start)

    def _last_causes(self, block: bytes, branch: bytes, number: Callable[[int], int]) -> None:
        for start in starts_of_lines(block, branch):
            if len(self._branches) == MOST_BRANCHES:
                return
            text = text_of(block[start : block.index(b"\n", start)])
            if block[start:].lstrip(b" \t|").startswith(branch) and not _NO_CAUSE.search(text):
                self._branches.append(
                    Finding(
                        entry=BRANCH_ENTRY,
                        verdict=None,
                        weight=Weight.SHOWS,
                        line=number(start),
                        text=_shortened(mask_line(one_line(text))),
                    )
                )


LINES_TRIED = 4
"""from a command to what its compiler says first"""
_COMPILES = re.compile(rb" -c .| /c .|\bcl(?:\.exe)? ")
_TRIES = re.compile(rb"[ /\\](?:tmp[\w]{6,10}|_?conf(?:ig)?test)\.(?:cpp|cxx|cc|c)\b")

_NO_CAUSE = re.compile(r"^(?:Call to `.{1,200}` failed(?! ?: \w)|.{0,200}\bexit (?:code|status)\b|See above)")


class _Known:
    """An entry, and what was found of it so far."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.count = 0
        self.kept: list[Finding] = []

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        # Compiled where a line has one of the triggers: of most entries none has.
        return _compiled(self.entry.pattern)

    @cached_property
    def after(self) -> re.Pattern[str] | None:
        return _compiled(self.entry.after) if self.entry.after else None

    @cached_property
    def below(self) -> re.Pattern[str] | None:
        return _compiled(self.entry.below) if self.entry.below else None

    def took(self, finding: Finding) -> list[Finding]:
        self.count += 1
        if len(self.kept) == MOST_KEPT:
            self.kept[-1] = finding
            return []
        self.kept.append(finding)
        return [finding]


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Kept for the next log: Python itself keeps fewer patterns than the catalogue has."""
    return re.compile(pattern)


_QUOTED_CODE = re.compile(r"(?i)\b[a-z]:\\|replace\(|printf|\becho ")


def _quoted_lines(text: str) -> list[str]:
    """A line, or those that it quotes as a literal of a program: an exception's message in a list, EasyBuild's; what a
    program on Windows printed, in no path of which both marks stand."""
    if text.count(r"\r\n") >= LEAST_QUOTED:
        return [each.strip() for each in text.split(r"\r\n")]
    if text.count(r"\n") < LEAST_QUOTED or _QUOTED_CODE.search(text):
        return [text]
    return [each.strip() for each in text.split(r"\n")]


END_OF_OUTPUT = "[end of output]"
"""pip's own, right below what a build said"""
_RULER = re.compile(r"[=*#-]{8,}\Z")


class _Open:
    """A finding whose message goes on under its line: as far as it is indented, else up to an empty one."""

    def __init__(self, known: _Known, match: re.Match[str], line: int, text: str, indent: int) -> None:
        self.known = known
        self.below = b""
        self._match = match
        self._line = line
        self._text = text
        self._indent = indent

    @property
    def is_whole(self) -> bool:
        """No more of what comes belongs to it."""
        return len(self.below) >= MESSAGE_BYTES or self.below.count(b"\n") >= INDENTED_LINES or self._lines()[1]

    def finding(self) -> Finding:
        """With what there is of it."""
        below = self._lines()[0]
        message = " ".join(below).partition(" Call Stack (most recent call first)")[0]
        matches = [match for text in below if (match := self.known.pattern.search(text))]
        return _finding(self.known.entry, self._match, self._line, f"{self._text} {message}".rstrip(), matches)

    def _lines(self) -> tuple[list[str], bool]:
        """Those of the message, and whether something that is no longer of it stands behind them; rulers are none."""
        raw = self.below.split(b"\n")[:INDENTED_LINES]
        lines = [text_of(line) for line in raw]
        texts = ["" if text == END_OF_OUTPUT or _RULER.match(text) else text for text in lines]
        first = next((place for place, text in enumerate(texts) if text), len(texts))
        inner = [not text or _indent(line) > self._indent for line, text in zip(raw, texts, strict=True)]
        if all(inner[: first + 1]) and first < len(texts):
            last = next((place for place, deeper in enumerate(inner) if not deeper), len(texts))
            return [text for text in texts[first:last] if text], last < len(texts)
        ends = (place for place, text in enumerate(texts) if place > first and (not text or _BEGINS.match(text)))
        typed = (place for place, text in enumerate(texts) if _TYPED.match(text))
        last = min(next(ends, len(texts)), next(typed, len(texts)), MESSAGE_LINES)
        return texts[first:last], last + 1 < len(texts)


_BEGINS = re.compile(r"thread '|note: |warning: |error(?:\[|: )|stack backtrace:$")
"""what follows a message of Rust's with no empty line between"""
_TYPED = re.compile(rf"{TYPED_AT} ?[\w./\\~-]")
"""a command that was typed next: it is of no message"""


def _indent(line: bytes) -> int:
    """Blanks right in front of what the tool itself wrote: behind a time, or what else stands around it."""
    text = text_of(line)[:BEGINNING].encode()
    front = line[: line.find(text)] if text in line else line[: len(line) - len(line.lstrip(b" \t"))]
    return len(front) - len(front.rstrip(b" \t"))


BEGINNING = 20
"""characters by which a text is found in its line"""


def _finding(entry: Entry, match: re.Match[str], line: int, text: str, below: Sequence[re.Match[str]] = ()) -> Finding:
    """``below``: where the lines of the message that follow say something of their own; the first that does counts."""
    said = {name: value for each in (*reversed(below), match) for name, value in each.groupdict().items() if value}
    # Some messages go on below: "more than one operator applies:".
    groups = ((name, one_line(mask_line(value)).rstrip(": ")) for name, value in said.items())
    return Finding(
        entry=entry.name,
        verdict=entry.verdict,
        weight=entry.weight,
        line=line,
        text=_shortened(mask_line(one_line(text))),
        captured=tuple((name, value[:LONGEST_SHOWN]) for name, value in groups),
    )


def _shortened(text: str) -> str:
    """Without its middle, where it is too long: a command that died has the reason at its end."""
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 120]} … {text[-117:]}"


# -- landmarks -------------------------------------------------------------------------------------------------------


class Landmark:
    """A kind of line: what it looks like, and the words without which it is none."""

    def __init__(self, words: Iterable[str], *patterns: str) -> None:
        self.words = tuple(word.encode() for word in words)
        self._pattern = re.compile("|".join(f"(?:{pattern})" for pattern in patterns))

    def is_it(self, text: str) -> bool:
        """Of a cleaned line."""
        return self._pattern.search(text) is not None

    def first(self, block: bytes, texts: Collection[bytes]) -> int | None:
        """Where the first such line of a block of whole lines begins; ``texts`` are those that the block holds."""
        begins = [starts_of_lines(block, word) for word in self.words if word in texts]
        return min((start for each in begins if (start := self._one(block, each)) is not None), default=None)

    def last(self, block: bytes, texts: Collection[bytes]) -> int | None:
        """Where the last one begins."""
        ends = [starts_from_the_end(block, word) for word in self.words if word in texts]
        return max((start for each in ends if (start := self._one(block, each)) is not None), default=None)

    def _one(self, block: bytes, starts: Iterator[int]) -> int | None:
        return next((start for start in starts if self.is_it(text_of(block[start : block.index(b"\n", start)]))), None)


@cache
def failed_step() -> Landmark:
    """A step of a build tool that failed; the first one is where to look, the others are often only in its way."""
    return Landmark(
        ("FAILED: ", ": *** [", "returned a non-zero code", "did not complete successfully", "died due to signal"),
        r"^FAILED: ",
        r"^(?:[a-z]*make|[\w./-]{1,80}/make)(?:\[\d{1,4}\])?: \*\*\* \[",
        r"^The command (?:'.*'|\[.*\]) returned a non-zero code: \d",
        r"^(?:ERROR: )?(?:failed to solve: )?process \".*\" did not complete successfully: ",
        r"^nvcc error +: '",
    )


_NVIDIAS = ("nvcc", "ptxas", "fatbinary", "nvlink", "cicc", "cudafe++")


@cache
def failure() -> Landmark:
    """Anything that went wrong, whatever it was: after it, a success that was said earlier counts no more."""
    return Landmark(
        [
            *(
                "rror: ",
                "rror : ",
                "ERROR: ",
                "ERROR : ",
                "fatal: ",
                "FATAL: ",
                "FAILED: ",
                ": *** [",
                "Killed",
                "Traceback (most recent",
            ),
            *(f"{tool} {how} " for tool in _NVIDIAS for how in ("error", "fatal")),
            *("exit code ", "exit code: ", "exit status ", "exit status: ", ": ExitFailure "),
            *("CMake Error ", "CMake Error:", "a non-zero code: ", " build stopped: ", "BUILD FAILED"),
            *("returncode=", "failed with a nonzero exit code", "non-zero status: "),
        ],
        r"^(?:[A-Za-z]{1,40}\.){0,8}[A-Za-z]{0,40}Error: ",
        r"^(?:==> )?(?:ERROR|error|fatal|FATAL): ",
        r"^[a-z][a-z0-9.+-]{1,40}: (?:Error|ERROR): ",
        r"^(?:ERROR|Error|error) : \S",
        r"^(?:\*\* )?BUILD FAILED\b",
        r": (?:fatal |internal compiler |catastrophic )?error: ",
        rf"^(?:{'|'.join(map(re.escape, _NVIDIAS))}) (?:fatal|error) ",
        r"^FAILED: ",
        r": \*\*\* \[.{1,400}\] (?:Error \d|Killed)",
        r"^Traceback \(most recent call last\)",
        r"^Killed\b|: \d+ Killed ",
        r"(?:exit code|exit status):? -?[1-9]",
        r": ExitFailure -?[1-9]",
        r"^CMake Error[ :]",
        r"returned a non-zero code: \d",
        r"\bexited with non-zero status: [1-9]",
        r"^ninja: build stopped: ",
        r"\bCompletedProcess\(.{1,2000}\breturncode=-?[1-9]",
        r"^Command [A-Z]\w{2,60} failed with a nonzero exit code",
    )


@cache
def success() -> Landmark:
    """A build, or a step that ends one, went well."""
    return Landmark(
        [
            *("Successfully built ", "Successfully installed ", "Successfully tagged ", "Build succeeded"),
            *("Finished processing dependencies for ", "BUILD SUCCESS", "] Linking ", "] Built target "),
            *(": no work to do.", "naming to "),
        ],
        r"^Successfully (?:built|installed|tagged) ",
        r"^Finished processing dependencies for ",
        r"^(?:\*\* )?(?:Build succeeded|BUILD SUCCESS)",
        r"^\[(\d{1,6})/\1\] Linking ",
        r"^\[100%\] Built target ",
        r"^ninja: no work to do\.",
        r"^naming to .* done$",
    )


_LAST_EDGE = re.compile(r"^\[(\d{1,6})/(\d{1,6})\] ")


def is_last_edge(text: str) -> bool:
    """ninja's last of so many: only at the end of a log does it say anything."""
    edge = _LAST_EDGE.match(text)
    return edge is not None and edge[1] == edge[2]
