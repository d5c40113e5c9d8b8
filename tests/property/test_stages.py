"""Stages of any units: each unit in one, safe whatever the order, never slower than one fixed number of jobs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from builddoctor.plans.staged import StageUnit, safe_jobs, split

PEAKS = st.one_of(st.just(0.0), st.floats(0.1, 5000.0), st.sampled_from([100.0, 250.0, 1000.0, 1e8]))
TIMES = st.one_of(st.just(0.0), st.floats(0.01, 500.0))
ARCHS = st.sampled_from([(), ("sm_90",), ("sm_100", "sm_90")])


@st.composite
def units(draw: st.DrawFn) -> list[StageUnit]:
    figures = draw(st.lists(st.tuples(PEAKS, TIMES, ARCHS), max_size=60))
    return [
        StageUnit(unit_id=f"u{at}", peak_mib=peak, work_s=time, archs=archs)
        for at, (peak, time, archs) in enumerate(figures)
    ]


SIZES = st.one_of(st.just(1.0), st.floats(50.0, 50_000.0))
CORES = st.integers(1, 64)


def single(units: Sequence[StageUnit], *, budget_mib: float, cores: int) -> tuple[int, float]:
    """The best fixed number of jobs for all of them and its time, by the same measure; (0, inf) where none is safe."""
    jobs = safe_jobs([unit.peak_mib for unit in units], budget_mib=budget_mib, cores=cores)
    if not units or not jobs:
        return (jobs, 0.0 if not units else math.inf)
    return jobs, max(sum(unit.work_s for unit in units) / jobs, *(unit.work_s for unit in units))


@given(units(), SIZES, CORES, st.booleans())
def test_every_unit_is_in_one_stage_or_too_big(
    found: list[StageUnit], budget_mib: float, cores: int, by_arch: bool
) -> None:
    """None is forgotten, none is built twice; only those are too big that are larger than the budget."""
    made = split(found, budget_mib=budget_mib, cores=cores, by_arch=by_arch)
    placed = [unit_id for piece in made.pieces for unit_id in piece.unit_ids]
    assert sorted([*placed, *made.too_big]) == sorted(unit.unit_id for unit in found)
    assert set(made.too_big) == {unit.unit_id for unit in found if unit.peak_mib > budget_mib}


@given(units(), SIZES, CORES, st.booleans())
def test_the_largest_of_a_stage_fit_together(
    found: list[StageUnit], budget_mib: float, cores: int, by_arch: bool
) -> None:
    """As many of the largest units as a stage has jobs stay within the budget; jobs never exceed the cores."""
    peaks = {unit.unit_id: unit.peak_mib for unit in found}
    for piece in split(found, budget_mib=budget_mib, cores=cores, by_arch=by_arch).pieces:
        largest = sorted((peaks[unit_id] for unit_id in piece.unit_ids), reverse=True)[: piece.jobs]
        assert math.fsum(largest) <= budget_mib
        assert piece.peak_mib == math.fsum(largest)
        assert piece.largest_mib == largest[0]
        assert 1 <= piece.jobs <= cores


@given(units(), SIZES, CORES)
def test_stages_are_never_slower_than_one_number_of_jobs(found: list[StageUnit], budget_mib: float, cores: int) -> None:
    """By the measure of the split: work over jobs, or the longest unit."""
    fitting = [unit for unit in found if unit.peak_mib <= budget_mib]
    _, best_s = single(fitting, budget_mib=budget_mib, cores=cores)
    made = split(fitting, budget_mib=budget_mib, cores=cores)
    assert sum(piece.least_s for piece in made.pieces) <= best_s * (1 + 1e-9)


@given(units(), SIZES, CORES)
def test_names_say_what_a_stage_is(found: list[StageUnit], budget_mib: float, cores: int) -> None:
    """At most one of each name; solo has one job, light one for each core; the lightest stage comes first."""
    pieces = split(found, budget_mib=budget_mib, cores=cores).pieces
    weights = [piece.weight for piece in pieces]
    assert len(set(weights)) == len(weights)
    assert weights == [name for name in ("light", "medium", "heavy", "solo") if name in weights]
    for piece in pieces:
        assert (piece.weight == "solo") == (piece.jobs == 1)
        assert (piece.weight == "light") == (piece.jobs == cores > 1)
    largest = [piece.largest_mib for piece in pieces]
    assert largest == sorted(largest)


@given(units(), SIZES, CORES, st.randoms(use_true_random=False))
def test_the_order_of_units_makes_no_difference(
    found: list[StageUnit], budget_mib: float, cores: int, chance: object
) -> None:
    """The same units give the same stages."""
    turned = list(found)
    chance.shuffle(turned)  # type: ignore[attr-defined]
    made, again = (split(each, budget_mib=budget_mib, cores=cores) for each in (found, turned))
    assert made.pieces == again.pieces
    assert set(made.too_big) == set(again.too_big)


@given(st.lists(PEAKS, max_size=40), SIZES, CORES)
def test_one_job_more_would_not_be_safe(peaks: list[float], budget_mib: float, cores: int) -> None:
    """The number of safe jobs is the largest: as many of the largest units fit, and one more does not."""
    jobs = safe_jobs(peaks, budget_mib=budget_mib, cores=cores)
    ordered = sorted(peaks, reverse=True)
    assert sum(ordered[:jobs]) <= budget_mib
    assert jobs == cores or sum(ordered[: jobs + 1]) > budget_mib
