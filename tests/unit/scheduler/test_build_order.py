"""The search for an order of units: when it is made, what is known of units, what follows from it."""

from __future__ import annotations

import math
import random

import pytest

from builddoctor.core.past import PastPhase, PastUnit, Seen, UnitKey
from builddoctor.core.phase import ExpectedPhase, PhaseKind
from builddoctor.estimation.features import Done, UnitNotes
from builddoctor.scheduler.build_order import (
    AGAIN_AFTER_S,
    MANY_UNITS,
    NEWS_AFTER_S,
    BuildOrder,
    OrderSearch,
    UnitToCome,
    worth_a_search,
)
from unit.builders import phase


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


def units(count: int = 8) -> list[UnitToCome]:
    """Heavy and light ones of some seconds."""
    return [
        UnitToCome(unit_id=f"u{each}", phases=(ExpectedPhase(50.0 if each % 2 else 1.0, 0.0, 9.0 + each % 3),))
        for each in range(count)
    ]


class Asked:
    """Counts how often it is asked what is to come."""

    def __init__(self, found: list[UnitToCome]) -> None:
        self.found = found
        self.times = 0

    def __call__(self) -> list[UnitToCome]:
        self.times += 1
        return self.found


def test_without_a_plan_the_longest_is_first() -> None:
    """Priority is what remains, in seconds."""
    planner = BuildOrder(lambda each: float(each.phase_id), slots=2)
    assert planner.priority(phase(7)) == 7.0
    assert not planner.hangs_on(1e9, 0.0)


def test_a_plan_changes_priorities() -> None:
    """By one factor for each unit."""
    planner = BuildOrder(lambda _: 1.0, slots=3)
    assert planner.think(Asked(units()), budget_mib=100.0, now_s=0.0)
    assert len({planner.urgency(f"u{each}", 1.0) for each in range(8)}) > 1
    assert planner.urgency("unknown", 3.0) == 3.0


def test_priorities_of_a_long_build_stay_numbers() -> None:
    """Each search begins with the weights of the last, which walk upwards; infinity times nothing orders nothing."""
    planner = BuildOrder(lambda _: 1.0, slots=2)
    pair = [UnitToCome(unit_id=each, phases=(ExpectedPhase(60.0, 0.0, 10.0),)) for each in "ab"]
    asked = Asked(pair)
    for search in range(20):
        planner.think(asked, budget_mib=100.0, now_s=10.0 * search)
    assert asked.times == 20
    assert all(0 < planner.urgency(each, 1.0) < 1e12 for each in "ab")
    assert [planner.urgency(each, 0.0) for each in "ab"] == [0.0, 0.0]


def test_nothing_is_looked_for_all_the_time() -> None:
    """A search that is over rests until something may have changed, or units have come."""
    planner, asked = BuildOrder(lambda _: 1.0, slots=8), Asked(units())
    planner.think(asked, budget_mib=1e6, now_s=0.0)
    for now_s in (0.1, AGAIN_AFTER_S / 2):
        planner.think(asked, budget_mib=1e6, now_s=now_s)
    assert asked.times == 1
    planner.unit_came()
    planner.think(asked, budget_mib=1e6, now_s=AGAIN_AFTER_S / 2 + NEWS_AFTER_S)
    assert asked.times == 2


def test_one_unit_needs_no_order() -> None:
    """Nor do none."""
    planner = BuildOrder(lambda _: 1.0, slots=2)
    assert not planner.think(Asked(units(1)), budget_mib=100.0, now_s=0.0)
    assert not planner.think(Asked([]), budget_mib=100.0, now_s=99.0)


def test_the_build_hangs_on_a_unit_that_takes_nearly_all_of_the_rest() -> None:
    """The order found says how much that is."""
    long = UnitToCome(unit_id="long", phases=(ExpectedPhase(1.0, 0.0, 100.0),))
    planner = BuildOrder(lambda _: 1.0, slots=8)
    planner.think(Asked([long, *units()]), budget_mib=1e6, now_s=0.0)
    assert planner.hangs_on(100.0, 0.0)
    assert not planner.hangs_on(50.0, 0.0)
    assert planner.hangs_on(50.0, 50.0)


def past(*phases: tuple[PhaseKind, str, float, float]) -> UnitNotes:
    """Notes of a unit with this past: kind, arch, MiB, seconds."""
    notes = UnitNotes()
    notes.past = PastUnit(
        key=UnitKey(project="p", place="a.cu"),
        phases=tuple(
            PastPhase(kind=kind, arch=arch, tool="t", seen=(Seen(input_mib=1.0, peak_mib=peak_mib, wall_s=wall_s),))
            for kind, arch, peak_mib, wall_s in phases
        ),
    )
    return notes


WHOLE = (
    (PhaseKind.HOST, "", 700.0, 3.0),
    (PhaseKind.PTXAS, "sm_90", 50.0, 1.0),
    (PhaseKind.CICC, "compute_90", 900.0, 5.0),
    (PhaseKind.CICC, "compute_80", 800.0, 4.0),
    (PhaseKind.PTXAS, "sm_80", 40.0, 1.0),
    (PhaseKind.PREPROCESS, "", 30.0, 0.2),
    (PhaseKind.CUDAFE, "", 300.0, 2.0),
)


def test_a_unit_without_a_past_has_no_outlook() -> None:
    """Nobody knows."""
    assert not UnitNotes().to_come(None)


def test_phases_to_come_are_in_the_order_of_nvcc() -> None:
    """The front end, cicc and ptxas for one architecture after the other, the host compile; preprocessing aside."""
    assert [each.peak_mib for each in past(*WHOLE).to_come(None)] == [300, 800, 40, 900, 50, 700]


def test_what_was_done_is_not_to_come() -> None:
    """Nor is the phase that is asked about."""
    notes = past(*WHOLE)
    notes.note(Done(phase(1, PhaseKind.CUDAFE, arch=""), 300.0, 2.0))
    notes.note(Done(phase(2, PhaseKind.CICC, arch="compute_90"), 900.0, 5.0))
    found = notes.to_come(phase(3, PhaseKind.PTXAS, arch="sm_90"))
    assert [each.peak_mib for each in found] == [800, 40, 700]


def test_nothing_comes_after_the_host_compile() -> None:
    """Where the past knows of no link."""
    assert not past(*WHOLE).to_come(phase(9, PhaseKind.HOST, arch=""))


def test_among_many_units_an_order_is_looked_for_only_while_memory_is_short() -> None:
    """Any order of many is as good until the last of them."""
    assert worth_a_search(MANY_UNITS, short=False)
    assert worth_a_search(MANY_UNITS + 1, short=True)
    assert not worth_a_search(MANY_UNITS + 1, short=False)
    planner, asked = BuildOrder(lambda _: 1.0, slots=3), Asked(units())
    assert not planner.think(asked, budget_mib=100.0, now_s=0.0, worth=False)
    assert asked.times == 0
    assert planner.think(asked, budget_mib=100.0, now_s=1.0)
