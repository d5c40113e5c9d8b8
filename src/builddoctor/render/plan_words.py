"""Times and names as the page of a plan writes them. Pure."""

from __future__ import annotations

from builddoctor.render.signs import Signs
from builddoctor.units import format_clock, one_line


def span(time_s: float) -> str:
    """``0:42``, ``4:10`` or ``1:02:03``: minutes and seconds."""
    return format_clock(time_s)


def clean(text: str, signs: Signs) -> str:
    """A line that any terminal takes."""
    return signs.words(one_line(text))
