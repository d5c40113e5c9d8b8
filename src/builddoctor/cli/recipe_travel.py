"""``builddoctor recipe pull|push``: recipes of others, and for others, with an index that is signed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from builddoctor.cli.output import JsonOption, json_text, print_data, print_notes, write_file
from builddoctor.cli.recipe import RECIPE_HELP
from builddoctor.core.errors import RecipeError, UsageError
from builddoctor.core.recipe_index import IndexedRecipe, Pulled, PulledRecipe, PullSource, Pushed
from builddoctor.core.units import counted, escaped, printable, shell_word
from builddoctor.recipes.recipe_file import recipe_of
from builddoctor.recipes.recipe_text import dump
from builddoctor.recipes.shelf import find_recipe
from builddoctor.recipes.signing import SigningKey, make_key, read_key, require_cryptography, sign
from builddoctor.recipes.travel import (
    INDEX,
    SIGNATURE,
    Place,
    choose,
    entry_of,
    extended,
    fetch,
    has,
    index_there,
    key_named,
    pulled_folder,
    read_index,
    source_file,
    trusted,
)
from builddoctor.runtime.configuration import user_file

KEY_FILE = "recipe-key"
"""Beside the user's settings: signs what is pushed without ``--key``."""


def pull(
    where: Annotated[str, typer.Argument(metavar="WHERE", help="A folder with an index, or its address: https://….")],
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME…", help="Recipes or projects.  [default: all]")
    ] = None,
    key: Annotated[
        str,
        typer.Option(
            "--key",
            metavar="KEY",
            help="The key that signs there: its fingerprint SHA256:…, or KEY.pub.  [default: the one given last time]",
        ),
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would come, and write nothing.")] = False,
    json: JsonOption = False,
) -> None:
    """Take recipes from a folder or an https address whose index is signed by a key that you trust.

    The key is remembered for that place; one that you have not named is never trusted by itself.

    \b
    Examples:
      builddoctor recipe pull https://example.org/recipes flash_attn --key recipes.pub
    """
    here = Path.cwd()
    place = Place(where, os.environ, here)
    named = key_named(key, here) if key else ""
    require_cryptography()
    folder, known = pulled_folder(place, os.environ)
    found = read_index(place)
    index = trusted(found, place, named=named, known=known, again=(where, *(names or ())))
    entries = choose(index, names or (), place)
    if not dry_run and (known is None or known.key != found.key):
        _remember(folder, PullSource(where=place.shown, key=found.key))
        instead = f", in place of {known.key}" if known is not None else ""
        _say(f"from now on {found.key} is trusted for {place.shown}{instead}")
    taken = []
    for entry in entries:
        taken.append(_taken(place, entry, folder, dry_run=dry_run))
        if not json:
            print_data(_line(entry, taken[-1]))
    if json:
        print_data(json_text(Pulled(where=place.shown, key=found.key, dry_run=dry_run, recipes=tuple(taken))))
    moved = sum(each.state != "unchanged" for each in taken)
    came = "would come" if dry_run else "came"
    then = "nothing was written" if dry_run else "next: builddoctor recipe list"
    _say(f"{counted(moved, 'recipe')} {came}, {len(taken) - moved} unchanged; {then}")


def push(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Made if it is not there.")],
    recipes: Annotated[list[str], typer.Argument(metavar="RECIPE…", help=RECIPE_HELP)],
    key: Annotated[
        str,
        typer.Option(
            "--key",
            metavar="FILE",
            help="A private key of `ssh-keygen -t ed25519`.  [default: one of your own, made at the first push]",
        ),
    ] = "",
    json: JsonOption = False,
) -> None:
    """Put recipes into a folder for others, and sign its index. Serve that folder over https, or share it.

    \b
    Examples:
      builddoctor recipe push /srv/www/recipes te.toml
    """
    here = Path.cwd()
    place = Place(folder, os.environ, here)
    if not place.is_folder:
        raise UsageError(
            f"{place.shown} is an address: push into a folder that is served",
            hint="builddoctor recipe push /srv/www/recipes RECIPE, on the machine that serves it or to be copied there",
        )
    new: dict[str, tuple[IndexedRecipe, bytes]] = {}
    for each in recipes:
        entry, content = _packed(each, here)
        if entry.name in new:
            raise RecipeError(f"two of them are called {entry.name}", hint="rename one, or push one of them")
        new[entry.name] = entry, content
    signing = _signing_key(key, here)
    index, gone = extended(index_there(place, signing), [entry for entry, _ in new.values()], place.folder)
    text = msgspec.json.format(msgspec.json.encode(index), indent=1) + b"\n"
    for entry, content in new.values():
        write_file(place.folder / f"{entry.name}.toml", content, make_folder=True)
    # The recipes first: whoever pulls meanwhile is told that something does not fit, and takes nothing.
    write_file(place.folder / INDEX, text)
    write_file(place.folder / SIGNATURE, sign(text, signing))
    if json:
        print_data(json_text(Pushed(folder=place.shown, key=signing.print, gone=gone, index=index)))
    for name in gone:
        _say(f"{name} is no longer there, and no longer in the index")
    _say(f"{place.shown} has {counted(len(index.recipes), 'recipe')}, signed by {signing.print}")
    _say(f"others: builddoctor recipe pull {shell_word(place.shown)} --key {signing.print}")


def _packed(wanted: str, here: Path) -> tuple[IndexedRecipe, bytes]:
    """A recipe as others get it: its file as it is, with its comments."""
    found = find_recipe(wanted, os.environ, here)
    assert found.recipe is not None, "unreadable recipes were refused"
    if found.path is None:
        return _entry(found.name, dump(found.recipe).encode())
    try:
        return _entry(found.path.stem, found.path.read_bytes())
    except OSError as error:
        raise RecipeError(f"{escaped(str(found.path))}: {error.strerror}") from error


def _entry(name: str, content: bytes) -> tuple[IndexedRecipe, bytes]:
    return entry_of(name, content, recipe_of(content, name)), content


def _signing_key(named: str, here: Path) -> SigningKey:
    if named:
        return read_key(Path(here, os.path.expanduser(named)))
    own = user_file(os.environ).with_name(KEY_FILE)
    if not own.exists():
        make_key(own)
        _say(f"made a key of your own, which signs what you push: {printable(str(own))}")
    return read_key(own)


def _taken(place: Place, entry: IndexedRecipe, folder: Path, *, dry_run: bool) -> PulledRecipe:
    """One recipe, which is there and right afterwards."""
    path = folder / f"{entry.name}.toml"
    if has(path, entry):
        return PulledRecipe(name=entry.name, path=printable(str(path)), state="unchanged")
    taken = PulledRecipe(name=entry.name, path=printable(str(path)), state="renewed" if path.exists() else "new")
    if not dry_run:
        write_file(path, fetch(place, entry), example="recipe.toml")
    return taken


def _remember(folder: Path, source: PullSource) -> None:
    write_file(source_file(folder), msgspec.json.encode(source) + b"\n", make_folder=True)


def _line(entry: IndexedRecipe, taken: PulledRecipe) -> str:
    what = " ".join(filter(None, (entry.project, entry.version, ",".join(entry.archs), entry.host_arch)))
    return f"{taken.state:<9}  {entry.name}  ({'; '.join(filter(None, (what, entry.machine)))})"


def _say(text: str) -> None:
    print_notes([f"builddoctor: {text}"])
