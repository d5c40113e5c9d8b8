"""How lines of text are laid out, the same for all pages: signs, names that do not fit, labels, tables.

Covers: which terminal has which signs; names cut to so many cells; text that goes on under itself behind its label; the
one helper for tables.
Does *not* cover: what a page says, or writing it (``cli.output``).

Texts come from traces, recipes and logs of unknown origin. What goes through here is free of control characters.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
from rich.cells import cell_len
from rich.text import Text

from builddoctor.core.units import one_line

LEAST_CELLS = 20
"""for a text behind its label; below, lines are longer than the page"""
LEAST_NAME_CELLS = 12
"""of a name in a table"""
GAP = 2
"""between columns"""

_IN_ASCII = str.maketrans(
    {
        "…": "...",
        "·": "-",
        "✓": "ok",
        "✗": "x",
        "→": "->",
        "█": "#",
        "░": ".",
        "▕": "|",
        "▏": "|",
        "│": "|",
        "─": "-",
        "≥": ">=",
        "≤": "<=",
    }
)


class Signs(msgspec.Struct, frozen=True, kw_only=True):
    """One set of them, a cell each but for ``more``."""

    unicode: bool
    full: str
    empty: str
    free: str
    edge: str
    reserve: str
    left: str
    right: str
    more: str
    """where something was left out"""

    def ours(self, text: str) -> str:
        """A text with our own signs as this terminal has them; names of files stay as they are."""
        return text if self.unicode else text.translate(_IN_ASCII)

    def words(self, text: str) -> str:
        """A text with such signs as this terminal has; names of files lose what it cannot show."""
        if self.unicode or text.isascii():
            return text
        return text.translate(_IN_ASCII).encode("ascii", "replace").decode()


UNICODE = Signs(unicode=True, full="█", empty="░", free="·", edge="│", reserve="─", left="▕", right="▏", more="…")
ASCII = Signs(unicode=False, full="#", empty=".", free=" ", edge="|", reserve="-", left="[", right="]", more="...")


def signs_for(env: Mapping[str, str]) -> Signs:
    """By the locale that counts for characters, and by the terminal: the Linux console has few."""
    locale = env.get("LC_ALL") or env.get("LC_CTYPE") or env.get("LANG") or ""
    told = locale.lower().replace("-", "")
    return UNICODE if "utf8" in told and env.get("TERM") != "linux" else ASCII


def plural(number: int, noun: str) -> str:
    """``1 unit``, ``2 units``."""
    return f"{number} {noun}{'s' * (number != 1)}"


def keep_end(text: str, cells: int, more: str = "…") -> str:
    """The end of a text in so many cells, with ``more`` before it where something was left out."""
    if cell_len(text) <= cells:
        return text
    kept = text[-max(1, cells) :]
    while kept and cell_len(kept) > cells - cell_len(more):
        kept = kept[1:]
    # At the border of a folder where that is near.
    slash = kept.find("/")
    if 0 <= slash <= len(kept) // 3:
        kept = kept[slash:]
    return more + kept


def keep_start(text: str, cells: int) -> str:
    """The start of a line in so many cells."""
    text = one_line(text).strip()
    return text if len(text) <= cells else text[: max(1, cells - 1)] + "…"


def below(path: str, folder: str) -> str:
    """A path without the build's folder before it."""
    return path[len(folder) + 1 :] if folder and path.startswith(folder + "/") else path


def wrapped(first: str, rest: str, text: str, width: int, style: str = "") -> list[Text]:
    """A text behind ``first``, and behind ``rest`` where it goes on. A word is broken only where it is a whole line."""
    room = max(LEAST_CELLS, width - len(rest))
    head, *more = textwrap.wrap(one_line(text), room, break_on_hyphens=False) or [""]
    return [Text(first).append(head, style=style), *(Text(rest).append(line, style=style) for line in more)]


def labelled(label: str, text: str, width: int, style: str = "", *, cells: int = 8, indent: int = 2) -> list[Text]:
    """``  why     it does not fit …``, going on under itself; nothing for no text. ``cells``: of the label."""
    if not text:
        return []
    margin = " " * indent
    name = keep_start(label, cells - 1)
    lines = wrapped(f"{margin}{name:<{cells}}", margin + " " * cells, text, width, style)
    lines[0].stylize("dim", 0, indent + cells)
    return lines


class Column(NamedTuple):
    """One column of a table."""

    head: str
    right: bool = False
    """figures stand right"""
    name: bool = False
    """a name: it gets the cells that the others leave, and keeps its end"""


def table(columns: Sequence[Column], rows: Sequence[Sequence[str | Text]], *, width: int = 0) -> list[Text]:
    """The head and one line for each row; columns are as wide as what they hold.

    ``width``: cells of a line, which names are cut to; 0 for names as long as they are.
    """
    texts = [[one_line(cell.plain if isinstance(cell, Text) else cell) for cell in row] for row in rows]
    widths = [max([len(column.head), *(cell_len(row[at]) for row in texts)]) for at, column in enumerate(columns)]
    for at, column in enumerate(columns):
        if column.name and width:
            others = sum(widths) - widths[at] + GAP * (len(columns) - 1)
            widths[at] = min(widths[at], max(LEAST_NAME_CELLS, width - others))
            for row in texts:
                row[at] = keep_end(row[at], widths[at])
    heads = [column.head for column in columns]
    lines = [Text("".join(_padded(columns, widths, heads)), style="dim")]
    for row, cells in zip(texts, rows, strict=True):
        padded = _padded(columns, widths, row)
        styles = [cell.style if isinstance(cell, Text) else "" for cell in cells]
        lines.append(Text.assemble(*zip(padded, styles, strict=True)) if any(styles) else Text("".join(padded)))
        lines[-1].rstrip()
    return lines


def _padded(columns: Sequence[Column], widths: Sequence[int], cells: Sequence[str]) -> list[str]:
    """Each cell with the blanks before and behind it, the last without. Not rich's own table: it takes 3 s for 10,000
    rows, and this a tenth."""
    padded = []
    for at, (column, most, cell) in enumerate(zip(columns, widths, cells, strict=True)):
        blanks = " " * (most - cell_len(cell))
        last = at == len(columns) - 1
        padded.append((blanks + cell if column.right else cell if last else cell + blanks) + " " * (0 if last else GAP))
    return padded
