"""``builddoctor cache show|clean``: what builddoctor keeps on disk beside traces and toolkits."""

from __future__ import annotations

import os
from typing import Annotated

import msgspec
import typer

from builddoctor.cli.output import JsonOption, print_answer
from builddoctor.core.errors import UsageError
from builddoctor.core.units import format_mib
from builddoctor.runtime.kept import CHEAP, KeptPart, parts, remove
from builddoctor.ui.layout import Column, table

app = typer.Typer(no_args_is_help=True, help="What builddoctor keeps on disk.", rich_markup_mode=None)


class Freed(msgspec.Struct, frozen=True, kw_only=True):
    """What ``cache clean --json`` prints."""

    freed_mib: float


@app.command("show")
def show(json: JsonOption = False) -> None:
    """Show the parts of the cache, how large they are, and what has to be done again without them."""
    found = parts(os.environ)
    columns = [Column("part"), Column("size", right=True), Column("holds"), Column("without it")]
    rows = [[part.name, format_mib(part.size_mib), part.holds, part.again] for part in found]
    print_answer(found, lambda: table(columns, rows), json=json)


@app.command("clean")
def clean(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[PART]…", show_default=False, help="Parts as `show` names them.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All parts.")] = False,
    json: JsonOption = False,
) -> None:
    """Remove parts of the cache; without a name, pages and fetched packages. Traces: `builddoctor trace prune`.

    \b
    Examples:
      builddoctor cache clean                       # what is made again for nothing
      builddoctor cache clean sources
    """
    found = parts(os.environ)
    known = [part.name for part in found]
    wanted = known if everything else names or [name for name in CHEAP if name in known]
    if unknown := [name for name in wanted if name not in known]:
        raise UsageError(f"the cache has no part {unknown[0]}", hint=f"it has: {', '.join(known) or 'nothing yet'}")
    chosen = [part for part in found if part.name in wanted]
    remove(chosen)
    left = {part.name: part.size_mib for part in parts(os.environ)}
    freed_mib = sum(part.size_mib - left.get(part.name, 0.0) for part in chosen)
    print_answer(Freed(freed_mib=round(freed_mib, 1)), _freed(chosen, freed_mib), json=json)


def _freed(chosen: list[KeptPart], freed_mib: float) -> str:
    return f"{format_mib(freed_mib)} freed: {', '.join(part.name for part in chosen) or 'there was nothing'}"
