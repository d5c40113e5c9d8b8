"""What all parts of the page are written with."""

from __future__ import annotations

import html
import re

from builddoctor.trace.picture import Run
from builddoctor.units import one_line


def text(value: object) -> str:
    """Fit to stand between tags and in quotes; control characters are blanks."""
    return html.escape(one_line(str(value)), quote=True)


def breakable(name: str) -> str:
    """A path that may be broken behind its slashes and underscores, and not within words."""
    return re.sub(r"([/_])", r"\1<wbr>", text(name))


def plural(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def phase_name(run: Run) -> str:
    return f"{run.kind} {run.arch}".strip()
