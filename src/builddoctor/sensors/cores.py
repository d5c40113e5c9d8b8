"""Processor cores that this process may really use: affinity (cpuset included), and every cgroup's quota.

Does *not* cover: how busy they are.
"""

from __future__ import annotations

import math

import msgspec
import psutil

from builddoctor.sensors.cgroup_place import controller_directories
from builddoctor.sensors.root import SystemRoot
from builddoctor.units import whole_number


class Cores(msgspec.Struct, frozen=True, kw_only=True):
    """How many, and what allows no more."""

    count: int
    source: str


def usable_cores(root: SystemRoot) -> int:
    """At least 1. A quota of 1.5 cores counts as 2."""
    return read_cores(root).count


def read_cores(root: SystemRoot, *, allowed: int | None = None) -> Cores:
    """The least of affinity and the quotas from our own cgroup up. ``allowed``: cores by affinity; asked when None."""
    count = allowed if allowed is not None else len(psutil.Process().cpu_affinity())
    best = Cores(count=max(1, count), source="affinity of this process")
    for directory in controller_directories(root, "cpu"):
        quota, source = _quota(root, directory)
        if quota is not None and max(1, math.ceil(quota)) < best.count:
            best = Cores(count=max(1, math.ceil(quota)), source=source)
    return best


def _quota(root: SystemRoot, directory: str) -> tuple[float | None, str]:
    """Cores that one cgroup's quota allows (v2 ``cpu.max``, v1 ``cpu.cfs_quota_us``); None without one."""
    quota, _, period = (root.text(f"{directory}/cpu.max") or "").strip().partition(" ")
    if quota:
        return _share(quota, period), f"{directory}/cpu.max"
    text = root.text(f"{directory}/cpu.cfs_quota_us") or ""
    return _share(text, root.text(f"{directory}/cpu.cfs_period_us") or ""), f"{directory}/cpu.cfs_quota_us"


def _share(quota: str, period: str) -> float | None:
    """Cores that a quota allows; None without one (``max``, -1)."""
    allowed, each = whole_number(quota), whole_number(period)
    return allowed / each if allowed and each else None
