"""The output scanner: where a build has failed, what the catalogue of texts knows of what it printed.

Covers: stdout and stderr, or both as one; findings with the time when their lines came, and the last lines.
Does *not* cover: passing the output on (``ui.screen``), or what follows from the findings (``diagnose``): a text
alone is no evidence.

To listen costs next to nothing while all goes well: what was printed last is kept as it came, and read only when the
build has failed. What must make room for more is read then if it looks like trouble.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable

from builddoctor.core.events import OutputFinding, OutputTail
from builddoctor.core.verdict import Finding
from builddoctor.diagnose.catalogue import load_catalogue
from builddoctor.diagnose.log_scanner import Reading, Scanner
from builddoctor.trace.masking import mask_argv

KEPT_BYTES = 4 << 20
"""of each stream"""

PIECE_BYTES = 64 << 10
PIECE_S = 0.5
"""What is kept together: no more than this, and no longer than that."""

MOST_SAID = 40
MOST_OLD = 400
"""findings of what was not kept"""

LAST_LINES = 30
MOST_NAMED = 3

TROUBLE = (b"rror:", b"ERROR", b"Error ", b"FAILED", b"fatal", b"illed", b"No space", b"emory", b"annot ", b"Traceback")
"""Words of which at least one is in nearly everything that says why a build failed."""

_PATH = re.compile(r"(?<![\w.])/[^\s'\"`:,;()]+")

Listener = Callable[[bytes], None]


class OutputScanner:
    """All that one build prints. ``listener`` gives the function that takes a stream's bytes, in any one thread.

    That function never raises: what it cannot make sense of is not listened to any longer.
    """

    def __init__(self, at_s: Callable[[], float]) -> None:
        self._at_s = at_s
        self._streams: list[_Stream] = []
        self.named: list[str] = []
        """folders that a line names which says that there was no room; known at the end"""

    def listener(self, name: str) -> Listener:
        """For ``stdout`` or ``stderr``; empty where both are one."""
        stream = _Stream(name, self._at_s)
        self._streams.append(stream)
        return stream.hear

    def end(self, *, failed: bool) -> list[OutputFinding | OutputTail]:
        """Nothing comes any more, in any thread: what was found, where the build has failed."""
        streams, self._streams = self._streams, []
        if not failed:
            return []
        said: list[OutputFinding] = []
        tails: list[OutputTail] = []
        for stream in streams:
            reading = stream.read()
            if reading is not None:
                said += (_as_said(at_s, stream.name, found) for at_s, found in stream.found if found.weight != "trails")
                tails.append(_as_tail(self._at_s(), stream.name, reading))
        said.sort(key=lambda each: each.at_s)
        # The cause is among the first, the rest is there to be looked at.
        for each in said:
            if each.verdict == "disk-full" and (path := _PATH.search(each.text)) is not None:
                self.named = [*self.named, os.path.dirname(path[0])][:MOST_NAMED]
        return [*_chosen(said), *tails]


class _Stream:
    def __init__(self, name: str, at_s: Callable[[], float]) -> None:
        self.name = name
        self.found: list[tuple[float, Finding]] = []
        self._at_s = at_s
        self._pieces: deque[tuple[float, bytearray]] = deque()
        self._held = 0
        self._scanner: Scanner | None = None
        self._deaf = False

    def hear(self, data: bytes) -> None:
        at_s = self._at_s()
        if self._pieces and len(self._pieces[-1][1]) < PIECE_BYTES and at_s < self._pieces[-1][0] + PIECE_S:
            self._pieces[-1][1].extend(data)
        else:
            self._pieces.append((at_s, bytearray(data)))
        self._held += len(data)
        while self._held > KEPT_BYTES and len(self._pieces) > 1:
            self._scan(*self._pieces.popleft(), everything=False)

    def read(self) -> Reading | None:
        """All that was kept; None where nothing was printed, or it could not be read."""
        while self._pieces:
            self._scan(*self._pieces.popleft(), everything=True)
        if self._scanner is None:
            return None
        reading = self._scanner.finish()
        # What stands in a last line without an end.
        known = {(finding.entry, finding.line) for _, finding in self.found}
        last = [finding for finding in reading.findings if (finding.entry, finding.line) not in known]
        self.found += [(self._at_s(), finding) for finding in last]
        return reading

    def _scan(self, at_s: float, piece: bytearray, *, everything: bool) -> None:
        self._held -= len(piece)
        if self._deaf:
            return
        data = bytes(piece)
        if not everything and not any(word in data for word in TROUBLE):
            # As many lines, so that the numbers of those that follow are right.
            data = b"\n" * data.count(b"\n")
        try:
            if self._scanner is None:
                self._scanner = Scanner(load_catalogue())
            findings = self._scanner.feed(data)
        except Exception:  # noqa: BLE001 - whatever it is, what the build prints has to go on
            self._deaf, self._scanner = True, None
            return
        if everything or len(self.found) < MOST_OLD:
            self.found += [(at_s, finding) for finding in findings]


def _chosen(said: list[OutputFinding]) -> list[OutputFinding]:
    """The first ones and the last, where there are too many."""
    half = MOST_SAID // 2
    return said if len(said) <= MOST_SAID else [*said[:half], *said[-half:]]


def _masked(text: str) -> str:
    """What is printed may be a command: its passwords are masked as those of the build's own command line are."""
    return " ".join(mask_argv(text.split(" ")))


def _as_said(at_s: float, stream: str, finding: Finding) -> OutputFinding:
    return OutputFinding(
        at_s=at_s,
        entry=finding.entry,
        verdict=finding.verdict or "",
        weight=finding.weight,
        line=finding.line,
        text=_masked(finding.text),
        captured={name: _masked(value) for name, value in finding.captured},
        stream=stream,
    )


def _as_tail(at_s: float, stream: str, reading: Reading) -> OutputTail:
    lines = [_masked(line) for line in reading.tail[-LAST_LINES:]]
    return OutputTail(at_s=at_s, lines=lines, stream=stream, read=reading.lines, failing=reading.failing)
