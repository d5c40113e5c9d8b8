"""A unit (one translation unit, or one link) and its phases (one run of a memory-taking tool).

Covers: the shapes that gates announce and the scheduler decides on.
Does *not* cover: how a command line is read (``toolchain.command_lines``) or how much memory a phase takes
(``estimation.estimator``).
"""

from __future__ import annotations

import msgspec

from builddoctor.core.units import Mib, Whole
from builddoctor.core.word import Word


class PhaseKind(Word):
    """What a phase does. The order of a CUDA unit: preprocess, cudafe++, (preprocess, cicc, ptxas) per arch, host."""

    PREPROCESS = "preprocess"
    CUDAFE = "cudafe++"
    CICC = "cicc"
    PTXAS = "ptxas"
    HOST = "host"
    NVLINK = "nvlink"
    LINK = "link"


STORE = "(store)"
"""In the place of a machine's name: nothing ran, an earlier build has kept what the phase writes."""

THRIFTY_TOOLS = frozenset(("cc1", "cc1plus"))
"""Tools that can be told to collect garbage earlier: less memory, more time, the same output."""


class Outcome(Word):
    """How a phase ended."""

    OK = "ok"
    FAILED = "failed"
    """an exit status of its own: a compile error, say"""
    KILLED_BY_KERNEL = "killed-by-kernel"
    """SIGKILL, and a kernel OOM counter rose"""
    KILLED_BY_US = "killed-by-us"
    KILLED_OUTSIDE = "killed-outside"
    """SIGKILL without any counter: a kill from outside, or a limit that we cannot see"""
    KILLED_THERE = "killed-there"
    """on another machine, which could not hold it"""
    NODE_LOST = "node-lost"
    """with the other machine that it ran on, or the way there"""
    WITHDRAWN = "withdrawn"
    """its gate went away: the build was interrupted"""


class Unit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One translation unit as its compiler driver was called for it."""

    unit_id: str
    source: str
    """path as the driver was given it; empty for a link"""
    output: str = ""
    archs: tuple[str, ...] = ()
    """device architectures, e.g. ``sm_90``; empty for host code"""
    threads: Whole = 1
    """the driver's ``--threads``"""
    counted: bool = True
    """False for what configure steps compile to try the compiler out"""


class Phase(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One phase that asks for memory."""

    phase_id: Whole
    unit_id: str
    kind: PhaseKind
    source: str
    arch: str = ""
    input_mib: Mib = 0.0
    """size of its input file"""
    tool: str = ""
    """the program's name, e.g. ``cc1plus``"""
    redoable: bool = True
    """it can be run again; not when it reads or writes a pipe"""
    portable: bool = False
    """another machine can run it, and there may be some"""
    stored: bool = False
    """what it writes is in the store: it need not run"""
    urgent: bool = False
    """what it writes is sent with a phase that holds its place on another machine already: it comes first"""


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """Peak memory expected of a phase: median, spread above it, and where the figure comes from."""

    peak_mib: Mib
    spread_mib: Mib
    source: str

    @property
    def reserve_mib(self) -> float:
        """The most that it is expected to take."""
        return self.peak_mib + self.spread_mib

    def spread_within_mib(self, budget_mib: float) -> float:
        """How far above ``peak_mib`` it can go where the whole build may use so much; 0 where not even that fits."""
        return max(0.0, min(self.spread_mib, budget_mib - self.peak_mib))


class ExpectedPhase(msgspec.Struct, frozen=True):
    """One phase to come, or the rest of one that runs."""

    peak_mib: float
    spread_mib: float
    wall_s: float

    @property
    def estimate(self) -> Estimate:
        """Its size, as of a phase that asks."""
        return Estimate(peak_mib=self.peak_mib, spread_mib=self.spread_mib, source="")


def kind_words(kind: str, arch: str = "") -> str:
    """``cicc sm_90``; what gcc compiles is *host code*, since "host" alone is a machine to a reader."""
    shown = "host code" if kind == PhaseKind.HOST else kind
    return f"{shown} {arch}" if arch else shown


def describe(phase: Phase) -> str:
    """``cicc sm_90 of src/gelu.cu``."""
    words = kind_words(phase.kind, phase.arch)
    return f"{words} of {phase.source}" if phase.source else words
