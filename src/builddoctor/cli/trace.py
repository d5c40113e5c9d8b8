"""``builddoctor trace list|units``: the traces there are, and the units of one, worst first."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from builddoctor.cli.output import json_text, print_data, print_notes
from builddoctor.errors import TraceError
from builddoctor.render.tables import trace_rows, unit_rows
from builddoctor.supervise.folders import traces_folder
from builddoctor.trace.analysis import digest
from builddoctor.trace.peek import peek
from builddoctor.trace.reader import TraceReader

app = typer.Typer(no_args_is_help=True, help="Read the traces of builds.", rich_markup_mode=None)

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list")
def list_traces(json: JsonOption = False) -> None:
    """The traces in builddoctor's own folder, newest first."""
    found = []
    for path in sorted(traces_folder(os.environ).glob("*.jsonl"), reverse=True):
        try:
            found.append(peek(path))
        except TraceError as error:
            print_notes([f"builddoctor: {error}"])
    if json:
        print_data(json_text(found))
    else:
        print_data("\n".join(trace_rows(found)))


@app.command("units")
def units(
    trace: Annotated[str, typer.Argument(metavar="TRACE", help="A trace file, or its id as `trace list` shows it.")],
    json: JsonOption = False,
) -> None:
    """The units of a trace with their phases, worst first."""
    reader = TraceReader(find_trace(trace))
    told = digest(reader)
    if reader.skipped:
        print_notes([f"builddoctor: {reader.skipped} unreadable lines passed over; the trace was cut off or torn"])
    if json:
        print_data(json_text(told.units))
    else:
        print_data("\n".join(unit_rows(told)))


def find_trace(name: str) -> Path:
    """A trace by file or by id. Raises TraceError when there is none, or more than one."""
    path = Path(name)
    if path.exists():
        return path
    found = [
        each for each in traces_folder(os.environ).glob("*.jsonl") if each.stem.rpartition("-")[2].startswith(name)
    ]
    if len(found) == 1 and name:
        return found[0]
    raise TraceError(
        f"no trace {name!r}" if not found else f"{len(found)} traces begin with {name!r}",
        hint="`builddoctor trace list` shows those there are",
    )
