"""Printing for all commands: data to stdout, everything else to stderr."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterable

import msgspec

from builddoctor.errors import BuildDoctorError
from builddoctor.units import escaped, printable_tree

_LAYOUT = re.compile(r"([\n\t])")


def print_error(error: BuildDoctorError) -> None:
    """What happened, and the next step."""
    print_notes([f"builddoctor: {error}", *([f"hint: {error.hint}"] if error.hint else [])])


def print_notes(lines: Iterable[str]) -> None:
    """Lines for a person, on stderr. A terminal that is gone is no error.

    Of control characters only the end of a line and the tab get through: names of files may hold any.
    """
    for line in lines:
        clean = "".join(part if part in ("\n", "\t") else escaped(part) for part in _LAYOUT.split(line))
        with contextlib.suppress(OSError, ValueError):
            print(clean, file=sys.stderr, flush=True)  # noqa: T201


def print_data(text: str) -> None:
    """What was asked for, on stdout."""
    print(text)  # noqa: T201


def json_text(value: object, *, pretty: bool = False) -> str:
    """Structs as JSON; what is no UTF-8 in a file name stands there as an escape."""
    try:
        encoded = msgspec.json.encode(value)
    except UnicodeEncodeError:
        encoded = msgspec.json.encode(printable_tree(msgspec.to_builtins(value)))
    return (msgspec.json.format(encoded, indent=2) if pretty else encoded).decode()
