"""The list of recipes that others may take from one place, and what moving them did.

Covers: the shapes, from which ``index.json`` and its JSON Schema are made. Names are names of files in the index's own
folder: nothing that leads out of it. Does *not* cover: its signature (``recipes.signing``), or reading and checking it
(``recipes.travel``).
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from builddoctor.core.recipe import END, LARGEST_FILE, Arch, Line, Word

MOST_RECIPES = 1000
"""of one index"""

RecipeName = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9_.+-]{0,99}" + END,
        description="a recipe's file without .toml: letters, digits and . _ + -, no .., up to 100",
        examples=["demo-1.2-sm_90"],
    ),
]
Sha256 = Annotated[
    str, msgspec.Meta(pattern=r"^[0-9a-f]{64}" + END, description="64 of the characters 0 to 9 and a to f")
]
KeyPrint = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^SHA256:[A-Za-z0-9+/]{43}" + END,
        description="a key's fingerprint, as ssh-keygen prints it",
        examples=["SHA256:+ZCm9EXafmGGQgMUu2GthIchbHvZBpdz06ulL+9Ce/k"],
    ),
]


class IndexedRecipe(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One recipe of an index."""

    name: RecipeName
    """its file is ``NAME.toml``, beside the index"""
    project: Word
    """what the project calls itself"""
    version: Word = ""
    """that was built"""
    archs: Annotated[tuple[Arch, ...], msgspec.Meta(max_length=100)] = ()
    """that it was built for"""
    host_arch: Word = ""
    """``x86_64``, ``aarch64``"""
    machine: Line = ""
    """that it was measured on: processor, cores and memory"""
    size_bytes: Annotated[int, msgspec.Meta(ge=1, le=LARGEST_FILE)]
    """of its file"""
    sha256: Sha256
    """of its file"""


class RecipeIndex(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``index.json``; ``index.json.sig`` beside it signs these bytes."""

    schema: Literal[1]
    """version of this file's form"""
    recipes: Annotated[tuple[IndexedRecipe, ...], msgspec.Meta(max_length=MOST_RECIPES)]
    """by name"""


class PullSource(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``source.json`` beside pulled recipes: where they came from, and whose signature is trusted there."""

    where: Line
    """the folder or the address, without a password"""
    key: KeyPrint


class PulledRecipe(msgspec.Struct, frozen=True, kw_only=True):
    """One recipe that was asked for."""

    name: str
    path: str
    """where it is now, or would be"""
    state: Literal["new", "renewed", "unchanged"]
    """on this machine; unchanged ones are not fetched"""


class Pulled(msgspec.Struct, frozen=True, kw_only=True):
    """What ``recipe pull --json`` prints."""

    where: str
    key: str
    """fingerprint of the key that signed the index"""
    dry_run: bool
    """nothing was written"""
    recipes: tuple[PulledRecipe, ...]


class Pushed(msgspec.Struct, frozen=True, kw_only=True):
    """What ``recipe push --json`` prints."""

    folder: str
    key: str
    """fingerprint of the key that signed the index"""
    gone: tuple[str, ...] = ()
    """names that were in the index before, and whose files are no longer there"""
    index: RecipeIndex
