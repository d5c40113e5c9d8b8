"""What ``builddoctor recipe`` does with files: rows of a list, a recipe written or brought up to date."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from builddoctor.cli.view import write_file
from builddoctor.errors import FolderNotWritableError
from builddoctor.model.recipe import Recipe
from builddoctor.recipes.from_rows import word
from builddoctor.recipes.renewing import renew
from builddoctor.recipes.shelf import Shelved
from builddoctor.recipes.writing import dump, updated
from builddoctor.render.recipe_pages import RecipeRow, totals
from builddoctor.trace.peek import peek
from builddoctor.units import printable


def rows_of(found: Sequence[Shelved]) -> list[RecipeRow]:
    """One row a recipe."""
    return [_row(each) for each in found]


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


def updated_file(traces: Sequence[Path], old: Recipe) -> tuple[list[Path], list[str]]:
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


def merge_into(old: Recipe, new: Recipe) -> tuple[Recipe, list[str]]:
    """Raises RecipeError when they are of different projects."""
    done = renew(old, new)
    return done.recipe, list(done.words)


def put(target: Path, recipe: Recipe, *, there: bool) -> None:
    """Write a recipe, whole or not at all. ``there``: over one whose comments stay. Raises FolderNotWritableError."""
    # Where a link leads to, so that it stays a link.
    path = target.resolve() if target.is_symlink() else target
    try:
        text = updated(path.read_text(encoding="utf-8"), recipe) if there else dump(recipe)
    except (OSError, UnicodeDecodeError) as error:
        raise FolderNotWritableError(
            f"cannot read {printable(str(target))}", hint="name another file: `-o recipe.toml`"
        ) from error
    write_file(path, text.encode(), example="recipe.toml")
