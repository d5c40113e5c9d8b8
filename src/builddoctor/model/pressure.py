"""How hard the kernel works for memory: one look at its counters. All of them only ever grow."""

from __future__ import annotations

import msgspec


class PressureReading(msgspec.Struct, frozen=True, kw_only=True):
    """What could be read at one moment; None for what this kernel does not tell."""

    some_s: float | None = None
    """time that at least one task stalled on memory (PSI ``some``), in total"""
    full_s: float | None = None
    """time that all tasks stalled on memory (PSI ``full``), in total"""
    refault_mib: float | None = None
    """memory that was read in again soon after it had been dropped, in total"""
    fullness: float | None = None
    """use of the fullest level as a share of its limit; page cache counts as use in a cgroup, and not on the host"""
