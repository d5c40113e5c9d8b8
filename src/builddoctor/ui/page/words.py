"""What the page says in words on its top: how the build went, why, and what to do. Pure."""

from __future__ import annotations

from typing import Literal

import msgspec

from builddoctor.core.events import BuildResult
from builddoctor.core.phase import kind_words
from builddoctor.core.units import format_clock, format_gib, format_mib
from builddoctor.core.verdict import Diagnosis, Fix
from builddoctor.trace.report import TraceReport
from builddoctor.ui.held_back import held_back_words

State = Literal["good", "bad", "torn"]


class Words(msgspec.Struct, frozen=True, kw_only=True):
    """Two sentences and a ladder."""

    state: State
    label: str
    """a few words: ``Built``, ``Failed: runaway``, ``Cut off``"""
    headline: str
    because: str
    time: str = ""
    """what it went for, and what would shorten it"""
    fixes: list[Fix] = []
    evidence: list[str] = []


def words_of(report: TraceReport, verdict: Diagnosis) -> Words:
    """``verdict`` is that of ``diagnose.from_trace.judge`` on the same report."""
    summary = report.summary
    took = format_clock(report.last_at_s if summary is None else summary.wall_s)
    title = report.header.title or "the build"
    if summary is not None and summary.result is BuildResult.OK:
        return Words(
            state="good",
            label="Built",
            headline=f"{title} built in {took}.",
            because=_how_close(report),
            time=_sentence(held) if (held := held_back_words(report)) else "",
        )
    if verdict.verdict is None:
        label = "Still running" if summary is None else "Interrupted"
        return Words(state="torn", label=label, headline=_sentence(verdict.why), because=_how_close(report))
    return Words(
        state="torn" if summary is None else "bad",
        label="Cut off" if summary is None else f"Failed: {verdict.verdict.replace('-', ' ')}",
        headline=_sentence(verdict.died),
        because=_sentence(verdict.why),
        fixes=list(verdict.fixes),
        evidence=list(verdict.evidence),
    )


def _how_close(report: TraceReport) -> str:
    """How near a build came to its limit, and the phase that held most."""
    largest = report.units[0].worst if report.units else None
    largest_phase = ""
    if largest is not None:
        what = kind_words(largest.kind, largest.arch)
        largest_phase = f"; the largest phase was {what} of {report.units[0].unit} with {format_mib(largest.peak_mib)}"
    return f"Compilers held at most {format_gib(report.peak_mib)} of {format_gib(report.limit_mib)} GiB{largest_phase}."


def _sentence(words: str) -> str:
    """With a capital where it begins with a plain word, and a full stop."""
    words = words.strip().rstrip(".")
    first = words.split(" ", 1)[0]
    return f"{words[:1].upper() + words[1:] if first.isalpha() and first.islower() and first not in _NAMES else words}."


_NAMES = ("cicc", "ptxas", "nvlink", "builddoctor")
"""These have no capital anywhere."""
