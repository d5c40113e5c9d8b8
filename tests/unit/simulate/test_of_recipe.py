"""Recipes as workloads: times, links, allowances, threads."""

from __future__ import annotations

import pytest

from builddoctor.core.phase import PhaseKind
from builddoctor.simulate.of_recipe import capped, workload
from unit.recipes_made import engine, phase, recipe, unit

CICC, PTXAS = PhaseKind.CICC, PhaseKind.PTXAS


def two_archs() -> tuple[object, ...]:
    """Front end, then cicc and ptxas of two architectures, then the host compiler."""
    return (
        phase(300.0, 2.0, PhaseKind.CUDAFE),
        phase(80.0, 1.0, PhaseKind.PREPROCESS),
        phase(1000.0, 10.0, CICC, "sm_90"),
        phase(200.0, 2.0, PTXAS, "sm_90"),
        phase(80.0, 1.0, PhaseKind.PREPROCESS),
        phase(1500.0, 20.0, CICC, "sm_100"),
        phase(250.0, 4.0, PTXAS, "sm_100"),
        phase(500.0, 3.0),
    )


def test_phases_are_taken_as_they_are() -> None:
    """Peaks, processor time, order; links come last whatever the recipe's order."""
    made = workload(recipe(unit("link x", phase(50.0, 1.0), after_all=True), unit("a.cu", phase(100.0, 4.0))))
    assert [each.name for each in made.units] == ["a.cu", "link x"]
    assert (made.units[0].peak_mib, made.units[0].wall_s) == (100.0, 4.0)
    assert made.units[1].after_all


def test_an_allowance_is_added_to_every_phase() -> None:
    """Larger pages make every process larger."""
    made = workload(recipe(unit("a.cu", phase(100.0, 4.0), phase(30.0, 1.0))), allowance_mib=60.0)
    assert [each.peak_mib for each in made.units[0].phases] == [160.0, 90.0]


def test_with_threads_architectures_run_side_by_side() -> None:
    """Two threads: both architectures at once, for as long as the longer one; what is around them stays."""
    made = workload(recipe(unit("a.cu", *two_archs())), threads=2).units[0]
    assert [each.peak_mib for each in made.phases] == [300.0, 2500.0, 500.0]
    assert [each.wall_s for each in made.phases] == [2.0, 25.0, 3.0]
    one = workload(recipe(unit("a.cu", *two_archs()))).units[0]
    assert (one.peak_mib, one.wall_s) == (1500.0, 43.0)


def test_threads_do_nothing_for_one_architecture() -> None:
    """nvcc ignores them there."""
    phases = (phase(300.0, 2.0, PhaseKind.CUDAFE), phase(1000.0, 10.0, CICC, "sm_90"), phase(9.0, 2.0, PTXAS, "sm_90"))
    assert workload(recipe(unit("a.cu", *phases)), threads=4) == workload(recipe(unit("a.cu", *phases)))


def test_a_units_threads_are_its_share_of_the_cores() -> None:
    """As at its gate: many units get one thread each, one unit alone gets as many as it has architectures."""
    many = recipe(*(unit(f"{at}.cu", *two_archs()) for at in range(20)))
    assert workload(many, threads=2, cores=4) == workload(many)
    alone = recipe(unit("a.cu", *two_archs()))
    assert workload(alone, threads=2, cores=4) == workload(alone, threads=2)


def test_transformer_engine_is_whole() -> None:
    """66 units, 370 phases, the largest with 4.0 GiB; the work of the digest."""
    made = workload(engine())
    assert (len(made.units), made.peak_mib) == (66, 4124.0)
    assert made.work_s == pytest.approx(1550.0, rel=0.01)


def test_a_part_of_a_large_build_stands_for_all_of_it() -> None:
    """Heavy and light units are in it as in the whole, and its link."""
    units = [unit(f"{at}.cu", phase(100.0 + at % 7, 1.0 + at % 7)) for at in range(700)]
    made = workload(recipe(*units, unit("link", phase(1.0, 1.0), after_all=True)))
    part, times = capped(made, most_phases=100)
    assert len(part.units) == 101
    assert part.units[-1].after_all
    assert times * (part.work_s - 1.0) == pytest.approx(made.work_s - 1.0)
    assert capped(made, most_phases=1000) == (made, 1.0)
