"""Memory levels of this machine and what they leave for the build.

Covers: the answer of the sensors as data: a list of levels, and the tightest one.
Does *not* cover: reading them (``sensors.limits``) or the reserve that is kept (``policy.budget``).
"""

from __future__ import annotations

import msgspec


class MemoryLevel(msgspec.Struct, frozen=True, kw_only=True):
    """One limit that the build lives under. All sizes in MiB."""

    source: str
    """the file or flag that says so, e.g. a cgroup directory"""
    kind: str
    """``cgroup-v2``, ``cgroup-v1``, ``host`` or ``flag``"""
    limit_mib: float
    headroom_mib: float
    """what can still be taken at this level: limit - (usage - reclaimable); below 0 when the limit is overdrawn"""
    confidence: str = "high"

    @property
    def used_mib(self) -> float:
        return max(0.0, self.limit_mib - self.headroom_mib)


class MemoryReading(msgspec.Struct, frozen=True, kw_only=True):
    """All levels at one moment. ``levels`` is never empty."""

    levels: tuple[MemoryLevel, ...]

    @property
    def tightest(self) -> MemoryLevel:
        """The level with the least headroom: the one that will kill."""
        return min(self.levels, key=lambda level: level.headroom_mib)

    @property
    def limit_mib(self) -> float:
        """The smallest limit of any level: what the build could have if it were alone."""
        return min(level.limit_mib for level in self.levels)
