"""From limits to a budget, and from a budget to a window."""

from __future__ import annotations

import pytest

from builddoctor.model.limits import Surroundings
from builddoctor.policy.budget import budget_mib, reserve_mib, window


@pytest.mark.parametrize(
    ("limit_mib", "kept_mib"),
    [(0, 0), (2048, 204.8), (10240, 1024), (16384, 1024), (20480, 1024), (102400, 5120), (1024 * 1024, 52428.8)],
)
def test_the_reserve_is_a_gib_or_five_percent_but_never_above_a_tenth(limit_mib: float, kept_mib: float) -> None:
    """Small containers keep a tenth, middling machines 1 GiB, big ones a twentieth."""
    assert reserve_mib(limit_mib) == pytest.approx(kept_mib)


@pytest.mark.parametrize(
    ("limit_mib", "surroundings", "kept_mib"),
    [
        pytest.param(122880, Surroundings(unified_memory=True), 8601.6, marks=pytest.mark.trap(42)),
        pytest.param(65536, Surroundings(unified_memory=True), 8192, marks=pytest.mark.trap(42)),
        pytest.param(7600, Surroundings(unified_memory=True), 3800, marks=pytest.mark.trap(42)),
        (16384, Surroundings(ci_runner=True), 2048),
        (1024, Surroundings(ci_runner=True), 512),
        pytest.param(16384, Surroundings(group_kill=True), 2048, marks=pytest.mark.trap(35)),
        pytest.param(2048, Surroundings(group_kill=True), 409.6, marks=pytest.mark.trap(35)),
        (16384, Surroundings(ci_runner=True, group_kill=True), 4096),
    ],
)
def test_more_is_kept_where_running_out_is_worse(limit_mib: float, surroundings: Surroundings, kept_mib: float) -> None:
    """8 GiB on unified memory, 1 GiB for a CI agent, double under group kills; never more than half."""
    assert reserve_mib(limit_mib, surroundings) == pytest.approx(kept_mib)


@pytest.mark.parametrize(
    ("headroom_mib", "own_use_mib", "reserve", "expected_mib"),
    [(8000, 0, 1000, 7000), (2000, 6000, 1000, 7000), (500, 0, 1000, 0), (0, 0, 0, 0)],
)
def test_the_budget_is_what_is_free_and_what_we_hold_less_the_reserve(
    headroom_mib: float, own_use_mib: float, reserve: float, expected_mib: float
) -> None:
    """The build's own use does not shrink its budget, and a budget is never negative."""
    assert budget_mib(headroom_mib, own_use_mib, reserve) == expected_mib


@pytest.mark.parametrize(
    ("cores", "budget", "units"),
    [
        (1, 0, 2),
        (2, 3000, 5),
        (2, 1000, 3),
        (2, 30000, 6),
        (16, 8192, 17),
        (16, 16384, 27),
        (64, 1_000_000, 192),
    ],
)
def test_the_window_gives_a_choice_without_eating_the_budget(cores: int, budget: float, units: int) -> None:
    """Three units a core, no more than 5 % of the budget in waiting processes, and always one above the cores."""
    assert window(cores, budget) == units
