"""``builddoctor trace export``: a trace for other tools, as a file or, where it is text, on stdout."""

from __future__ import annotations

import os
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer

from builddoctor.cli import view
from builddoctor.cli.output import print_notes
from builddoctor.cli.trace import TraceArgument, find_trace
from builddoctor.errors import FolderNotWritableError, UsageError
from builddoctor.trace.exports.csv_file import write_csv
from builddoctor.trace.exports.parquet_file import write_parquet
from builddoctor.trace.exports.perfetto import perfetto_json
from builddoctor.trace.exports.sqlite_file import write_sqlite
from builddoctor.trace.exports.tables import TABLES
from builddoctor.trace.reader import TraceReader
from builddoctor.units import printable

TARGETS = {
    "perfetto": ("perfetto.json", "open it at https://ui.perfetto.dev: it stays in the browser"),
    "csv": ("csv", ""),
    "sqlite": ("sqlite", ""),
    "parquet": ("parquet", ""),
    "html": ("html", ""),
    "png": ("png", ""),
    "svg": ("svg", ""),
}
"""What a file of each is usually called, and a word about it."""

TEXTS = ("perfetto", "csv")


def export(
    trace: TraceArgument = "last",
    to: Annotated[str, typer.Option("--to", metavar="FORMAT", help=" | ".join(TARGETS))] = "perfetto",
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="FILE", help="The file; `-` for stdout, with perfetto and csv.")
    ] = "",
    table: Annotated[
        str, typer.Option("--table", metavar="NAME", help=f"With csv and parquet: {' | '.join(TABLES)}.")
    ] = "phases",
) -> None:
    """Write a trace for other tools: Perfetto (or chrome://tracing), tables, or the page and its picture."""
    if to not in TARGETS:
        raise UsageError(f"there is no format {to!r}", hint=f"--to {' | '.join(TARGETS)}")
    if table not in TABLES:
        raise UsageError(f"there is no table {table!r}", hint=f"--table {' | '.join(TABLES)}")
    path = find_trace(trace)
    if not output and to not in TEXTS:
        raise UsageError(f"{to} needs a file", hint=f"`-o build.{TARGETS[to][0]}`")
    if output in ("", "-"):
        if to not in TEXTS:
            raise UsageError(f"{to} cannot go to stdout", hint=f"`-o build.{TARGETS[to][0]}`")
        _to_stdout(path, to, table)
        return
    target = Path(output)
    if target.exists() and path.exists() and target.samefile(path):
        raise UsageError("the file to write is the trace itself", hint=f"`-o build.{TARGETS[to][0]}`")
    _WRITERS[to](path, table, target)
    print_notes([f"written {printable(output)}" + (f"; {TARGETS[to][1]}" if TARGETS[to][1] else "")])


def _to_stdout(path: Path, to: str, table: str) -> None:
    if to == "csv":
        write_csv(path, TABLES[table], sys.stdout)
    else:
        for piece in perfetto_json(TraceReader(path)):
            sys.stdout.write(piece.decode())
    sys.stdout.flush()


def _perfetto(path: Path, _: str, target: Path) -> None:
    with _replacing(target) as new, new.open("wb", buffering=1 << 20) as file:
        file.writelines(perfetto_json(TraceReader(path)))


def _csv(path: Path, table: str, target: Path) -> None:
    with _replacing(target) as new, new.open("w", encoding="utf-8", newline="") as file:
        write_csv(path, TABLES[table], file)


def _sqlite(path: Path, _: str, target: Path) -> None:
    with _replacing(target) as new:
        write_sqlite(path, new)


def _parquet(path: Path, table: str, target: Path) -> None:
    with _replacing(target) as new:
        write_parquet(path, TABLES[table], new)


def _html(path: Path, _: str, target: Path) -> None:
    view.write_file(target, view.page_of(path).encode("utf-8", "backslashreplace"))


def _png(path: Path, _: str, target: Path) -> None:
    view.write_file(target, view.drawing_of(path, "png"))


def _svg(path: Path, _: str, target: Path) -> None:
    view.write_file(target, view.drawing_of(path, "svg"))


_WRITERS: dict[str, Callable[[Path, str, Path], None]] = {
    "perfetto": _perfetto,
    "csv": _csv,
    "sqlite": _sqlite,
    "parquet": _parquet,
    "html": _html,
    "png": _png,
    "svg": _svg,
}


@contextmanager
def _replacing(target: Path) -> Iterator[Path]:
    """A new file beside the target, which takes its place when it is whole. Raises FolderNotWritableError."""
    new: Path | None = None
    try:
        if target.is_char_device() or target.is_fifo():
            # Nothing can take the place of a device.
            yield target
            return
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name[:40]}.", suffix=".part", dir=target.parent)
        new = Path(name)
        os.fchmod(descriptor, 0o666 & ~_umask())
        os.close(descriptor)
        yield new
        new.replace(target)
    except (OSError, sqlite3.Error) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise FolderNotWritableError(
            f"cannot write {target}: {why}", hint="name a file in a folder that you may write, with room in it"
        ) from error
    finally:
        if new is not None:
            with suppress(OSError):
                new.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
