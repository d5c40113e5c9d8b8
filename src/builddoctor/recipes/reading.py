"""Recipe files: read with bounds, checked, and refused with file, line and key.

Covers: one text or one plain file. A recipe is somebody else's data: whatever is in it, the answer is a recipe or a
RecipeError, in bounded time and memory. Does *not* cover: finding recipes by name (``shelf``).
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Any

import msgspec

from builddoctor.errors import RecipeError
from builddoctor.model.recipe import Recipe
from builddoctor.recipes import checking, shape
from builddoctor.recipes.bounds import LARGEST_FILE, check_bounds, too_big
from builddoctor.recipes.complaints import Complaint, RecipeText
from builddoctor.recipes.migration import migrated
from builddoctor.recipes.toml import loads
from builddoctor.units import escaped

_AT = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)\Z")

_LISTED = "`builddoctor recipe list` shows those that are there"
_TWICE = "TOML allows a key or a table once; keep one of them"


def read_recipe(path: Path) -> Recipe:
    """The recipe in a file. Raises RecipeError: no plain file, unreadable, too big, or no recipe."""
    source = RecipeText(name=str(path), text="")
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise source.refused("no plain file", f"a recipe is a TOML file; {_LISTED}")
        # Not blocking: by now it may be a pipe after all.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
            found = os.fstat(stream.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise source.refused("no plain file", f"a recipe is a TOML file; {_LISTED}")
            if found.st_size > LARGEST_FILE:
                raise too_big(source)
            content = stream.read(LARGEST_FILE + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise source.refused(f"cannot be read: {escaped(reason)}", _LISTED) from error
    if len(content) > LARGEST_FILE:
        raise too_big(source)
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise source.refused("not UTF-8, as TOML is", "save it as UTF-8", line=line) from error
    return parse_recipe(text, str(path))


def parse_recipe(text: str, name: str) -> Recipe:
    """The recipe in a text. ``name``: of its file, for messages. Raises RecipeError with line, key and a hint.

    Line ends may be Windows', and a byte order mark is passed over.
    """
    source = RecipeText(name=name, text=text.removeprefix("\ufeff"))
    if not source.text.strip():
        raise source.refused("it is empty", _LISTED)
    check_bounds(source)
    raw = migrated(_parsed(source))
    if isinstance(raw, Complaint):
        raise source.refused_at(raw, None)
    return _converted(source, raw)


def checked(recipe: Recipe, name: str) -> Recipe:
    """A recipe that was made and not read, as strictly as one from a file. Raises RecipeError with the key."""
    return _converted(RecipeText(name=name, text=""), msgspec.to_builtins(recipe))


def _converted(source: RecipeText, raw: dict[str, Any]) -> Recipe:
    try:
        recipe = msgspec.convert(raw, Recipe, strict=True)
    except msgspec.ValidationError as error:
        raise source.refused_at(next(shape.complaints(raw), shape.from_msgspec(error)), raw) from error
    for complaint in checking.complaints(recipe):
        raise source.refused_at(complaint, raw)
    return recipe


def _parsed(source: RecipeText) -> dict[str, Any]:
    try:
        return loads(source.text)
    except RecursionError as error:
        raise source.refused(
            "brackets are nested too deep", "docs/reference/recipe.md shows what a recipe holds"
        ) from error
    except ValueError as error:
        raise _not_toml(source, str(error)) from error


def _not_toml(source: RecipeText, said: str) -> RecipeError:
    """tomllib's reason, with its line in front."""
    at = _AT.search(said)
    line = None
    if at is not None:
        line = int(at[1]) if at[1] else source.text.rstrip().count("\n") + 1
        said = said[: at.start()]
    if "overwrite" in said or "twice" in said or "mutate" in said:
        return source.refused("a key or a table that is there already", _TWICE, line=line)
    return source.refused(
        f"not TOML: {escaped(said[:200])}",
        "text stands in quotes, a value on the line of its key, and { } on one line",
        line=line,
    )
