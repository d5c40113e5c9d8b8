"""Phases that run: what each is taken to need, and all of them together. Pure.

Covers: the expected size of a running phase, its spread, and their sum.
Does *not* cover: whether another may start (``policy.governor``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from builddoctor.model.phase import Estimate, Phase

OVERRUN_FACTOR = 1.2
"""A phase past its reservation is taken to want this much of what it holds."""


class Running(msgspec.Struct):
    """One phase that was admitted and has not ended."""

    phase: Phase
    estimate: Estimate
    admitted_at_s: float
    alone: bool
    budget_mib: float
    """the budget when it was admitted"""
    rss_mib: float = 0.0
    killed: bool = False
    runaway: str = ""
    """why we ended it as one"""

    @property
    def expected_mib(self) -> float:
        """What it is taken to need at most, without its spread."""
        if self.rss_mib <= self.estimate.peak_mib:
            return self.estimate.peak_mib
        if self.rss_mib <= self.estimate.reserve_mib:
            return self.rss_mib
        return self.rss_mib * OVERRUN_FACTOR

    @property
    def spread_mib(self) -> float:
        """How far above that it may go: nothing is left of it once it went there."""
        return max(0.0, self.estimate.reserve_mib - self.expected_mib)


class Load(msgspec.Struct, frozen=True):
    """All running phases together, taken once and asked many times."""

    count: int = 0
    expected_mib: float = 0.0
    squares_mib2: float = 0.0
    """sum of the squares of spreads: many phases do not all go to their bounds at once"""
    killing: bool = False
    """one of them was ended, and its memory is not back yet"""

    @property
    def committed_mib(self) -> float:
        """What they hold or may still take."""
        return self.expected_mib + math.sqrt(self.squares_mib2)

    def with_one(self, estimate: Estimate) -> Load:
        """As it would be with one phase more."""
        return Load(
            self.count + 1,
            self.expected_mib + estimate.peak_mib,
            self.squares_mib2 + estimate.spread_mib**2,
            self.killing,
        )


def load_of(running: Iterable[Running]) -> Load:
    """The sum of what runs."""
    count, expected_mib, squares_mib2, killing = 0, 0.0, 0.0, False
    for run in running:
        count += 1
        expected_mib += run.expected_mib
        squares_mib2 += run.spread_mib**2
        killing = killing or run.killed
    return Load(count, expected_mib, squares_mib2, killing)
