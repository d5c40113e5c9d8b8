"""Where recipes are, and one of them by name.

Covers: names (folders of BUILDDOCTOR_RECIPES, the user's own folder, those that come with builddoctor, in this order;
of several with one name the first is taken), files, addresses (``recipes.fetched``) and files in OCI image layouts
(``recipes.image_layout``). Does *not* cover: which recipe fits a build (``recipes.matching``).
"""

from __future__ import annotations

import difflib
import importlib.resources
import os
import stat
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import platformdirs

from builddoctor.errors import RecipeError
from builddoctor.model.recipe import Recipe
from builddoctor.recipes.image_layout import PREFIX, recipe_in_layout, recipes_in_layout
from builddoctor.recipes.reading import parse_recipe, read_recipe
from builddoctor.units import escaped, one_line, printable

LIST_HINT = "`builddoctor recipe list` shows those there are"
SHIPPED = "shipped"
MOST_FILES = 1000
"""of one folder"""


class Shelved(msgspec.Struct, frozen=True, kw_only=True):
    """A recipe, and where it is."""

    name: str
    """of its file, without ``.toml``"""
    origin: str
    """in words"""
    path: Path | None = None
    """its file; none for what came from an address or an image"""
    shipped: bool = False
    """it comes with builddoctor"""
    recipe: Recipe | None = None
    """None: it cannot be read"""
    problem: str = ""
    """why not"""


class _Place(msgspec.Struct, frozen=True, kw_only=True):
    """A file on the shelf, not yet read."""

    name: str
    path: Path
    origin: str
    shipped: bool = False


def shelved(env: Mapping[str, str]) -> list[Shelved]:
    """All that have a name, in the order in which they are looked for; broken ones with their problem."""
    return [_read(place) for place in _places(env)]


def in_folder(folder: Path) -> list[Shelved]:
    """The recipes of one folder, by name. Raises RecipeError where there is no such folder."""
    if not folder.is_dir():
        raise RecipeError(f"{printable(str(folder))} is no folder", hint="builddoctor recipe list path/to/recipes")
    return [_read(place) for place in _files(folder, "that folder")]


def listed(wanted: str, env: Mapping[str, str], cwd: Path | str) -> list[Shelved]:
    """What is in a folder or an image layout, or the one recipe of an address or a file. Raises RecipeError."""
    if wanted.startswith(PREFIX):
        return [_of_text(title, text) for title, text in recipes_in_layout(wanted, Path(cwd))]
    if "://" in wanted or wanted.endswith(".toml"):
        return [find_recipe(wanted, env, cwd)]
    return in_folder(Path(cwd, os.path.expanduser(wanted)))


def find_recipe(wanted: str, env: Mapping[str, str], cwd: Path | str) -> Shelved:
    """By name, path, address or place in an image layout. ``recipe`` is there. Raises RecipeError."""
    if wanted.startswith(PREFIX):
        name, text = recipe_in_layout(wanted, Path(cwd))
        return Shelved(name=_stem(name), origin="an image layout", recipe=parse_recipe(text, name))
    scheme = urllib.parse.urlsplit(wanted).scheme.lower() if "://" in wanted else ""
    if scheme == "file":
        return _of_file(Path(urllib.parse.unquote(urllib.parse.urlsplit(wanted).path)))
    if scheme:
        # Only here: every build imports this module, and few need a web client.
        from builddoctor.recipes.fetched import fetch, file_name

        text = fetch(wanted, env)
        return Shelved(name=_stem(file_name(wanted)), origin=one_line(wanted), recipe=parse_recipe(text, wanted))
    if "/" in wanted or wanted.endswith(".toml"):
        return _of_file(Path(cwd, os.path.expanduser(wanted)))
    places = list(_places(env))
    found = next((place for place in places if _alike(place.name) == _alike(wanted)), None)
    if found is None:
        if Path(cwd, wanted).is_file():
            return _of_file(Path(cwd, wanted))
        raise _unknown(wanted, [place.name for place in places])
    return Shelved(
        name=found.name,
        origin=found.origin,
        path=found.path,
        shipped=found.shipped,
        recipe=read_recipe(found.path),
    )


def user_folder(env: Mapping[str, str]) -> Path:
    """Where a user keeps recipes; nothing makes it before there is one."""
    if named := env.get("BUILDDOCTOR_DATA_DIR"):
        return Path(os.path.abspath(named), "recipes")
    for base in (env.get("XDG_DATA_HOME", ""), f"{env.get('HOME', '')}/.local/share"):
        if base.startswith("/"):
            return Path(base, "builddoctor", "recipes")
    return platformdirs.user_data_path("builddoctor") / "recipes"


def shipped_folder() -> Path:
    """Those that come with builddoctor: in its package, or in a checkout's top folder."""
    package = Path(str(importlib.resources.files("builddoctor")))
    inside = package / "recipes" / "shipped"
    checkout = package.parents[1]
    return checkout / "recipes" if not inside.is_dir() and (checkout / "pyproject.toml").is_file() else inside


def _places(env: Mapping[str, str]) -> Iterator[_Place]:
    for folder in filter(None, env.get("BUILDDOCTOR_RECIPES", "").split(os.pathsep)):
        yield from _files(Path(os.path.expanduser(folder)), "BUILDDOCTOR_RECIPES")
    yield from _files(user_folder(env), "yours")
    yield from _files(shipped_folder(), SHIPPED, shipped=True)


def _files(folder: Path, origin: str, *, shipped: bool = False) -> list[_Place]:
    try:
        # A folder may hold anything; what is no TOML file is nobody's recipe.
        paths = sorted(path for path in folder.iterdir() if path.suffix == ".toml" and not path.name.startswith("."))
    except OSError:
        return []
    return [_Place(name=printable(path.stem), path=path, origin=origin, shipped=shipped) for path in paths[:MOST_FILES]]


def _read(place: _Place) -> Shelved:
    recipe, problem = None, ""
    try:
        recipe = read_recipe(place.path)
    except RecipeError as error:
        problem = str(error)
    return Shelved(
        name=place.name,
        origin=place.origin,
        path=place.path,
        shipped=place.shipped,
        recipe=recipe,
        problem=problem,
    )


def _of_text(title: str, text: str) -> Shelved:
    """From an image layout; a broken one with its problem."""
    name, origin = _stem(title), "an image layout"
    try:
        return Shelved(name=name, origin=origin, recipe=parse_recipe(text, title))
    except RecipeError as error:
        return Shelved(name=name, origin=origin, problem=str(error))


def _of_file(path: Path) -> Shelved:
    try:
        if stat.S_ISDIR(path.stat().st_mode):
            raise RecipeError(
                f"{printable(str(path))} is a folder, not a recipe", hint="`builddoctor recipe list FOLDER` lists one"
            )
    except (OSError, ValueError):
        # read_recipe says it better.
        pass
    return Shelved(name=printable(path.stem), origin="that file", path=path, recipe=read_recipe(path))


def _unknown(wanted: str, names: list[str]) -> RecipeError:
    """With those that begin like it, and else those that are spelled nearly so."""
    begin = [name for name in names if _alike(wanted) and _alike(name).startswith(_alike(wanted))]
    near = [name for name in names if _alike(name) in difflib.get_close_matches(_alike(wanted), map(_alike, names))]
    suggested = list(dict.fromkeys(begin or near))[:3]
    meant = f"did you mean {' or '.join(f'`{escaped(name)}`' for name in suggested)}? " if suggested else ""
    return RecipeError(f"no recipe is called {escaped(wanted)[:200]!r}", hint=f"{meant}{LIST_HINT}")


def _alike(name: str) -> str:
    """Names that differ in case, or in ``-`` for ``_``, are the same."""
    return name.lower().replace("_", "-")


def _stem(name: str) -> str:
    return printable(name.removesuffix(".toml"))
