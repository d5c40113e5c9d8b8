"""``builddoctor recipe list|show|from-trace|check|diff|merge``: recipes, where they are, and new ones from builds."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from builddoctor.cli.naming import BUILD_HELP, find_trace
from builddoctor.cli.output import (
    JsonOption,
    json_text,
    names_are_whole,
    page_width,
    print_answer,
    print_data,
    print_notes,
    print_page,
    write_file,
)
from builddoctor.core.errors import FolderNotWritableError, RecipeError
from builddoctor.core.recipe import Recipe
from builddoctor.core.units import printable
from builddoctor.recipes.from_trace import recipe_from_traces
from builddoctor.recipes.measured_phases import word
from builddoctor.recipes.merge import merge as merged
from builddoctor.recipes.merge import renew
from builddoctor.recipes.recipe_diff import differences, fingerprint_words
from builddoctor.recipes.recipe_text import dump, updated
from builddoctor.recipes.shelf import Shelved, find_recipe, listed, shelved
from builddoctor.trace.analysis import peek
from builddoctor.ui.recipe_page import RecipeRow, Totals, difference_page, list_rows, recipe_page, size_words, totals

app = typer.Typer(
    no_args_is_help=True,
    help="Recipes: the memory and time that builds take, measured once, for other machines and containers.",
    rich_markup_mode=None,
)

OutputOption = Annotated[
    str,
    typer.Option(
        "-o", "--output", metavar="FILE", help="Write the recipe to this file; an existing recipe is updated."
    ),
]
RECIPE_HELP = "A name as `recipe list` shows it, a file, or https://….toml."
RecipeArgument = Annotated[str, typer.Argument(metavar="RECIPE", help=RECIPE_HELP)]


class ShownRecipe(msgspec.Struct, frozen=True, kw_only=True):
    """What ``recipe show --json`` prints."""

    name: str
    origin: str
    path: str
    totals: Totals
    recipe: Recipe


class CheckedFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of ``recipe check --json``."""

    file: str
    ok: bool
    units: int = 0
    phases: int = 0
    problem: str = ""
    hint: str = ""


class MadeRecipe(msgspec.Struct, frozen=True, kw_only=True):
    """What ``recipe from-trace --json`` and ``recipe merge --json`` print."""

    file: str
    """where it was written; empty for nowhere"""
    complete: bool
    notes: tuple[str, ...]
    """what is not in it, what differs, what was replaced"""
    totals: Totals
    recipe: Recipe


@app.command("list")
def list_recipes(
    folder: Annotated[
        str, typer.Argument(metavar="FOLDER", help="Only the recipes in this folder, file or https://….toml.")
    ] = "",
    json: JsonOption = False,
) -> None:
    """List the recipes: your own, pulled ones, those of the project in this folder, and shipped ones."""
    found = listed(folder, os.environ, Path.cwd()) if folder else shelved(os.environ, Path.cwd())
    rows = [_row(each) for each in found]
    print_answer(rows, lambda: list_rows(rows, width=page_width(), whole=names_are_whole()), json=json)


@app.command("show")
def show(recipe: RecipeArgument, json: JsonOption = False) -> None:
    """Show one page about a recipe: project, origin, hazards, and the heaviest units."""
    found = _found(recipe)
    if json:
        print_data(
            json_text(
                ShownRecipe(
                    name=found.name,
                    origin=found.origin,
                    path=str(found.path or ""),
                    totals=totals(_recipe(found)),
                    recipe=_recipe(found),
                ),
                pretty=True,
            )
        )
    else:
        print_page(recipe_page(_recipe(found), name=found.name, origin=found.origin, width=page_width()))


@app.command("from-trace")
def from_trace(
    traces: Annotated[
        list[str],
        typer.Argument(metavar="BUILD…", help=BUILD_HELP),
    ],
    output: OutputOption = "",
    name: Annotated[
        str, typer.Option("--name", metavar="PROJECT", help="The project's name.  [default: the name in the traces]")
    ] = "",
    json: JsonOption = False,
) -> None:
    """Make a recipe from the traces of builds. Several traces of one project become one recipe.

    For a build that was resumed, give the traces of both runs.

    \b
    Examples:
      builddoctor recipe from-trace last -o te.toml
    """
    paths = [find_trace(trace) for trace in traces]
    target = Path(output) if output else None
    old = find_recipe(str(target.absolute()), os.environ, Path.cwd()).recipe if target and target.is_file() else None
    notes: list[str] = []
    if old is not None:
        paths, known = _new_traces(paths, old)
        notes += known
        if not paths:
            _say_all(notes)
            _told(old, MadeRecipe(file=output, complete=True, notes=tuple(notes), totals=totals(old), recipe=old), json)
            return
    made = recipe_from_traces(paths, name=name)
    recipe = made.recipe
    notes += [f"left out: {words}" for words in made.left_out]
    notes += [f"differs: {words}; the first's is kept" for words in made.differs]
    if old is not None:
        renewed = renew(old, recipe)
        recipe = renewed.recipe
        notes += renewed.words
    if not made.complete:
        notes.append("the recipe is incomplete: also give the trace of the build that continued from there")
    if target is not None:
        _put(target, recipe, there=old is not None)
    _say_all(notes)
    if target is not None:
        _say(f"wrote {output}: {_in_words(recipe)}; next: {_next(output)}")
    elif not json:
        _say(f"{_in_words(recipe)}; next: keep it with -o {recipe.project.name}.toml")
    what = MadeRecipe(file=output, complete=made.complete, notes=tuple(notes), totals=totals(recipe), recipe=recipe)
    if json:
        print_data(json_text(what))
    elif target is None:
        print_data(dump(recipe).rstrip("\n"))


@app.command("check")
def check(
    files: Annotated[list[str], typer.Argument(metavar="FILE…", help=RECIPE_HELP)],
    json: JsonOption = False,
) -> int:
    """Check that recipes are valid; the exit code is 89 if one is not."""
    checked = [_checked(file) for file in files]
    if json:
        print_data(json_text(checked))
    for each in checked:
        if each.ok and not json:
            before = f"{each.file}: " if len(checked) > 1 else ""
            print_data(f"{before}ok: {size_words(each.units, each.phases)}")
        if not each.ok:
            print_notes([f"builddoctor: {each.problem}", *([f"hint: {each.hint}"] if each.hint else [])])
    return 0 if all(each.ok for each in checked) else RecipeError.exit_code


@app.command("diff")
def diff(
    before: Annotated[str, typer.Argument(metavar="A", help=RECIPE_HELP)],
    after: Annotated[str, typer.Argument(metavar="B", help="Likewise.")],
    json: JsonOption = False,
) -> None:
    """Compare two recipes: new, removed and changed units, tools, hazards. What differs between runs is left out."""
    told = differences(_recipe(_found(before)), _recipe(_found(after)))
    print_answer(told, lambda: difference_page(told, width=page_width()), json=json)


@app.command("merge")
def merge(
    recipes: Annotated[list[str], typer.Argument(metavar="RECIPE…", help=RECIPE_HELP)],
    output: Annotated[
        str,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Write the recipe to this file; comments in an existing file are kept.",
        ),
    ] = "",
    json: JsonOption = False,
) -> None:
    """Merge recipes of one project into one; figures are weighted by their number of runs."""
    found = [_found(each) for each in recipes]
    recipe = merged([_recipe(each) for each in found])
    notes = []
    for other in found[1:]:
        words = fingerprint_words(_recipe(found[0]).fingerprint, _recipe(other).fingerprint)
        notes += [f"{other.name} differs: {each}; the first's is kept" for each in words]
        if twice := set(_recipe(other).origin.traces) & set(_recipe(found[0]).origin.traces):
            notes.append(f"{other.name} has builds that {found[0].name} has: {', '.join(sorted(twice))} count twice")
    target = Path(output) if output else None
    if target is not None:
        _put(target, recipe, there=target.is_file())
        notes.append(f"wrote {output}: {_in_words(recipe)}; next: {_next(output)}")
    _say_all(notes)
    if json:
        print_data(
            json_text(MadeRecipe(file=output, complete=True, notes=tuple(notes), totals=totals(recipe), recipe=recipe))
        )
    elif target is None:
        print_data(dump(recipe).rstrip("\n"))


def _checked(file: str) -> CheckedFile:
    try:
        found = totals(_recipe(_found(file)))
    except RecipeError as error:
        return CheckedFile(file=file, ok=False, problem=str(error), hint=error.hint)
    return CheckedFile(file=file, ok=True, units=found.units, phases=found.phases)


def _found(wanted: str) -> Shelved:
    return find_recipe(wanted, os.environ, Path.cwd())


def _recipe(found: Shelved) -> Recipe:
    if found.recipe is None:
        raise RecipeError(found.problem)
    return found.recipe


def _told(recipe: Recipe, what: MadeRecipe, json: bool) -> None:
    if json:
        print_data(json_text(what))
    else:
        _say(f"nothing new: {_in_words(recipe)} as before")


def _in_words(recipe: Recipe) -> str:
    found = totals(recipe)
    return size_words(found.units, found.phases)


def _next(file: str) -> str:
    return f"builddoctor recipe show {shlex.quote(file)}; builddoctor plan {shlex.quote(file)}"


def _say(text: str) -> None:
    print_notes([f"builddoctor: {text}"])


def _say_all(notes: list[str]) -> None:
    for note in notes:
        _say(note)


def _row(each: Shelved) -> RecipeRow:
    path = printable(str(each.path or ""))
    recipe = each.recipe
    if recipe is None:
        return RecipeRow(name=each.name, origin=each.origin, path=path, problem=each.problem)
    counted = totals(recipe)
    return RecipeRow(
        name=each.name,
        origin=each.origin,
        path=path,
        project=recipe.project.name,
        version=recipe.project.version,
        archs=recipe.fingerprint.archs,
        host_arch=recipe.fingerprint.host_arch,
        provenance=recipe.origin.provenance,
        runs=recipe.origin.runs,
        units=counted.units,
        phases=counted.phases,
        largest_mib=counted.largest_mib,
        cpu_s=counted.cpu_s,
    )


def _new_traces(traces: Sequence[Path], old: Recipe) -> tuple[list[Path], list[str]]:
    """The traces that the recipe does not hold yet; words about the others. Raises TraceError."""
    new: list[Path] = []
    words: list[str] = []
    for path in traces:
        trace_id = word(peek(path).header.trace_id)
        if trace_id and trace_id in old.origin.traces:
            words.append(f"{printable(path.name)} is in the recipe already")
        else:
            new.append(path)
    return new, words


def _put(target: Path, recipe: Recipe, *, there: bool) -> None:
    """Write a recipe, whole or not at all. ``there``: over one whose comments stay. Raises FolderNotWritableError."""
    try:
        text = updated(target.read_text(encoding="utf-8"), recipe) if there else dump(recipe)
    except (OSError, UnicodeDecodeError) as error:
        raise FolderNotWritableError(
            f"cannot read {printable(str(target))}", hint="name another file: `-o recipe.toml`"
        ) from error
    write_file(target, text.encode(), example="recipe.toml")
