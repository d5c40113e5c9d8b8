"""Folders of recipes with an index, signed as wished."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from builddoctor.core.recipe import Recipe
from builddoctor.recipes.recipe_text import dump
from builddoctor.recipes.signing import SigningKey, make_key, read_key, sign
from builddoctor.recipes.travel import INDEX, SIGNATURE, entry_of


def new_key(path: Path) -> SigningKey:
    make_key(path)
    return read_key(path)


def signed_folder(folder: Path, key: SigningKey, **recipes: Recipe) -> Path:
    """As ``recipe push`` leaves it; names have ``_``."""
    folder.mkdir(parents=True, exist_ok=True)
    entries = []
    for name, recipe in recipes.items():
        content = dump(recipe).encode()
        (folder / f"{name}.toml").write_bytes(content)
        entries.append(msgspec.to_builtins(entry_of(name, content, recipe)))
    sign_index(folder, key, entries)
    return folder


def sign_index(folder: Path, key: SigningKey, entries: Sequence[dict[str, Any]], **changed: Any) -> None:
    """An index of whatever is wished, with a signature that is right."""
    sign_bytes(folder, key, msgspec.json.encode({"schema": 1, "recipes": entries, **changed}))


def sign_bytes(folder: Path, key: SigningKey, content: bytes) -> None:
    (folder / INDEX).write_bytes(content)
    (folder / SIGNATURE).write_bytes(sign(content, key))


def entries_of(folder: Path) -> list[dict[str, Any]]:
    """Of its index, to be changed."""
    found: list[dict[str, Any]] = msgspec.json.decode((folder / INDEX).read_bytes())["recipes"]
    return found
