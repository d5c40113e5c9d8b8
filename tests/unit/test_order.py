"""The search for an order of units."""

from __future__ import annotations

import math
import random

import pytest

from builddoctor.policy.order import ExpectedPhase, OrderSearch, UnitToCome


def unit(name: str, *phases: tuple[float, float], running: bool = False) -> UnitToCome:
    """Phases of (MiB, seconds)."""
    found = tuple(ExpectedPhase(peak_mib, 0.0, wall_s) for peak_mib, wall_s in phases)
    return UnitToCome(unit_id=name, phases=found, running=running)


def searched(units: list[UnitToCome], *, slots: int, budget_mib: float, trials: int = 200) -> OrderSearch:
    search = OrderSearch(units, slots=slots, budget_mib=budget_mib)
    for _ in range(trials):
        if search.done:
            break
        search.look()
    return search


def test_a_build_is_as_long_as_its_longest_unit_when_nothing_is_short() -> None:
    """And the search is over at once: nothing beats that."""
    search = searched([unit("a", (10, 5), (10, 7)), unit("b", (10, 4))], slots=2, budget_mib=100)
    assert (search.best_s, search.done) == (12.0, True)


def test_memory_keeps_units_apart() -> None:
    """Two phases of 60 MiB in 100 come one after the other."""
    search = searched([unit("a", (60, 5)), unit("b", (60, 4))], slots=2, budget_mib=100, trials=20)
    assert search.best_s == 9.0


def test_what_fits_alone_only_runs_alone() -> None:
    """As the governor has it: something always runs."""
    assert searched([unit("a", (500, 5)), unit("b", (60, 4))], slots=2, budget_mib=100, trials=20).best_s == 9.0


def test_spreads_add_by_their_squares() -> None:
    """Three times 20 +- 20 MiB are 60 + 28 (of 35, but for one part of it that is always within) in 95, not 120."""
    units = [UnitToCome(unit_id=name, phases=(ExpectedPhase(20.0, 20.0, 5.0),)) for name in ("a", "b", "c")]
    assert searched(units, slots=3, budget_mib=95).best_s == 5.0
    assert searched(units, slots=3, budget_mib=94, trials=20).best_s == 10.0


def test_a_better_order_than_the_longest_first_is_found() -> None:
    """The long thin one last in line by length would leave the heavy ones one after the other at the end."""
    heavy = [unit(f"h{each}", (50, 10)) for each in range(4)]
    light = [unit(f"l{each}", (1, 12)) for each in range(4)]
    longest_first = OrderSearch([*heavy, *light], slots=3, budget_mib=100)
    longest_first.look()
    assert longest_first.best_s > 36
    assert searched([*heavy, *light], slots=3, budget_mib=100).best_s <= 34


def plainly_s(units: list[UnitToCome], weights: dict[str, float], *, slots: int, budget_mib: float) -> float:
    """Length of a build, without any short cut: who is heaviest starts if it fits, again and again."""
    left = [list(each.phases) for each in units]
    slopes = [weights[each.unit_id] / each.left_s for each in units]
    ends = {at: left[at][0].wall_s for at, each in enumerate(units) if each.running}
    now_s = 0.0
    while any(left):
        waiting = [at for at, phases in enumerate(left) if phases and at not in ends]
        for at in sorted(waiting, key=lambda at: -slopes[at] * sum(each.wall_s for each in left[at])):
            together = [left[other][0] for other in ends] + [left[at][0]]
            risk_mib = math.sqrt(sum(each.spread_mib**2 for each in together))
            fits = sum(each.peak_mib for each in together) + risk_mib <= budget_mib
            if len(ends) < slots and (fits or not ends):
                ends[at] = now_s + left[at][0].wall_s
        now_s, ended = min((end_s, at) for at, end_s in ends.items())
        del ends[ended], left[ended][0]
    return now_s


@pytest.mark.parametrize("seed", range(40))
def test_passing_over_who_cannot_fit_changes_no_order(seed: int) -> None:
    """Whole numbers, so that both add up to the same; more units than fit, some of several phases, one that runs."""
    chance = random.Random(seed)
    units = [
        UnitToCome(
            unit_id=str(number),
            phases=tuple(
                ExpectedPhase(
                    chance.choice((20.0, 150.0, 600.0)), float(chance.randrange(40)), chance.randrange(1, 999)
                )
                for _ in range(chance.randrange(1, 5))
            ),
            running=number == 0,
        )
        for number in range(chance.randrange(2, 25))
    ]
    slots, budget_mib = chance.choice((1, 2, 4, 16)), chance.choice((500.0, 900.0, 2500.0))
    search = OrderSearch(units, slots=slots, budget_mib=budget_mib)
    for _ in range(12):
        if search.look():
            expected_s = plainly_s(units, search.weights(), slots=slots, budget_mib=budget_mib)
            assert search.best_s == pytest.approx(expected_s)


def test_a_phase_that_runs_has_its_place_already() -> None:
    """Its unit's next phase comes after it, whatever its weight."""
    search = searched([unit("a", (90, 3), (10, 4), running=True), unit("b", (90, 5))], slots=2, budget_mib=100)
    assert search.best_s == 8.0


def test_priorities_fall_as_units_go_on() -> None:
    """A slope times what is left."""
    units = [unit("a", (10, 5), (10, 5)), unit("b", (10, 5))]
    search = searched(units, slots=1, budget_mib=100)
    assert set(search.slopes()) == {"a", "b"}
    assert all(slope > 0 for slope in search.slopes().values())


def test_the_same_units_give_the_same_order() -> None:
    """No clock, no chance that is not seeded."""
    units = [unit(str(each), (10 + 7 * each % 50, 1 + each % 4), (30, 2)) for each in range(12)]
    one, other = (searched(units, slots=3, budget_mib=90) for _ in range(2))
    assert (one.best_s, one.slopes()) == (other.best_s, other.slopes())


def test_weights_found_before_are_tried_first() -> None:
    """So that a search never ends behind the one before it."""
    units = [unit(str(each), (10 + 13 * each % 60, 1 + each % 5)) for each in range(10)]
    before = searched(units, slots=3, budget_mib=100)
    slopes = before.slopes()
    again = OrderSearch(units, slots=3, budget_mib=100, before=[slopes[each.unit_id] * each.left_s for each in units])
    again.look()
    assert again.best_s == pytest.approx(before.best_s)


@pytest.mark.parametrize("units", [[], [unit("a")]])
def test_nothing_to_order_is_no_trouble(units: list[UnitToCome]) -> None:
    """No units, or none with a phase."""
    search = OrderSearch(units, slots=2, budget_mib=0.0)
    assert search.done or search.look() or math.isfinite(search.best_s)
