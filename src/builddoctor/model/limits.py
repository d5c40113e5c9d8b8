"""Memory levels of this machine and what they leave for the build.

Covers: the answer of the sensors as data: a list of levels, the tightest one, and what could not be read.
Does *not* cover: reading them (``sensors.limits``) or the reserve that is kept (``policy.budget``).
"""

from __future__ import annotations

from typing import Literal

import msgspec

Confidence = Literal["high", "medium", "low"]
"""``high``: the kernel enforces it and said so itself; ``medium``: a rule of somebody's, or siblings unseen; ``low``: a
guess, kept because a build that dies is worse."""

LevelKind = Literal["cgroup-v2", "cgroup-v1", "host", "numa", "overcommit", "eviction", "scheduler", "flag"]


class MemoryLevel(msgspec.Struct, frozen=True, kw_only=True):
    """One limit that the build lives under. All sizes in MiB."""

    source: str
    """the file, variable or flag that says so, e.g. a cgroup's ``memory.max``"""
    kind: LevelKind
    """who sets it: a cgroup, the host's memory, NUMA binding, overcommit mode 2, kubelet's eviction, a batch scheduler,
    or ``--memory``"""
    limit_mib: float
    headroom_mib: float
    """what can still be taken at this level: limit - (usage - reclaimable); below 0 when the limit is overdrawn"""
    confidence: Confidence = "high"
    note: str = ""
    """what a person should know of this number, in a few words"""

    @property
    def used_mib(self) -> float:
        return max(0.0, self.limit_mib - self.headroom_mib)


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What makes running out of memory worse here than a dead compiler: the reserve grows with it."""

    unified_memory: bool = False
    """GPU and CPU share one pool (GB10, Jetson): running out freezes the machine"""
    ci_runner: bool = False
    """a CI agent lives in the same memory; starved, it loses the job without a word"""
    group_kill: bool = False
    """``memory.oom.group``: the kernel ends everything at once, builddoctor included"""


class MemoryReading(msgspec.Struct, frozen=True, kw_only=True):
    """All levels at one moment. ``levels`` is never empty."""

    levels: tuple[MemoryLevel, ...]
    unread: tuple[str, ...] = ()
    """what should say a limit and could not be read: not the same as no limit"""
    surroundings: Surroundings = Surroundings()
    hidden_above: bool = False
    """inside a cgroup namespace: what a pod or a slice above it may take cannot be seen"""

    @property
    def tightest(self) -> MemoryLevel:
        """The level with the least headroom: the one that will kill."""
        return min(self.levels, key=lambda level: level.headroom_mib)

    @property
    def lowest(self) -> MemoryLevel:
        """The level with the smallest limit: what the build could have if it were alone."""
        return min(self.levels, key=lambda level: level.limit_mib)

    @property
    def limit_mib(self) -> float:
        """The smallest limit of any level."""
        return self.lowest.limit_mib
