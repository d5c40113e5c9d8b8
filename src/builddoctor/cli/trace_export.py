"""``builddoctor trace view|export``: the page of a trace, and a trace in the formats of other tools."""

from __future__ import annotations

import os
import re
import socket
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TextIO

import msgspec
import typer

from builddoctor.cli.naming import BuildArgument, find_trace
from builddoctor.cli.output import print_data, print_notes, replacing, write_file
from builddoctor.cli.trace import judge_now
from builddoctor.core.errors import UsageError
from builddoctor.core.units import escaped, printable
from builddoctor.gates.browser import open_in_browser
from builddoctor.runtime.folders import cache_folder
from builddoctor.simulate.what_if import what_if
from builddoctor.trace.analysis import read_build, take_picture
from builddoctor.trace.exports.perfetto import perfetto_json
from builddoctor.trace.exports.tables import TABLES, write_csv, write_parquet, write_sqlite
from builddoctor.trace.reader import TraceReader
from builddoctor.ui.figure import Kind, drawn
from builddoctor.ui.page import page, plotly
from builddoctor.ui.page.words import words_of

DRAWN_MOMENTS = 500
"""More than a drawing has dots to show."""


def view(
    trace: BuildArgument = "last",
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="FILE", help="Write the page to this file instead of the cache.")
    ] = "",
    no_open: Annotated[bool, typer.Option("--no-open", help="Only write it; print its path.")] = False,
) -> None:
    """Write the page of a build, one self-contained HTML file, and open it. Prints its path."""
    path = find_trace(trace)
    text = page_of(path)
    target = Path(output) if output else _page_file(path)
    write_file(target, text.encode("utf-8", "backslashreplace"), make_folder=not output)
    print_data(printable(str(target.absolute())))
    if not no_open and not open_in_browser(target, os.environ):
        name = escaped(f"{socket.gethostname()}:{target.absolute()}")
        print_notes([f"found no browser here; on a machine with one: scp {name} . and open it"])


def page_of(path: Path) -> str:
    """The page of a trace. Raises TraceError when it is none."""
    report = read_build(path)
    picture = take_picture(TraceReader(path))
    return page(picture, words_of(report, judge_now(report, path)), what_if(picture), plotly())


def drawing_of(path: Path, kind: Kind) -> bytes:
    """The picture of memory of a trace. Raises TraceError when it is none, BuildDoctorError without matplotlib."""
    report = read_build(path)
    picture = take_picture(TraceReader(path), most_moments=DRAWN_MOMENTS)
    return drawn(picture, words_of(report, judge_now(report, path)), kind)


def _page_file(trace: Path) -> Path:
    """In the cache, of one name for each trace: a second look replaces the first."""
    stem = re.sub(r"[^\w.-]", "_", trace.stem, flags=re.ASCII)[-80:] or "trace"
    return cache_folder(os.environ) / "pages" / f"{stem}.html"


def _perfetto(path: Path, _: str, out: TextIO) -> None:
    out.writelines(piece.decode() for piece in perfetto_json(TraceReader(path)))


def _csv(path: Path, table: str, out: TextIO) -> None:
    write_csv(path, TABLES[table], out)


def _sqlite(path: Path, _: str, target: Path) -> None:
    with replacing(target) as new:
        try:
            write_sqlite(path, new)
        except sqlite3.Error as error:
            raise OSError(str(error)) from error


def _parquet(path: Path, table: str, target: Path) -> None:
    with replacing(target) as new:
        write_parquet(path, TABLES[table], new)


def _html(path: Path, _: str, target: Path) -> None:
    write_file(target, page_of(path).encode("utf-8", "backslashreplace"))


def _png(path: Path, _: str, target: Path) -> None:
    write_file(target, drawing_of(path, "png"))


def _svg(path: Path, _: str, target: Path) -> None:
    write_file(target, drawing_of(path, "svg"))


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """What a trace can be exported as: one of ``text`` and ``file``, given the trace and the table."""

    suffix: str
    """of a file, as it is usually called"""
    text: Callable[[Path, str, TextIO], None] | None = None
    """it can go to stdout"""
    file: Callable[[Path, str, Path], None] | None = None
    one_table: bool = False
    """``--table`` says which"""
    word: str = ""


FORMATS = {
    "perfetto": Format(
        suffix="perfetto.json", text=_perfetto, word="open it at https://ui.perfetto.dev: it stays in the browser"
    ),
    "csv": Format(suffix="csv", text=_csv, one_table=True),
    "sqlite": Format(suffix="sqlite", file=_sqlite),
    "parquet": Format(suffix="parquet", file=_parquet, one_table=True),
    "html": Format(suffix="html", file=_html),
    "png": Format(suffix="png", file=_png),
    "svg": Format(suffix="svg", file=_svg),
}
"""By the name that ``--to`` takes."""

_TO_STDOUT = " and ".join(name for name, each in FORMATS.items() if each.text)
_ONE_TABLE = " and ".join(name for name, each in FORMATS.items() if each.one_table)


def export(
    trace: BuildArgument = "last",
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="FORMAT",
            show_default=False,
            help=f"{' | '.join(FORMATS)}.  [default: what the file's name ends with, else perfetto]",
        ),
    ] = "",
    output: Annotated[
        str,
        typer.Option("-o", "--output", metavar="FILE", help=f"The file; `-` for stdout, with {_TO_STDOUT}."),
    ] = "",
    table: Annotated[
        str, typer.Option("--table", metavar="NAME", help=f"With {_ONE_TABLE}: {' | '.join(TABLES)}.")
    ] = "phases",
) -> None:
    """Export a trace for other tools: Perfetto (or chrome://tracing), tables, or the page and its picture.

    \b
    Examples:
      builddoctor trace export -o build.json        # for ui.perfetto.dev
      builddoctor trace export demo --to csv --table units -o units.csv
    """
    to = to or _by_suffix(output)
    if to not in FORMATS:
        raise UsageError(f"unknown format {to!r}", hint=f"--to {' | '.join(FORMATS)}")
    if table not in TABLES:
        raise UsageError(f"unknown table {table!r}", hint=f"--table {' | '.join(TABLES)}")
    path = find_trace(trace)
    form = FORMATS[to]
    named = f"`-o build.{form.suffix}`"
    if output in ("", "-"):
        if form.text is None:
            raise UsageError(f"{to} cannot go to stdout" if output else f"{to} needs a file", hint=named)
        if not output and sys.stdout.isatty():
            raise UsageError(f"a trace as {to} is for a file or a program, and this is a terminal", hint=named)
        form.text(path, table, sys.stdout)
        sys.stdout.flush()
        return
    target = Path(output)
    if target.exists() and path.exists() and target.samefile(path):
        raise UsageError("the file to write is the trace itself", hint=named)
    if form.file is not None:
        form.file(path, table, target)
    elif form.text is not None:
        with replacing(target) as new, new.open("w", encoding="utf-8", newline="") as file:
            form.text(path, table, file)
    print_notes([f"written {printable(output)}" + (f"; {form.word}" if form.word else "")])


def _by_suffix(output: str) -> str:
    suffix = Path(output).suffix.lower().removeprefix(".")
    return next((name for name, form in FORMATS.items() if suffix in (form.suffix, name)), "perfetto")
