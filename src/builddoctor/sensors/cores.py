"""Processor cores that this process may really use: affinity, and the cgroup's quota."""

from __future__ import annotations

import math

import psutil

from builddoctor.sensors.root import SystemRoot

_V1 = "/sys/fs/cgroup/cpu"
_V2 = "/sys/fs/cgroup"


def usable_cores(root: SystemRoot) -> int:
    """At least 1. A quota of 1.5 cores counts as 2."""
    allowed = len(psutil.Process().cpu_affinity())
    quota = _quota_v2(root) or _quota_v1(root)
    return max(1, min(allowed, math.ceil(quota))) if quota else max(1, allowed)


def _quota_v2(root: SystemRoot) -> float | None:
    words = (root.text(f"{_V2}/cpu.max") or "").split()
    if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[1]):
        return int(words[0]) / int(words[1])
    return None


def _quota_v1(root: SystemRoot) -> float | None:
    quota = (root.text(f"{_V1}/cpu.cfs_quota_us") or "").strip()
    period = (root.text(f"{_V1}/cpu.cfs_period_us") or "").strip()
    if quota.isdigit() and period.isdigit() and int(period):
        return int(quota) / int(period)
    return None
