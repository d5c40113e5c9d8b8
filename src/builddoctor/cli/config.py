"""``builddoctor config show``: the settings in force, and where each came from."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from builddoctor.cli.output import JsonOption, print_answer
from builddoctor.core.configuration import Configuration, Setting
from builddoctor.runtime.configuration import settings, user_file, variable
from builddoctor.ui.layout import Column, table

app = typer.Typer(no_args_is_help=True, help="Settings for all builds: what is set, and where.", rich_markup_mode=None)


@app.callback()
def _config() -> None:
    """Settings for all builds: what is set, and where."""


@app.command("show")
def show(
    everything: Annotated[bool, typer.Option("--all", help="Also those that are not set.")] = False,
    json: JsonOption = False,
) -> None:
    """Show each setting in force and its source: a variable, the project's file, or your own."""
    found = settings(os.environ, Path.cwd())
    print_answer(found, lambda: _page(found, everything=everything), json=json)


def _page(found: list[Setting], *, everything: bool) -> Iterator[Text]:
    rows = [[each.name, _value(each.value), each.source] for each in found]
    if everything:
        named = {each.name for each in found}
        names = [field.encode_name for field in msgspec.structs.fields(Configuration)]
        rows += [[name, "", f"not set: a flag, ${variable(name)}, or a file"] for name in names if name not in named]
    if rows:
        yield from table([Column("setting"), Column("value"), Column("from", name=True)], rows)
    else:
        yield Text(f"nothing is set; your own file would be {user_file(os.environ)}")


def _value(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
