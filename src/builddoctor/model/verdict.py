"""What is said of a failure: a verdict, how sure it is, its evidence, and what to do.

Covers: the words that are relied upon (``explain``, ``trace show``, the page).
Does *not* cover: how they are arrived at (``diagnose``).
"""

from __future__ import annotations

from typing import Literal, cast, get_args

import msgspec

Confidence = Literal["high", "medium", "low"]

VerdictName = Literal[
    "parallel",
    "too-big",
    "runaway",
    "rlimit",
    "cgroup-parent",
    "numa-policy",
    "tmpfs",
    "disk-full",
    "external-kill",
    "oomd",
    "scheduler-kill",
    "not-redoable",
    "toolchain",
    "source",
    "gpu-oom",
    "unknown",
]
"""``parallel``: too many at once. ``too-big``: one compiler alone does not fit. ``runaway``: it grows without end.
``rlimit``: a limit of the process, not of the machine. ``cgroup-parent``: the limit of a group that holds others too.
``not-redoable``: killed for memory, and it reads or writes a pipe. ``gpu-oom``: the GPU's memory, no build at all."""


def verdict_name(text: str) -> VerdictName:
    """The verdict of that name; of an older or newer builddoctor there may be others."""
    return cast(VerdictName, text) if text in get_args(VerdictName) else "unknown"


class Fix(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to do."""

    text: str
    command: str = ""
    """to be pasted; empty where there is none"""
    changes_binary: bool = False
    """what is built differs afterwards"""
    effect: str = ""
    """what to expect of it, in figures where they were measured, and where"""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """``verdict`` is None where nothing has to be explained: the build went well, was interrupted, or still runs."""

    verdict: VerdictName | None
    confidence: Confidence
    died: str
    """what died, in a line; empty where nothing did"""
    why: str
    cause: str = ""
    """what it was in particular: the name of an entry in the catalogue of texts, ``gcc-too-new``; empty without one"""
    evidence: list[str] = []
    fixes: list[Fix] = []
    """cheapest and least intrusive first"""
