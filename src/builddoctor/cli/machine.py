"""``builddoctor machine list|show|probe``: named machines with their sources, and this one as it is."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from builddoctor.cli.output import JsonOption, json_text, print_answer, print_notes, write_file
from builddoctor.core.machine import Machine
from builddoctor.core.units import one_line
from builddoctor.machines.named import load_machine, nominal, profiles
from builddoctor.system.machine_probe import probe_machine
from builddoctor.system.root import SystemRoot
from builddoctor.ui.machine_page import machine_page, profile_page, profile_rows

app = typer.Typer(no_args_is_help=True, help="Machines to plan for, and this one.", rich_markup_mode=None)


@app.command("list")
def list_machines(json: JsonOption = False) -> None:
    """List the named machines with their nominal figures.

    The memory for builds is the whole memory, less 7.5 % for the system, less what stays free.
    """
    found = [nominal(each) for each in profiles()]
    print_answer(found, lambda: profile_rows(found), json=json)


@app.command("show")
def show(
    machine: Annotated[
        str, typer.Argument(metavar="NAME|FILE", help="A name from `machine list`, or a file from `machine probe -o`.")
    ],
    json: JsonOption = False,
) -> None:
    """Show all figures of one machine, with their sources.

    \b
    Examples:
      builddoctor machine show gb200-node
    """
    found = load_machine(machine)
    page = machine_page(found) if isinstance(found, Machine) else profile_page(found)
    print_answer(found, lambda: page, json=json, pretty=True)


@app.command("probe")
def probe(
    json: JsonOption = False,
    output: Annotated[
        str,
        typer.Option("-o", "--output", metavar="FILE", help="Write the JSON to this file, for `machine show FILE`."),
    ] = "",
) -> None:
    """Show this machine: cores, every memory limit and its origin, NUMA nodes, folders that a build writes to.

    \b
    Examples:
      builddoctor machine probe -o node.json        # for `plan --on node.json` elsewhere
    """
    found = probe_machine(SystemRoot(), os.environ, folders=_here())
    print_notes(
        f"builddoctor: could not read {one_line(each)}; that is not the same as no limit" for each in found.unread
    )
    if output:
        write_file(Path(output), f"{json_text(found, pretty=True)}\n".encode(), example="machine.json")
        shown = shlex.quote(one_line(output))
        print_notes([f"builddoctor: wrote {shown}; `builddoctor machine show {shown}` shows it"])
    else:
        print_answer(found, lambda: machine_page(found), json=json, pretty=True)


def _here() -> list[tuple[str, Path]]:
    """The current folder, unless it was deleted."""
    try:
        return [("current folder", Path.cwd())]
    except OSError:
        return []
