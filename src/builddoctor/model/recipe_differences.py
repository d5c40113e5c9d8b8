"""Two recipes side by side. Does *not* cover: working it out (``recipes.comparing``)."""

from __future__ import annotations

from typing import Literal

import msgspec

from builddoctor.model.recipe import Hazard


class UnitPeak(msgspec.Struct, frozen=True, kw_only=True):
    """A unit that only one of them has."""

    place: str
    output: str
    peak_mib: float
    cpu_s: float


class UnitChange(msgspec.Struct, frozen=True, kw_only=True):
    """A unit whose figures differ by more than they spread."""

    place: str
    output: str
    memory: Literal["grew", "shrank", ""]
    """empty: within its spread"""
    time: Literal["slowed", "sped up", ""]
    before_mib: float
    after_mib: float
    before_s: float
    after_s: float
    source_changed: bool
    options_changed: bool


class Differences(msgspec.Struct, frozen=True, kw_only=True):
    """All of it; ``before`` is the first recipe."""

    before: str
    """project and version"""
    after: str
    toolchain: tuple[str, ...] = ()
    """in words"""
    added: tuple[UnitPeak, ...] = ()
    removed: tuple[UnitPeak, ...] = ()
    changed: tuple[UnitChange, ...] = ()
    """the largest change of memory first"""
    same: int = 0
    """units within their spread"""
    hazards_added: tuple[Hazard, ...] = ()
    hazards_removed: tuple[Hazard, ...] = ()
    environment: tuple[str, ...] = ()
    """in words"""
