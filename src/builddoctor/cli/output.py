"""Printing for all commands: data to stdout, everything else to stderr."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
from collections.abc import Iterable

import msgspec
from rich.console import Console
from rich.text import Text

from builddoctor.errors import BuildDoctorError
from builddoctor.render.signs import UNICODE, signs_for
from builddoctor.units import escaped, printable_tree

LEAST_CELLS, USUAL_CELLS, MOST_CELLS = 40, 100, 400

_UNSEEN = re.compile("[\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]")
"""What a terminal takes for a control character, or shows as nothing: in JSON an escape says the same."""

_BEYOND_ASCII = re.compile("[\x7f-\U0010ffff]")

_LAYOUT = re.compile(r"([\n\t])")


def print_error(error: BuildDoctorError) -> None:
    """What happened, and the next step."""
    print_notes([f"builddoctor: {error}", *([f"hint: {error.hint}"] if error.hint else [])])


def print_notes(lines: Iterable[str]) -> None:
    """Lines for a person, on stderr. A terminal that is gone is no error.

    Of control characters only the end of a line and the tab get through: names of files may hold any.
    """
    signs = signs_for(os.environ) if sys.stderr.isatty() else UNICODE
    for line in lines:
        clean = "".join(part if part in ("\n", "\t") else escaped(part) for part in _LAYOUT.split(signs.ours(line)))
        with contextlib.suppress(OSError, ValueError):
            print(clean, file=sys.stderr, flush=True)  # noqa: T201


def print_data(text: str) -> None:
    """What was asked for, on stdout; where that has too few characters, the others as escapes."""
    encoding = sys.stdout.encoding or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding))  # noqa: T201


def print_page(lines: Iterable[Text]) -> None:
    """Lines with styles, on stdout: colour on a terminal only, and none with NO_COLOR; no line is broken anew."""
    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False, soft_wrap=True)
    encoding = sys.stdout.encoding or "utf-8"
    for line in lines:
        if not console.is_terminal or console.no_color:
            print_data(line.plain)
        else:
            line.plain = line.plain.encode(encoding, "replace").decode(encoding)
            console.print(line)


def page_width() -> int:
    """Cells of a line on stdout: the terminal's, else COLUMNS, else 100."""
    return min(MOST_CELLS, max(LEAST_CELLS, shutil.get_terminal_size((USUAL_CELLS, 24)).columns))


def json_text(value: object, *, pretty: bool = False) -> str:
    """Structs as JSON; what is no UTF-8 in a file name stands there as an escape."""
    try:
        encoded = msgspec.json.encode(value)
    except UnicodeEncodeError:
        encoded = msgspec.json.encode(printable_tree(msgspec.to_builtins(value)))
    text = (msgspec.json.format(encoded, indent=2) if pretty else encoded).decode()
    if not (sys.stdout.encoding or "").lower().replace("-", "").startswith("utf"):
        return _BEYOND_ASCII.sub(_json_escape, text)
    return _UNSEEN.sub(_json_escape, text)


def _json_escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
