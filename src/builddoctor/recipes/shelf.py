"""Where recipes are, and one of them by name.

Covers: names (folders of BUILDDOCTOR_RECIPES, the user's own folder, what was pulled, the project's own, those that
come with builddoctor, in this order; of several with one name the first is taken), files, and addresses: https, or http
of this machine itself, redirects included; every use asks again. Does *not* cover: which recipe fits a build
(``recipes.match``), or pulling (``recipes.travel``).
"""

from __future__ import annotations

import difflib
import importlib.resources
import ipaddress
import os
import posixpath
import stat
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from builddoctor.core.errors import RecipeError, SourceNotFoundError
from builddoctor.core.recipe import LARGEST_FILE, Recipe
from builddoctor.core.recipe_index import PullSource
from builddoctor.core.units import escaped, one_line, printable
from builddoctor.recipes.recipe_file import parse_recipe, read_recipe
from builddoctor.system.user_folders import usual_folder

LIST_HINT = "`builddoctor recipe list` shows those there are"
SHIPPED = "shipped"
PROJECTS_OWN = "the project's own"
PROJECT_FOLDER = "builddoctor-recipes"
"""In a project's repository, beside its pyproject.toml or CMakeLists.txt."""

PULLED = "pulled"
"""Below the user's folder: a folder for each place that recipes were pulled from."""

SOURCE = "source.json"
"""In each of them, says which."""

MOST_FILES = 1000
"""of one folder"""

MOST_OF_A_PROJECT = 50
"""Each is read by every build of that project, whoever wrote it."""


class Shelved(msgspec.Struct, frozen=True, kw_only=True):
    """A recipe, and where it is."""

    name: str
    """of its file, without ``.toml``"""
    origin: str
    """in words"""
    path: Path | None = None
    """its file; none for what came from an address"""
    kept_by_others: bool = False
    """by builddoctor, by the project, or where it was pulled from: a build here writes no figures over it"""
    recipe: Recipe | None = None
    """None: it cannot be read"""
    problem: str = ""
    """why not"""


class _Place(msgspec.Struct, frozen=True, kw_only=True):
    """A file on the shelf, not yet read."""

    name: str
    path: Path
    origin: str
    kept_by_others: bool = False


def shelved(env: Mapping[str, str], project: Path | None = None) -> list[Shelved]:
    """All that have a name, in the order in which they are looked for; broken ones with their problem.

    ``project``: the folder of the project whose own count as well.
    """
    return [_read(place) for place in _places(env, project)]


def in_folder(folder: Path) -> list[Shelved]:
    """The recipes of one folder, by name. Raises RecipeError where there is no such folder."""
    if not folder.is_dir():
        raise RecipeError(f"{printable(str(folder))} is no folder", hint="builddoctor recipe list path/to/recipes")
    return [_read(place) for place in _files(folder, "that folder")]


def listed(wanted: str, env: Mapping[str, str], cwd: Path | str) -> list[Shelved]:
    """What is in a folder, or the one recipe of an address or a file. Raises RecipeError."""
    if "://" in wanted or wanted.endswith(".toml"):
        return [find_recipe(wanted, env, cwd)]
    return in_folder(Path(cwd, os.path.expanduser(wanted)))


def find_recipe(wanted: str, env: Mapping[str, str], cwd: Path | str) -> Shelved:
    """By name, path or address. ``recipe`` is there. Raises RecipeError."""
    scheme = urllib.parse.urlsplit(wanted).scheme.lower() if "://" in wanted else ""
    if scheme == "file":
        return _of_file(Path(urllib.parse.unquote(urllib.parse.urlsplit(wanted).path)))
    if scheme:
        file = posixpath.basename(urllib.parse.unquote(urllib.parse.urlsplit(wanted).path)) or "recipe.toml"
        recipe = parse_recipe(_fetched(wanted, env), wanted)
        return Shelved(name=printable(file.removesuffix(".toml")), origin=one_line(wanted), recipe=recipe)
    if "/" in wanted or wanted.endswith(".toml"):
        return _of_file(Path(cwd, os.path.expanduser(wanted)))
    places = list(_places(env, Path(cwd)))
    found = next((place for place in places if _alike(place.name) == _alike(wanted)), None)
    if found is None:
        if Path(cwd, wanted).is_file():
            return _of_file(Path(cwd, wanted))
        raise _unknown(wanted, [place.name for place in places])
    return Shelved(
        name=found.name,
        origin=found.origin,
        path=found.path,
        kept_by_others=found.kept_by_others,
        recipe=read_recipe(found.path),
    )


def user_folder(env: Mapping[str, str]) -> Path:
    """Where a user keeps recipes; nothing makes it before there is one."""
    if named := env.get("BUILDDOCTOR_DATA_DIR"):
        return Path(os.path.abspath(named), "recipes")
    for base in (env.get("XDG_DATA_HOME", ""), f"{env.get('HOME', '')}/.local/share"):
        if base.startswith("/"):
            return Path(base, "builddoctor", "recipes")
    return usual_folder("data") / "recipes"


def shipped_folder() -> Path:
    """Those that come with builddoctor: in its package, or in a checkout's top folder."""
    package = Path(str(importlib.resources.files("builddoctor")))
    inside = package / "recipes" / "shipped"
    checkout = package.parents[1]
    return checkout / "recipes" if not inside.is_dir() and (checkout / "pyproject.toml").is_file() else inside


def pull_source(folder: Path) -> PullSource | None:
    """Where a folder's recipes were pulled from; None where it does not say."""
    try:
        return msgspec.json.decode((folder / SOURCE).read_bytes(), type=PullSource)
    except (OSError, ValueError):
        return None


def _places(env: Mapping[str, str], project: Path | None) -> Iterator[_Place]:
    for folder in filter(None, env.get("BUILDDOCTOR_RECIPES", "").split(os.pathsep)):
        yield from _files(Path(os.path.expanduser(folder)), "BUILDDOCTOR_RECIPES")
    yield from _files(user_folder(env), "yours")
    for pulled in _folders(user_folder(env) / PULLED):
        source = pull_source(pulled)
        yield from _files(pulled, f"pulled from {source.where}" if source is not None else PULLED, kept_by_others=True)
    if project is not None:
        yield from _of_project(project)
    yield from _files(shipped_folder(), SHIPPED, kept_by_others=True)


def _of_project(project: Path) -> list[_Place]:
    """What a checkout brings along. A link in it that leads elsewhere is none of its recipes."""
    files = _files(project / PROJECT_FOLDER, PROJECTS_OWN, kept_by_others=True)
    return [place for place in files if _is_within(place.path, project)][:MOST_OF_A_PROJECT]


def _is_within(path: Path, folder: Path) -> bool:
    try:
        return path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):
        return False


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir())[:MOST_FILES]
    except OSError:
        return []


def _files(folder: Path, origin: str, *, kept_by_others: bool = False) -> list[_Place]:
    try:
        # A folder may hold anything: only TOML files are recipes.
        paths = sorted(path for path in folder.iterdir() if path.suffix == ".toml" and not path.name.startswith("."))
    except OSError:
        return []
    return [
        _Place(name=printable(path.stem), path=path, origin=origin, kept_by_others=kept_by_others)
        for path in paths[:MOST_FILES]
    ]


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
        kept_by_others=place.kept_by_others,
        recipe=recipe,
        problem=problem,
    )


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


def _fetched(url: str, env: Mapping[str, str]) -> str:
    """The text at an address. Raises RecipeError."""
    # Only here: every build imports this module, and few need a web client.
    from builddoctor.projects.sources.web import Web, shown

    if not is_safe(url):
        raise RecipeError(
            f"{shown(url)}: recipes come over https, so that they cannot be changed on the way",
            hint="use https://…, or fetch the file yourself and name it",
        )
    try:
        content, kind = Web(env).page(url, most_bytes=LARGEST_FILE, allowed=is_safe)
    except SourceNotFoundError as error:
        raise RecipeError(str(error), hint=error.hint or "fetch the file yourself and name it") from error
    if kind == "text/html":
        raise RecipeError(
            f"{shown(url)} is a web page, not a recipe", hint="use the address of the raw file: https://….toml"
        )
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise RecipeError(f"{shown(url)} is no text", hint="a recipe is a TOML file") from error


def is_safe(url: str) -> bool:
    """Whether a recipe, or a redirect to one, may be asked there."""
    try:
        parts = urllib.parse.urlsplit(url)
        host = parts.hostname or ""
        if parts.scheme == "http":
            return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
    return bool(host) and parts.scheme == "https"
