"""A log from its bytes to a verdict, in one stream: scanner, survey and judgement put together. Pure.

Covers: any text in chunks of any size; memory is bounded whatever the log's length.
Does *not* cover: opening files (``cli.explain``), traces (``diagnose.from_trace``).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from builddoctor.diagnose.catalogue import load_catalogue
from builddoctor.diagnose.from_text import judge_text
from builddoctor.diagnose.scanning import Scanner
from builddoctor.diagnose.survey import Survey
from builddoctor.model.verdict import Verdict


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """What was made of a text."""

    verdict: Verdict
    lines: int


class Explainer:
    """Fed with the bytes of one log."""

    def __init__(self) -> None:
        self._scanner = Scanner(load_catalogue())
        self._survey = Survey()

    def feed(self, data: bytes) -> None:
        """The next bytes."""
        self._scanner.feed(data)
        self._survey.feed(data)

    def finish(self) -> Explained:
        """The verdict."""
        reading = self._scanner.finish()
        return Explained(verdict=judge_text(reading, self._survey.finish()), lines=reading.lines)


def explain(chunks: Iterable[bytes]) -> Explained:
    """The verdict of a log."""
    explainer = Explainer()
    for chunk in chunks:
        explainer.feed(chunk)
    return explainer.finish()
