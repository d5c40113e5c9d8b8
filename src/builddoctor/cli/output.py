"""Printing for all commands: data to stdout, everything else to stderr."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable

from builddoctor.errors import BuildDoctorError


def print_error(error: BuildDoctorError) -> None:
    """What happened, and the next step."""
    print_notes([f"builddoctor: {error}", *([f"hint: {error.hint}"] if error.hint else [])])


def print_notes(lines: Iterable[str]) -> None:
    """Lines for a person, on stderr. A terminal that is gone is no error."""
    for line in lines:
        with contextlib.suppress(OSError, ValueError):
            print(line, file=sys.stderr, flush=True)  # noqa: T201


def print_data(text: str) -> None:
    """What was asked for, on stdout."""
    print(text)  # noqa: T201
