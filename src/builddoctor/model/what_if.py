"""The same build at other memory limits and cores: what the simulator answers, for whoever shows it."""

from __future__ import annotations

import msgspec


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """One simulated build."""

    cores: int
    limit_mib: float
    as_it_was: bool
    """these are the cores and the limit of the recorded build"""
    makespan_s: float | None
    """None when it would not complete"""
    problem: str = ""
    """why not, in words"""
    redone: int = 0
    """phases that would be killed and run again"""
    plain_s: float | None
    """a build tool with MAX_JOBS = cores and nobody to look after it; None when a compiler would be killed"""


class WhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """A table of them: every limit with every number of cores."""

    scenarios: tuple[Scenario, ...]
    cores: tuple[int, ...]
    limits_mib: tuple[float, ...]
    phases: int
    at_least: int
    """phases that never ran to their end: taken with what they held when they were stopped"""
    left_out: str = ""
    """what is not simulated and why; empty when all of the build is"""
