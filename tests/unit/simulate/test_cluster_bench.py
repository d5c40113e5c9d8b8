"""``scripts/cluster_bench.py``: the bound that a build with nodes is compared with."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from builddoctor.core.phase import PhaseKind
from builddoctor.simulate.with_nodes import WAY_S
from builddoctor.simulate.workload import PhaseWork, UnitWork, Workload

sys.path.append(str(Path(__file__).resolve().parents[3] / "scripts"))

cluster_bench = importlib.import_module("cluster_bench")
bound_with_ways_s, bound_by_size_s = cluster_bench.bound_with_ways_s, cluster_bench.bound_by_size_s


def build(*phases: tuple[PhaseKind, float]) -> Workload:
    work = tuple(PhaseWork(kind=kind, peak_mib=100.0, wall_s=wall_s) for kind, wall_s in phases)
    return Workload(name="w", units=(UnitWork(name="u", phases=work),))


def test_without_nodes_it_is_the_work() -> None:
    assert bound_with_ways_s(build((PhaseKind.CICC, 30.0), (PhaseKind.LINK, 10.0)), 2, 0) == 20.0


def test_both_sides_end_at_once_and_the_way_is_part_of_it() -> None:
    """One phase of 100 s on two machines: half of it, and half of its way, there."""
    bound_s = bound_with_ways_s(build((PhaseKind.CICC, 100.0)), 1, 1)
    assert bound_s == pytest.approx(50.0 + WAY_S / 4, abs=0.01)


def test_what_stays_here_is_a_bound_by_itself() -> None:
    assert bound_with_ways_s(build((PhaseKind.PREPROCESS, 60.0), (PhaseKind.CICC, 10.0)), 1, 31) == pytest.approx(60.0)


def test_what_costs_least_on_its_way_goes_first() -> None:
    """A hundred phases of 10 ms are not worth their ways while one of 10 s can go."""
    small = [(PhaseKind.PTXAS, 0.01)] * 100
    bound_s = bound_with_ways_s(build((PhaseKind.CICC, 1.0), *small), 1, 1)
    assert 1.0 < bound_s < 1.0 + WAY_S


def test_what_only_the_large_machines_hold_is_a_bound_by_itself() -> None:
    """40 s of 3.9 GiB on one or two machines of 4 GiB, with any number of smaller ones beside."""
    large = PhaseWork(kind=PhaseKind.CICC, peak_mib=4000.0, wall_s=20.0)
    workload = Workload(
        name="w", units=(UnitWork(name="u", phases=(large, large)), *build((PhaseKind.CICC, 1.0)).units)
    )
    assert bound_by_size_s(workload, 1, [3.0, 4.0, 3.0, 3.0]) == 40.0
    assert bound_by_size_s(workload, 2, [3.0, 4.0, 4.0]) == 10.0
    assert bound_by_size_s(workload, 1, [4.0, 4.0]) == 0.0
