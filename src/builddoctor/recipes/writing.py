"""Recipes as TOML files: written anew in one order, or new figures into a file that a person has commented. Pure.

Covers: the whole text; the same recipe gives the same bytes, and what was written reads back as the rounded recipe.
Does *not* cover: files, or deciding which figures are the better ones (``merging``).
"""

from __future__ import annotations

import msgspec
from tomlkit.exceptions import TOMLKitError

from builddoctor.errors import RecipeError
from builddoctor.model.recipe import Recipe
from builddoctor.recipes.commented import Update, comments_at
from builddoctor.recipes.reading import parse_recipe
from builddoctor.recipes.spelling import rounded, table_lines

HEADER = """\
# A recipe of builddoctor: what each unit of this build takes. Sizes are MiB, times are seconds of one core.
# `builddoctor recipe check FILE` says whether it is right; comments of yours are kept when figures are renewed.
"""


def dump(recipe: Recipe) -> str:
    """A recipe as TOML. Keys come in the model's order, a phase a line; what is as by default is left out."""
    recipe = rounded(recipe)
    parts = [HEADER, f"\nschema = {recipe.schema}\n"]
    for name in recipe.__struct_fields__:
        value = getattr(recipe, name)
        if isinstance(value, msgspec.Struct):
            body = table_lines(value)
            parts += [f"\n[{name}]\n", *body] if body else []
        elif isinstance(value, tuple):
            for each in value:
                parts += [f"\n[[{name}]]\n", *table_lines(each)]
            if not value and name == "units":
                parts.insert(2, "units = []\n")
    return "".join(parts)


def updated(text: str, recipe: Recipe, name: str = "the recipe") -> str:
    """``text``, a recipe, so that it says what ``recipe`` says. Raises RecipeError when ``text`` is no recipe.

    A person's comments and the order of tables and keys stay. A file of an unusual form (units as one inline list, say)
    is written anew below the comments at its top. ``name``: of the file, for messages.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    old, new = parse_recipe(text, name), rounded(recipe)
    if old == new:
        return text
    try:
        result = Update(text, old).to(new)
        if result is not None and parse_recipe(result, name) == new:
            return result
    except (RecipeError, TOMLKitError):
        pass
    top = comments_at(text)
    return f"{top}\n{dump(new).removeprefix(HEADER)}" if top else dump(new)
