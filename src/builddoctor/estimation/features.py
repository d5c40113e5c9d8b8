"""What there is to go by for a phase: sorts of evidence, each with its figure and features to compare phases by.

Covers: notes on a unit's phases that have ended, and the clues they and a phase's own input give.
Does *not* cover: turning clues into sizes (``estimation.estimator``) or the past (``estimation.past``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from builddoctor.core.past import PastUnit, UnitKey
from builddoctor.core.phase import ExpectedPhase, Phase, PhaseKind
from builddoctor.estimation.past import SAME_INPUT, size_of, to_come
from builddoctor.estimation.priors import Sort

PREPROCESSED_MIB = 0.5
"""Host code of this size comes from cudafe++, or was preprocessed: the front end's work shows in its size."""

C_COMPILER = "cc1"
"""gcc's"""

MOST_KEPT = 64
"""Ended phases noted of one unit."""


class Done(msgspec.Struct, frozen=True):
    """A phase of this build that ended well."""

    phase: Phase
    peak_mib: float
    wall_s: float


class UnitNotes:
    """What this build and earlier ones know of one unit."""

    def __init__(self) -> None:
        self.key: UnitKey | None = None
        self.past: PastUnit | None = None
        self.arch_count = 1
        self.teaches = True
        """what it takes says something of other units"""
        self.done: list[Done] = []
        self.front_end: Done | None = None
        self.cicc: Done | None = None
        """the largest so far"""
        self.cicc_s = 0.0
        """the longest so far"""
        self.staleness = 0.0
        """how far this build's phases lie from the unit's past, as a residual"""
        self.version = 0
        self.walls: dict[int, float] = {}
        """by phase: seconds that the past says; 0 where it does not"""
        self.remaining: dict[int, tuple[int, float, float]] = {}
        """by phase: version of these notes, seconds that were guessed, seconds that the past says"""

    def to_come(self, phase: Phase | None) -> Sequence[ExpectedPhase]:
        """Phases of the unit after ``phase`` (None: all of it), in order; empty for a unit without a past."""
        return to_come(self.past, (each.phase for each in self.done), phase)

    def note(self, done: Done) -> None:
        """A phase of the unit ended."""
        self.version += 1
        self.remaining.clear()
        self.walls.clear()
        if len(self.done) < MOST_KEPT:
            self.done.append(done)
        if done.phase.kind is PhaseKind.CUDAFE:
            self.front_end = done
        elif done.phase.kind is PhaseKind.CICC:
            self.cicc_s = max(self.cicc_s, done.wall_s)
            if self.cicc is None or done.peak_mib > self.cicc.peak_mib:
                self.cicc = done


class Clue(msgspec.Struct, frozen=True):
    """One piece of evidence: a figure of the sort's own (MiB of input, or of an earlier phase), and features."""

    sort: Sort
    x: float
    features: tuple[float, ...] = ()


def clues(phase: Phase, notes: UnitNotes) -> list[Clue]:
    """Everything there is to go by, the past left out; never empty."""
    kind, size = phase.kind, size_of(phase)
    by_size = (_log(size),)
    if kind is PhaseKind.PREPROCESS:
        # nvcc asks the host compiler for its predefined macros, with an empty input.
        found = [Clue(Sort.PREPROCESS, size, by_size) if size > 0 else Clue(Sort.NOTHING, size)]
        same = [each.peak_mib for each in notes.done if each.phase.kind is kind and _same_input(each.phase, phase)]
        return [*found, Clue(Sort.SAME_INPUT, max(same))] if same else found
    if kind is PhaseKind.CUDAFE:
        return [Clue(Sort.FRONT_END, size, by_size)]
    if kind is PhaseKind.CICC:
        return _of_cicc(phase, notes, by_size)
    if kind is PhaseKind.PTXAS:
        return [Clue(Sort.PTXAS, size, by_size)]
    if kind is PhaseKind.HOST:
        found = [_of_host(phase.tool, size, notes, by_size)]
        if size >= PREPROCESSED_MIB and found[0].sort is not Sort.HOST_OF_SIZE:
            # Where the host compiler has no part in what keeps cicc busy, sizes tell which units are alike.
            found.append(Clue(Sort.HOST_OF_SIZE, size, by_size))
        return found
    return [Clue(Sort.LINK, size, by_size)]


def _of_cicc(phase: Phase, notes: UnitNotes, by_size: tuple[float, ...]) -> list[Clue]:
    front_end = notes.front_end
    if front_end is None:
        found = [Clue(Sort.CICC_OF_SIZE, size_of(phase), by_size)]
    else:
        peak_mib = front_end.peak_mib
        found = [Clue(Sort.CICC_OF_FRONT_END, peak_mib, (_log(peak_mib), *by_size))]
    if notes.cicc is not None:
        found.append(Clue(Sort.CICC_OF_CICC, notes.cicc.peak_mib))
    return found


def _of_host(tool: str, size: float, notes: UnitNotes, by_size: tuple[float, ...]) -> Clue:
    if notes.cicc is not None:
        peak_mib = notes.cicc.peak_mib
        # A unit with many instantiations keeps cicc busy for long, and the host compiler after it.
        return Clue(Sort.HOST_OF_CICC, peak_mib, (_log(peak_mib), _log(notes.cicc_s)))
    if notes.front_end is not None:
        return Clue(Sort.HOST_OF_FRONT_END, notes.front_end.peak_mib, (_log(notes.front_end.peak_mib),))
    if size >= PREPROCESSED_MIB:
        return Clue(Sort.HOST_OF_SIZE, size, by_size)
    return Clue(Sort.HOST_C if tool == C_COMPILER else Sort.HOST_PLAIN, size)


def _same_input(one: Phase, other: Phase) -> bool:
    return one.tool == other.tool and abs(size_of(one) - size_of(other)) <= SAME_INPUT * size_of(other)


def _log(value: float) -> float:
    """A logarithm that takes anything; sizes and times below a hundredth are alike."""
    return math.log(min(max(value, 0.0), 1e12) + 0.01)
