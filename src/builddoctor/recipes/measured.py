"""One measured phase: what recipes are made of. Does *not* cover: files of them (``recipes.rows``)."""

from __future__ import annotations

import msgspec

from builddoctor.model.phase import PhaseKind


class MeasuredPhase(msgspec.Struct, frozen=True, kw_only=True):
    """One phase of a unit, as one build ran it to its end."""

    place: str
    output: str = ""
    target: str = ""
    options: str = ""
    source_digest: str = ""
    archs: tuple[str, ...] = ()
    """of the unit"""
    after_all: bool = False
    """a link"""
    kind: PhaseKind
    tool: str = ""
    arch: str = ""
    input_mib: float = 0.0
    peak_mib: float
    cpu_s: float
    run: int = 1
    """which build, from 1"""
