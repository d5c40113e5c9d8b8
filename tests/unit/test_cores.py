"""Cores that a build may use."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from builddoctor.sensors.cores import usable_cores
from unit.trees import plant


@pytest.fixture(autouse=True)
def _eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    def eight(_process: psutil.Process) -> list[int]:
        return list(range(8))

    monkeypatch.setattr(psutil.Process, "cpu_affinity", eight)


@pytest.mark.parametrize(
    ("quota", "cores"),
    [
        ("max 100000", 8),
        ("400000 100000", 4),
        ("150000 100000", 2),
        ("50000 100000", 1),
        ("6400000 100000", 8),
        ("400000 0", 8),
        ("", 8),
        ("400000", 8),
        ("many 100000", 8),
        ("² 100000", 8),
    ],
)
def test_a_v2_quota_limits_the_cores(tmp_path: Path, quota: str, cores: int) -> None:
    """Rounded up, never above the cores we may run on, never below one; what is no quota limits nothing."""
    assert usable_cores(plant(tmp_path, {"/sys/fs/cgroup/cpu.max": quota})) == cores


@pytest.mark.parametrize(
    ("quota", "period", "cores"), [("-1", "100000", 8), ("250000", "100000", 3), ("250000", "0", 8), ("250000", "", 8)]
)
def test_a_v1_quota_limits_the_cores(tmp_path: Path, quota: str, period: str, cores: int) -> None:
    """-1 means none."""
    files = {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us": quota, "/sys/fs/cgroup/cpu/cpu.cfs_period_us": period}
    assert usable_cores(plant(tmp_path, files)) == cores


def test_without_a_quota_the_affinity_counts(tmp_path: Path) -> None:
    """taskset and cpusets are seen this way."""
    assert usable_cores(plant(tmp_path, {})) == 8
