"""The folder of sources that were got before: one subfolder each, complete or not there.

``FOLDER/NAME-VERSION-KEY/`` holds a tree, ``….json`` beside it tells what it is; a name ending in ``.part`` is an
unfinished one, which the next try goes on with. Does *not* cover: getting them.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from builddoctor.errors import FolderNotWritableError


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """What one tree is."""

    name: str
    version: str
    place: str
    """the package, or the address of the repository or archive"""
    origin: str
    digest: str
    """sha256 of an archive, or the commit"""
    inside: str = ""
    """the project's folder in the tree"""


class Store:
    """Trees kept in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """One at a time: another builddoctor that wants the same waits, and finds it there."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise FolderNotWritableError(
                f"cannot keep sources in {self.folder}: {error.strerror}",
                hint="name another folder: `export BUILDDOCTOR_CACHE_DIR=/some/folder`",
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def tree(self, name: str, version: str, place: str) -> Path:
        """Where such a tree lies, or will lie."""
        key = hashlib.sha256(f"{place}\0{version}".encode()).hexdigest()[:8]
        plain = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{name}-{version}" if version else name).strip("-.")
        return self.folder / f"{plain[:80]}-{key}"

    def find(self, tree: Path) -> Entry | None:
        """What the tree is; None when it is not there, or not whole."""
        try:
            entry = msgspec.json.decode(_note(tree).read_bytes(), type=Entry)
        except (OSError, msgspec.MsgspecError):
            return None
        return entry if (tree / entry.inside).is_dir() else None

    def newest(self, name: str, place: str) -> tuple[Path, Entry] | None:
        """The tree of this project and place that was got last, whatever its version."""
        found = []
        with contextlib.suppress(OSError):
            for note in self.folder.glob("*.json"):
                tree = note.with_suffix("")
                entry = self.find(tree)
                if entry is not None and (entry.name, entry.place) == (name, place):
                    found.append((note.stat().st_mtime_ns, str(tree), entry))
        if not found:
            return None
        _, tree_name, entry = max(found, key=lambda each: each[:2])
        return Path(tree_name), entry

    def unfinished(self, tree: Path) -> Path:
        """A folder to get it into; what an earlier try left is in it."""
        part = tree.with_name(tree.name + ".part")
        part.mkdir(parents=True, exist_ok=True)
        return part

    def keep(self, part: Path, tree: Path, entry: Entry) -> None:
        """It is whole now."""
        if tree.exists():
            shutil.rmtree(tree)
        os.replace(part, tree)
        temporary = _note(tree).with_suffix(".new")
        temporary.write_bytes(msgspec.json.format(msgspec.json.encode(entry), indent=2) + b"\n")
        os.replace(temporary, _note(tree))


def _note(tree: Path) -> Path:
    return tree.with_name(tree.name + ".json")
