"""One phase, ready to be run again in a folder of its own: what ``trace repro`` writes down."""

from __future__ import annotations

import msgspec


class Repro(msgspec.Struct, frozen=True, kw_only=True):
    """``argv`` runs in the folder. Paths in it are relative, where ``notes`` say nothing else."""

    what: str
    """such as ``cicc sm_90 of src/gelu.cu``"""
    happened: tuple[str, ...]
    """what was seen of it, a line each"""
    tool: str
    """path of the program on the machine that it was seen on"""
    argv: tuple[str, ...]
    """without the program"""
    files: tuple[str, ...]
    versions: tuple[str, ...]
    notes: tuple[str, ...] = ()
    peak_mib: float = 0.0
    """seen"""
    wall_s: float = 0.0
    endless: bool = False
    """it must not be run without a limit"""
    builddoctor: str = ""
