"""``builddoctor machine list|show|probe``: named machines with their sources, and this one as it is."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from builddoctor.cli.output import json_text, print_data, print_notes
from builddoctor.errors import FolderNotWritableError
from builddoctor.machines.catalogue import PROFILES
from builddoctor.machines.files import load_machine
from builddoctor.machines.profile import nominal
from builddoctor.model.machine import Machine
from builddoctor.render.machines import machine_page, profile_page, profile_rows
from builddoctor.sensors.machine import probe_machine
from builddoctor.sensors.root import SystemRoot
from builddoctor.units import one_line

app = typer.Typer(no_args_is_help=True, help="Machines to plan for, and this one.", rich_markup_mode=None)

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list")
def list_machines(json: JsonOption = False) -> None:
    """The machines that have a name, with their nominal figures.

    What is left for builds is the memory less 7.5 % for the system, less what stays free.
    """
    found = [nominal(each) for each in PROFILES]
    print_data(json_text(found) if json else "\n".join(profile_rows(found)))


@app.command("show")
def show(
    machine: Annotated[
        str, typer.Argument(metavar="NAME|FILE", help="A name from `machine list`, or a file from `machine probe -o`.")
    ],
    json: JsonOption = False,
) -> None:
    """All figures of one machine, with their sources."""
    found = load_machine(machine)
    if json:
        print_data(_pretty(found))
    else:
        print_data("\n".join(machine_page(found) if isinstance(found, Machine) else profile_page(found)))


@app.command("probe")
def probe(
    json: JsonOption = False,
    output: Annotated[
        str,
        typer.Option("-o", "--output", metavar="FILE", help="Write the JSON to this file, for `machine show FILE`."),
    ] = "",
) -> None:
    """This machine: cores, every memory limit and who sets it, NUMA nodes, folders that a build writes to."""
    found = probe_machine(SystemRoot(), os.environ, folders=_here())
    print_notes(
        f"builddoctor: could not read {one_line(each)}; that is not the same as no limit" for each in found.unread
    )
    if output:
        _write(Path(output), _pretty(found) + "\n")
        shown = shlex.quote(one_line(output))
        print_notes([f"builddoctor: wrote {shown}; `builddoctor machine show {shown}` shows it"])
    elif json:
        print_data(_pretty(found))
    else:
        print_data("\n".join(machine_page(found)))


def _here() -> list[tuple[str, Path]]:
    """The current folder, unless somebody deleted it."""
    try:
        return [("current folder", Path.cwd())]
    except OSError:
        return []


def _pretty(found: msgspec.Struct) -> str:
    return json_text(found, pretty=True)


def _write(path: Path, text: str) -> None:
    """Raises FolderNotWritableError."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise FolderNotWritableError(
            f"cannot write {path}: {error.strerror}", hint="name a file in a folder that you may write to"
        ) from error
