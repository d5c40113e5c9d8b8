"""Recipes that go from one machine to another: a folder or an address with a signed index of them.

Covers: the index and each recipe, read within bounds and refused unless they are exactly what a trusted key signed;
which key that is; the index of a folder that others take recipes from. Order of checks: the signature on the index's
bytes, the key that made it, the index itself, then size, sha256 and form of each recipe. Nothing of a later step is
looked at before the earlier ones have passed.
Does *not* cover: writing (``cli``), keys and signatures as such (``signing``), what a recipe may say
(``recipe_file``).
"""

from __future__ import annotations

import difflib
import hashlib
import os
import re
import stat
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from builddoctor.core.errors import RecipeError, SourceNotFoundError, UsageError
from builddoctor.core.recipe import LARGEST_FILE, Recipe
from builddoctor.core.recipe_index import IndexedRecipe, KeyPrint, PullSource, RecipeIndex, RecipeName
from builddoctor.core.units import counted, escaped, one_line, printable, shell_word
from builddoctor.projects.sources.web import NotThereError, Web, shown
from builddoctor.recipes.match import squeezed
from builddoctor.recipes.recipe_file import recipe_of
from builddoctor.recipes.shelf import PULLED, SOURCE, is_safe, pull_source, user_folder
from builddoctor.recipes.signing import LARGEST_KEY, LARGEST_SIGNATURE, SigningKey, print_of_line, signer

INDEX = "index.json"
SIGNATURE = "index.json.sig"
LARGEST_INDEX = 1024 * 1024
"""bytes; a thousand recipes have 400 KB"""

_NO_ANSWER = "try again, or ask those who keep it; PIP_CERT or SSL_CERT_FILE names a file with other certificates"

MOST_PULLED = 256 * 1024 * 1024
"""bytes of all recipes of one pull"""


class SignedIndex(NamedTuple):
    """The bytes of an index whose signature is right, by whoever."""

    content: bytes
    key: str
    """fingerprint of the key that made it"""


class PulledFolder(NamedTuple):
    """Where recipes of one place go on this machine."""

    folder: Path
    source: PullSource | None
    """what is known of it; None before the first pull"""


class Place:
    """A folder, or an address below which the files of one are served."""

    def __init__(self, where: str, env: Mapping[str, str], cwd: Path) -> None:
        """Raises UsageError, and RecipeError for an address that anybody on the way could change."""
        self._env = env
        self._url = ""
        where = where.removesuffix(f"/{INDEX}")
        if where.endswith(".toml"):
            raise UsageError(
                f"{escaped(where)[:300]} is one recipe, and recipes are pulled from a folder with an index",
                hint="`builddoctor build PROJECT --recipe FILE|https://….toml` takes one as it is",
            )
        scheme = urllib.parse.urlsplit(where).scheme.lower() if "://" in where else ""
        if scheme and scheme != "file":
            self._url = _base(where)
            self.shown = one_line(_without_password(self._url))
            return
        if not where.strip():
            raise UsageError("the folder's name is empty", hint="builddoctor recipe pull https://example.org/recipes")
        named = urllib.parse.unquote(urllib.parse.urlsplit(where).path) if scheme else os.path.expanduser(where)
        self.folder = Path(os.path.abspath(Path(cwd, named)))
        self.shown = one_line(printable(str(self.folder)))

    @property
    def is_folder(self) -> bool:
        return not self._url

    def file(self, name: str) -> str:
        """What one of its files is called in a message."""
        return f"{self.shown}/{name}"

    def read(self, name: str, *, most_bytes: int, hint: str) -> bytes:
        """A file of it. Raises RecipeError: not there, no plain file, or larger than that."""
        try:
            content = self._read(name, most_bytes)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise RecipeError(f"{self.file(name)}: {escaped(reason)}", hint=hint) from error
        except SourceNotFoundError as error:
            hint = hint if isinstance(error, NotThereError) else _NO_ANSWER
            raise RecipeError(str(error), hint=hint) from error
        if len(content) > most_bytes:
            raise RecipeError(f"{self.file(name)}: it is larger than {most_bytes} bytes", hint=hint)
        return content

    def _read(self, name: str, most_bytes: int) -> bytes:
        if self.is_folder:
            # Not blocking: it may be a pipe.
            with open(os.open(self.folder / name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
                if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                    raise ValueError("no plain file")
                return stream.read(most_bytes + 1)
        return Web(self._env).page(f"{self._url}/{name}", most_bytes=most_bytes, allowed=is_safe)[0]


def read_index(place: Place) -> SignedIndex:
    """Raises RecipeError where it is not there or not whole, ExtraMissingError."""
    hint = "is that the folder of an index? `builddoctor recipe push FOLDER RECIPE` makes one"
    if place.is_folder and not place.folder.exists():
        hint = "an address begins with https://, as in builddoctor recipe pull https://example.org/recipes"
    content = place.read(INDEX, most_bytes=LARGEST_INDEX, hint=hint)
    signature = place.read(SIGNATURE, most_bytes=LARGEST_SIGNATURE, hint="an index without a signature is not used")
    return SignedIndex(content, signer(content, signature, place.file(SIGNATURE)))


def trusted(
    found: SignedIndex, place: Place, *, named: str, known: PullSource | None, again: Sequence[str]
) -> RecipeIndex:
    """What is in an index of a key that somebody here has trusted.

    ``named``: the fingerprint that the user gave, which goes before the ``known`` one; empty for none. ``again``: the
    words of the command, for a hint. Raises RecipeError for another key, and for what is no index.
    """
    command = " ".join(["builddoctor recipe pull", *map(shell_word, again), "--key", found.key])
    wanted = named or (known.key if known is not None else "")
    if not wanted:
        raise RecipeError(
            f"{place.shown} is signed by {found.key}, which you have not said to trust",
            hint=f"ask those who keep it whether that is their key, then: {command}",
        )
    if wanted != found.key:
        by = "named" if named else "trusted there until now"
        raise RecipeError(
            f"{place.shown} is signed by {found.key}, and the key {by} is {wanted}",
            hint=f"nothing was taken; only where those who keep it say that they changed their key: {command}",
        )
    return _index(found.content, place.file(INDEX))


def key_named(text: str, cwd: Path) -> str:
    """A fingerprint, a public key as text, or the file of one; gives its fingerprint. Raises UsageError."""
    hint = "--key SHA256:… as `builddoctor recipe push` or `ssh-keygen -lf KEY.pub` prints it, or --key KEY.pub"
    text = text.strip()
    try:
        return msgspec.convert(text, KeyPrint)
    except msgspec.ValidationError:
        pass
    if found := print_of_line(text):
        return found
    path = Path(cwd, os.path.expanduser(text))
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_KEY).decode(errors="replace")
    except (OSError, ValueError) as error:
        raise UsageError(f"--key {escaped(text)[:200]}: neither a fingerprint nor a file", hint=hint) from error
    if "PRIVATE KEY" in content:
        raise UsageError(f"{escaped(text)} is a private key, which only those need who sign", hint=f"--key {text}.pub")
    if found := print_of_line(content):
        return found
    raise UsageError(f"{escaped(text)} is no public key of the kind ssh-ed25519", hint=hint)


def choose(index: RecipeIndex, names: Sequence[str], place: Place) -> list[IndexedRecipe]:
    """Those of these names, of recipes or of projects; all for none. Raises RecipeError for a name that is none."""
    chosen: dict[str, IndexedRecipe] = {}
    for name in names:
        found = [each for each in index.recipes if squeezed(name) in (squeezed(each.name), squeezed(each.project))]
        if not found:
            there = list(dict.fromkeys(word for each in index.recipes for word in (each.project, each.name)))
            near = [word for word in there if squeezed(word).startswith(squeezed(name))] if squeezed(name) else []
            near = near or difflib.get_close_matches(name, there)
            meant = f"did you mean {' or '.join(f'`{each}`' for each in near[:3])}? " if near else ""
            raise RecipeError(
                f"no recipe of {place.shown} is called {escaped(name)[:200]!r}",
                hint=f"{meant}`builddoctor recipe pull {shell_word(place.shown)} --dry-run` shows those there are",
            )
        chosen.update((each.name, each) for each in found)
    entries = list(chosen.values()) if names else list(index.recipes)
    if sum(each.size_bytes for each in entries) > MOST_PULLED:
        raise RecipeError(
            f"those are {counted(len(entries), 'recipe')} of more than {MOST_PULLED // 1024**2} MiB together",
            hint="name the ones that you need: builddoctor recipe pull WHERE PROJECT",
        )
    return entries


def fetch(place: Place, entry: IndexedRecipe) -> bytes:
    """A recipe's file, exactly as it was signed. Raises RecipeError."""
    name = f"{entry.name}.toml"
    content = place.read(name, most_bytes=LARGEST_FILE, hint="ask those who keep the recipes to push it again")
    digest = hashlib.sha256(content).hexdigest()
    if len(content) != entry.size_bytes or digest != entry.sha256:
        raise RecipeError(
            f"{place.file(name)} is not what was signed: {len(content)} bytes with sha256 {digest[:16]}…, not "
            f"{entry.size_bytes} with {entry.sha256[:16]}…",
            hint="it was not taken; try again in a minute, and if it stays so ask those who keep it",
        )
    recipe_of(content, place.file(name))
    return content


def pulled_folder(place: Place, env: Mapping[str, str]) -> PulledFolder:
    """One folder a place, so that recipes of two places with one name do not meet."""
    words = re.sub(r"[^A-Za-z0-9.]+", "-", place.shown.partition("://")[2] or place.shown).strip("-.")[-60:]
    folder = user_folder(env) / PULLED / f"{words}-{hashlib.sha256(place.shown.encode()).hexdigest()[:8]}"
    return PulledFolder(folder, pull_source(folder))


def source_file(folder: Path) -> Path:
    """That says where a folder's recipes came from."""
    return folder / SOURCE


def has(path: Path, entry: IndexedRecipe) -> bool:
    """The file is this recipe, as it was signed."""
    try:
        return path.stat().st_size == entry.size_bytes and hashlib.sha256(path.read_bytes()).hexdigest() == entry.sha256
    except OSError:
        return False


def entry_of(name: str, content: bytes, recipe: Recipe) -> IndexedRecipe:
    """Raises RecipeError for a name that no index may hold."""
    try:
        msgspec.convert(name, RecipeName)
    except msgspec.ValidationError as error:
        raise RecipeError(
            f"{escaped(name)[:200]!r} is no name for others: letters, digits and . _ + -, up to 100",
            hint="rename the file, as in te-2.8-sm_100.toml",
        ) from error
    return IndexedRecipe(
        name=name,
        project=recipe.project.name,
        version=recipe.project.version,
        archs=recipe.fingerprint.archs,
        host_arch=recipe.fingerprint.host_arch,
        machine=recipe.origin.machine,
        size_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )


def index_there(place: Place, key: SigningKey) -> RecipeIndex:
    """The folder's index as this key signed it; an empty one before there is any.

    Raises RecipeError for one that another key signed, or that was changed: signing it again would vouch for it.
    """
    if not (place.folder / INDEX).exists() and not (place.folder / SIGNATURE).exists():
        return RecipeIndex(schema=1, recipes=())
    try:
        found = read_index(place)
    except RecipeError as error:
        files = shell_word(str(place.folder / INDEX))
        anew = f"if you vouch for all that is in that folder: `rm -f {files} {files}.sig`, and push every recipe again"
        raise RecipeError(str(error), hint=anew) from error
    if found.key != key.print:
        raise RecipeError(
            f"{place.shown} has an index signed by {found.key}, and your key is {key.print}",
            hint="sign with the same key (--key FILE), or push into a folder of your own",
        )
    return _index(found.content, place.file(INDEX))


def extended(old: RecipeIndex, new: Iterable[IndexedRecipe], folder: Path) -> tuple[RecipeIndex, tuple[str, ...]]:
    """The index with these in it, and the names of those that are gone. Raises RecipeError where a file was changed."""
    entries = {each.name: each for each in new}
    gone: list[str] = []
    for each in old.recipes:
        if each.name in entries:
            continue
        path = folder / f"{each.name}.toml"
        if not path.exists():
            gone.append(each.name)
        elif not has(path, each):
            raise RecipeError(
                f"{escaped(str(path))} is not what was signed",
                hint=f"if you changed it, push it too: builddoctor recipe push {shell_word(str(folder))} "
                f"{shell_word(str(path))}",
            )
        else:
            entries[each.name] = each
    return RecipeIndex(schema=1, recipes=tuple(entries[name] for name in sorted(entries))), tuple(gone)


def _index(content: bytes, where: str) -> RecipeIndex:
    hint = "a newer builddoctor may read it: pip install -U builddoctor; else ask those who keep it"
    try:
        index = msgspec.json.decode(content, type=RecipeIndex)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise RecipeError(f"{where}: {escaped(str(error))[:300]}", hint=hint) from error
    names = [each.name for each in index.recipes]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise RecipeError(f"{where}: {twice[0]} is in it twice", hint=hint)
    return index


def _base(url: str) -> str:
    """Raises UsageError and RecipeError."""
    parts = urllib.parse.urlsplit(url)
    if parts.query or parts.fragment:
        raise UsageError(
            f"{shown(url)} is the address of one page; recipes are pulled from a folder's",
            hint="without what follows the ? or #: builddoctor recipe pull https://example.org/recipes",
        )
    if not is_safe(url):
        raise RecipeError(
            f"{shown(url)}: recipes come over https, so that nobody on the way sees or changes them",
            hint="use https://…, or a folder",
        )
    return url.rstrip("/")


def _without_password(url: str) -> str:
    parts = urllib.parse.urlsplit(url)
    return urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
