"""Wheels that were fetched before, each with its sha256 beside it: what an interrupted installation goes on with.

Does *not* cover: fetching them (``intercept.pip``). Who changes the folder holds its lock (``toolkits.store``).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from packaging.requirements import Requirement
from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

_CHUNK_BYTES = 1024 * 1024


class WheelCache:
    """A folder of wheels, for machines of one kind (``platforms`` as pip names them)."""

    def __init__(self, folder: Path, platforms: Sequence[str]) -> None:
        self.folder = folder
        self._platforms = {*platforms, "any", *(f"manylinux{old}" for old in _older(platforms))}

    def best(self, requirement: str) -> Path | None:
        """The newest wheel here that satisfies it; its contents are not looked at."""
        need = Requirement(requirement)
        found: list[tuple[Version, str]] = []
        for name in _names(self.folder):
            try:
                package, version, _, tags = parse_wheel_filename(name)
            except InvalidWheelFilename:
                continue
            if package == canonicalize_name(need.name) and self._fits(tags) and need.specifier.contains(version):
                found.append((version, name))
        return self.folder / max(found)[1] if found else None

    def checked(self, wheel: Path) -> str:
        """The wheel's sha256 when it is still what was fetched; empty, and the wheel gone, when it is not."""
        try:
            noted = _note(wheel).read_text().strip()
            if noted and noted == sha256_of(wheel):
                return noted
        except (OSError, UnicodeDecodeError):
            pass
        for path in (wheel, _note(wheel)):
            path.unlink(missing_ok=True)
        return ""

    def add(self, wheel: Path) -> Path:
        """Take a wheel that was fetched into a folder on the same disk. Raises OSError."""
        kept = self.folder / wheel.name
        note = _note(wheel)
        note.write_text(sha256_of(wheel) + "\n")
        # The wheel comes last: without it, a note says nothing.
        os.replace(note, _note(kept))
        os.replace(wheel, kept)
        return kept

    def _fits(self, tags: frozenset[Tag]) -> bool:
        return any(
            tag.interpreter.startswith("py") and tag.abi == "none" and tag.platform in self._platforms for tag in tags
        )


def sha256_of(path: Path) -> str:
    """Raises OSError."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _note(wheel: Path) -> Path:
    return wheel.with_name(f"{wheel.name}.sha256")


def _names(folder: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return sorted(name for name in os.listdir(folder) if name.endswith(".whl"))
    return []


def _older(platforms: Sequence[str]) -> list[str]:
    """``1_x86_64``, ``2010_x86_64``: names from before versions of glibc were in them."""
    archs = {name.removeprefix("linux_") for name in platforms if name.startswith("linux_")}
    return [f"{old}_{arch}" for old in ("1", "2010", "2014") for arch in archs] + [
        f"_2_{minor}_{arch}" for minor in range(5, 17) for arch in archs
    ]
