"""``builddoctor history show|clear``: what earlier builds took, which later ones are planned by."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from builddoctor.cli.naming import find_trace, project_built
from builddoctor.cli.output import JsonOption, names_are_whole, page_width, print_answer, print_notes
from builddoctor.core.errors import FolderNotWritableError, TraceError
from builddoctor.history.store import History
from builddoctor.recipes.match import squeezed
from builddoctor.runtime.folders import history_file
from builddoctor.runtime.units import project_of
from builddoctor.ui.layout import plural
from builddoctor.ui.recipe_page import past_rows, project_rows

app = typer.Typer(no_args_is_help=True, help="The memory and time that earlier builds took.", rich_markup_mode=None)

Project = Annotated[
    str,
    typer.Option(
        "--project", metavar="NAME|FOLDER", help="One project: its name, its checkout, or, for `show`, a build of it."
    ),
]


class Forgotten(msgspec.Struct, frozen=True, kw_only=True):
    """What ``history clear --json`` prints."""

    units: int


@app.command("show")
def show(project: Project = "", json: JsonOption = False) -> None:
    """Show the projects that were built before; with --project, its units, the largest first.

    \b
    Examples:
      builddoctor history show --project .
    """
    history = _open()
    if history is None:
        print_answer([], "no history yet", json=json)
        return
    if project:
        # A build names its project here; what is deleted is named in full.
        units = history.units(_named(history, project)) or history.units(_of_build(project))
        print_answer(units, lambda: past_rows(units, width=page_width(), whole=names_are_whole()), json=json)
    else:
        rows = history.projects()
        told = [(row.project, row.units, row.updated_at) for row in rows]
        print_answer(rows, lambda: project_rows(told), json=json)
    _tell(history)


@app.command("clear")
def clear(project: Project = "", json: JsonOption = False) -> None:
    """Delete the history of all builds, or of one project. Later builds start without its figures."""
    history = _open()
    gone = 0
    if history is not None:
        cleared = history.clear(_named(history, project) or None)
        history.close()
        if cleared is None or not history.writable:
            problem = history.problem or f"the history {history.path} cannot be written"
            hint = f"`rm {shlex.quote(str(history.path))}` does the same where you may"
            if history.busy:
                problem, hint = _held(history), "try again when the build that holds it has ended"
            raise FolderNotWritableError(problem, hint=hint)
        gone = cleared
    elif (path := history_file(os.environ)).exists():
        raise FolderNotWritableError(
            f"the history {path} is not cleared", hint=f"`rm {shlex.quote(str(path))}` does it where you may"
        )
    print_answer(Forgotten(units=gone), f"{plural(gone, 'unit')} forgotten", json=json)


def _open() -> History | None:
    """The history; None where there is none yet."""
    path = history_file(os.environ)
    if not path.exists():
        return None
    opened = History.open(path)
    if opened.problem:
        print_notes([f"builddoctor: {opened.problem}"])
    return opened.history


def _named(history: History, project: str) -> str:
    """A project as the list names it: ``flash_attn`` and ``Flash-Attn`` alike, or the folder of its checkout."""
    names = [row.project for row in history.projects()]
    if project in names or not project:
        return project
    wanted = project_of(project).name if "/" in project or Path(project).is_dir() else project
    return next((name for name in names if squeezed(name) == squeezed(wanted)), project)


def _of_build(name: str) -> str:
    """The project of the build of this name; the name itself where there is none."""
    try:
        return project_built(find_trace(name))
    except TraceError:
        return name


def _held(history: History) -> str:
    return f"the history {history.path} is held by another program"


def _tell(history: History) -> None:
    if history.problem or history.busy:
        print_notes([f"builddoctor: {history.problem or _held(history)}"])
    history.close()
