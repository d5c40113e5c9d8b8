"""Processor cores that this process may really use: affinity, and the cgroup's quota."""

from __future__ import annotations

import math

import psutil

from builddoctor.sensors.root import SystemRoot
from builddoctor.units import whole_number

_V1 = "/sys/fs/cgroup/cpu"
_V2 = "/sys/fs/cgroup"


def usable_cores(root: SystemRoot) -> int:
    """At least 1. A quota of 1.5 cores counts as 2."""
    allowed = len(psutil.Process().cpu_affinity())
    quota = _quota_v2(root) or _quota_v1(root)
    return max(1, min(allowed, math.ceil(quota))) if quota else max(1, allowed)


def _quota_v2(root: SystemRoot) -> float | None:
    quota, _, period = (root.text(f"{_V2}/cpu.max") or "").strip().partition(" ")
    return _share(quota, period)


def _quota_v1(root: SystemRoot) -> float | None:
    return _share(root.text(f"{_V1}/cpu.cfs_quota_us") or "", root.text(f"{_V1}/cpu.cfs_period_us") or "")


def _share(quota: str, period: str) -> float | None:
    """Cores that a quota allows; None without one (``max``, -1)."""
    allowed, each = whole_number(quota), whole_number(period)
    return allowed / each if allowed and each else None
