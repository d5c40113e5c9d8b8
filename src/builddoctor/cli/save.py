"""``builddoctor save`` and ``restore``: a half-done build, carried to another machine or to the next run of a job."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from builddoctor.carry import archive as carry
from builddoctor.cli.output import JsonOption, print_answer, print_notes
from builddoctor.core.units import format_mib


def save(
    archive: Annotated[str, typer.Argument(metavar="FILE", help="The archive to write, e.g. build.tar.gz.")],
    builds: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FOLDER]…", show_default=False, help="Build folders; default: those below this one."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Save what was built so far in this folder, to go on elsewhere.

    That is its build folders, with the times of their files, the times of sources, and the history.

    \b
    Examples:
      builddoctor save build.tar.gz
    """
    folder = Path.cwd()
    saved = carry.save(Path(archive).absolute(), folder, builds or carry.build_folders(folder), os.environ)
    said = f"{saved.files} files of {', '.join(saved.build_folders)}, the times of {saved.sources} sources"
    print_answer(saved, f"{saved.archive}: {said}; {format_mib(saved.size_mib)}", json=json)


def restore(
    archive: Annotated[str, typer.Argument(metavar="FILE", help="The archive that `save` wrote.")],
    json: JsonOption = False,
) -> None:
    """Restore a saved build in this folder: only what is missing or has changed is compiled then.

    \b
    Examples:
      builddoctor restore build.tar.gz              # in a fresh checkout; then build as before
    """
    done = carry.restore(Path(archive).absolute(), Path.cwd(), os.environ)
    changed = (
        f", {done.sources_changed} {'has' if done.sources_changed == 1 else 'have'} changed"
        if done.sources_changed
        else ""
    )
    said = f"{done.files} files; {done.sources_as_before} sources are as they were{changed}"
    print_answer(done, said, json=json)
    notes = []
    if done.moved_from:
        notes.append(f"builddoctor: it was saved in {done.moved_from}: its build files name this folder now")
    if done.outside_changed:
        what = f"{done.outside_example}{' and others' if done.outside_changed > 1 else ''}"
        notes.append(f"builddoctor: {what} is missing or not what it was: what was compiled with it is compiled again")
    print_notes(notes)
