"""Which of the lines that a build printed says why it failed. Pure.

Covers: the findings that a trace holds. Does *not* cover: finding them (``diagnose.scanning``), or whether they are to
be believed: ``diagnose.rules`` holds them against the counters.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from builddoctor.diagnose.catalogue import Entry, load_catalogue
from builddoctor.model.verdict import VerdictName, verdict_name
from builddoctor.trace.records import Said
from builddoctor.trace.report import TraceReport

EARLY_S = 2.0
"""A line may be read before the gate has told of the end of its compiler, or much later: ninja keeps it until then."""


class Spoken(msgspec.Struct, frozen=True, kw_only=True):
    """The line, and what the catalogue has on it."""

    entry: str
    verdict: VerdictName
    says: bool
    """the text alone tells the cause; False: it fits several"""
    text: str
    line: int
    stream: str = ""
    cause: str = ""
    """the entry's sentence; empty where the catalogue does not know it any more"""
    captured: tuple[tuple[str, str], ...] = ()

    @property
    def quoted(self) -> str:
        where = f"line {self.line} of {self.stream}" if self.stream else f"line {self.line}"
        return f"the build printed, {where}: {self.text}"


def spoken(report: TraceReport, died_at_s: float | None) -> Spoken | None:
    """The first line that says the cause, of those after ``died_at_s`` if there are any; else the first that hints."""
    known = [said for said in report.said if said.verdict and said.weight in ("says", "hints")]
    late = [said for said in known if died_at_s is not None and said.at_s >= died_at_s - EARLY_S]
    after = [said for said in known if _at_failure(report, said)]
    for pool in (late, after, known):
        for weight in ("says", "hints"):
            found = next((said for said in pool if said.weight == weight), None)
            if found is not None:
                return _as_spoken(found)
    return None


def entry_of(name: str) -> Entry | None:
    """What the catalogue has under a name."""
    return _by_name().get(name)


@lru_cache(maxsize=1)
def _by_name() -> dict[str, Entry]:
    return {entry.name: entry for entry in load_catalogue()}


def _at_failure(report: TraceReport, said: Said) -> bool:
    """At the first step that the build tool says failed, or after it."""
    failing = next((tail.failing for tail in report.tails if tail.stream == said.stream), None)
    return failing is not None and said.line >= failing


def _as_spoken(said: Said) -> Spoken:
    entry = entry_of(said.entry)
    return Spoken(
        entry=said.entry,
        verdict=verdict_name(said.verdict),
        says=said.weight == "says",
        text=said.text,
        line=said.line,
        stream=said.stream,
        cause="" if entry is None else entry.cause,
        captured=tuple(said.captured.items()),
    )
