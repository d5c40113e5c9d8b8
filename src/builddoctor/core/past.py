"""What earlier builds took: a unit's name across builds, and the phases seen under it.

Covers: the shapes that ``history`` keeps and ``scheduler`` learns from.
Does *not* cover: the file (``history``), or how far another build's figures are trusted (``estimation.past``).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from builddoctor.core.phase import PhaseKind

Course = tuple[tuple[float, float], ...]
"""What a phase held while it ran, in steps: (until this share of its time, MiB at most). Shares rise to 1; MiB also
fall. Empty where it is not known."""


class UnitKey(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A unit by what stays the same from build to build: no absolute folder, no process, no time."""

    project: str
    """what the project calls itself, in whatever folder it lies"""
    place: str
    """the source's path below that folder; the last parts of its path when it lies elsewhere"""
    output: str = ""
    """file name of what is made"""
    options: str = ""
    """digest of the options that matter for memory; paths, outputs and architectures are not among them"""
    nvcc: str = ""
    """version, such as ``13.0.88``; empty for host code"""
    host_compiler: str = ""
    """such as ``12.2``"""
    host_arch: str = ""
    """such as ``x86_64``"""
    archs: tuple[str, ...] = ()
    """device architectures, sorted"""


class Seen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One phase as it ran to its end, or as far as it came."""

    input_mib: float
    peak_mib: float
    wall_s: float
    """0 where it did not come to its end"""
    course: Course = ()
    at_least: bool = False
    """it did not fit: it held this when it was ended for the last time"""


class PastPhase(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that is kept of one phase of a unit, oldest first."""

    kind: PhaseKind
    arch: str = ""
    tool: str = ""
    builds: int = 1
    """builds that it was seen in, also those that are no longer kept"""
    seen: tuple[Seen, ...]
    updated_at: float = 0.0
    """seconds since 1970, UTC"""
    origin: Literal["history", "recipe"] = "history"
    distance: float = 0.0
    """residual by which the figures are trusted less than their unit's key tells (``estimation.past``)"""
    spread: float = 0.0
    """residual from the median to the largest that was seen, where that is all that is known of the others"""


class PastUnit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A unit's past."""

    key: UnitKey
    phases: tuple[PastPhase, ...]


class FinishedPhase(msgspec.Struct, frozen=True, kw_only=True):
    """One phase to be remembered."""

    kind: PhaseKind
    arch: str
    tool: str
    seen: Seen


class FinishedUnit(msgspec.Struct, frozen=True, kw_only=True):
    """What one build learned of a unit."""

    key: UnitKey
    phases: tuple[FinishedPhase, ...]
    ended_at: float
    """seconds since 1970, UTC"""
