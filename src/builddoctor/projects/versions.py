"""Versions of projects, compared as people number them. Pure.

Covers: ``2.8``, ``v2.8.0``, ``release_v2.3``, ``2.8.3.post2``. What cannot be read (``main``, a commit) is newer than
any number: facts that have ended by then do not hold for it, and later ones do.
Does *not* cover: PEP 440 in full; nothing here is ordered by it.
"""

from __future__ import annotations

import re

from builddoctor.model.known_project import VersionNote

_NUMBERS = re.compile(r"(?:^|[^0-9a-zA-Z])v?(?P<numbers>\d+(?:\.\d+)*)")


def numbers_of(version: str) -> tuple[int, ...] | None:
    """``(2, 8, 3)``; None for what is no version."""
    match = _NUMBERS.search(version.strip())
    return tuple(int(each) for each in match["numbers"].split(".")) if match else None


def is_before(version: str, other: str) -> bool:
    """An older one than ``other``, which is a number; 2.8 and 2.8.0 are the same."""
    ours, theirs = numbers_of(version), numbers_of(other)
    if ours is None or theirs is None:
        return False
    length = max(len(ours), len(theirs))
    return ours + (0,) * (length - len(ours)) < theirs + (0,) * (length - len(theirs))


def holds_for(note: VersionNote, version: str) -> bool:
    """The note is true of this version."""
    return not (note.since and is_before(version, note.since)) and not (
        note.until and not is_before(version, note.until)
    )
