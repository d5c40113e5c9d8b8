"""What Ninja would compile in a project's folder.

Covers: every object of every build.ninja below it, built or not.
Does *not* cover: which of them the default target needs.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import msgspec

SOURCES = (".cu", ".cpp", ".cc", ".cxx", ".c")


class NinjaObject(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One object file."""

    place: str
    """of its source, below the project's folder"""
    target: str
    """its path below Ninja's folder; empty outside of that"""
    called: str
    """what Ninja calls it"""
    ninja: Path
    """Ninja's folder"""


class _Entry(msgspec.Struct):
    directory: str
    file: str
    output: str


def ninja_objects(folder: Path) -> list[NinjaObject]:
    """Sorted. Sources outside of the folder are left out."""
    found = []
    root = folder.resolve()
    for file in root.rglob("build.ninja"):
        said = subprocess.run(["ninja", "-C", file.parent, "-t", "compdb"], check=True, capture_output=True).stdout
        for each in msgspec.json.decode(said, type=list[_Entry]):
            place = os.path.relpath(os.path.normpath(os.path.join(each.directory, each.file)), root)
            if not place.endswith(SOURCES) or place.startswith("..") or not each.output.endswith(".o"):
                continue
            target = os.path.relpath(os.path.join(file.parent, each.output), file.parent)
            found.append(
                NinjaObject(
                    place=place,
                    target="" if target.startswith("..") else target,
                    called=each.output,
                    ninja=file.parent,
                )
            )
    return sorted(found)
