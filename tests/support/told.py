"""What is made of a whole trace, or of a whole log, in one call; the program takes both piece by piece."""

from __future__ import annotations

from collections.abc import Iterable

from builddoctor.core.events import BuildEvent
from builddoctor.diagnose.from_log import Explained, Explainer
from builddoctor.trace.analysis import fold
from builddoctor.trace.report import TraceReport
from builddoctor.trace.state import POINTS, BuildState


def digest(events: Iterable[BuildEvent], *, points: int = POINTS) -> TraceReport:
    """Events in order as a report."""
    return fold(events, BuildState(points=points)).report()


def explain(chunks: Iterable[bytes]) -> Explained:
    """The verdict of a log."""
    explainer = Explainer()
    for chunk in chunks:
        explainer.feed(chunk)
    return explainer.finish()
