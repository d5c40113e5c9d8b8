"""A line of a log that says something about a failure, as the catalogue of texts knows it.

Covers: one line and what it speaks for. Does *not* cover: looking for it (``diagnose.scanning``) or weighing it.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from builddoctor.model.verdict import VerdictName

Weight = Literal["says", "hints", "trails"]
"""``says``: the text alone tells the cause. ``hints``: it fits several. ``trails``: it comes after any failure, and is
never a cause."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One line that an entry of the catalogue knows."""

    entry: str
    """the entry's name"""
    verdict: VerdictName | None
    """what it speaks for; None for ``trails``"""
    weight: Weight
    line: int
    """from 1"""
    text: str
    """the line: without colours and prefixes of CI, what looks like a credential masked, at most 400 characters"""
    captured: tuple[tuple[str, str], ...] = ()
    """named groups of the pattern: name and text"""
