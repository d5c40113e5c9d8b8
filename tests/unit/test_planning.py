"""When an order is looked for, what is known of units, and what follows from it."""

from __future__ import annotations

from builddoctor.model.past import PastPhase, PastUnit, Seen, UnitKey
from builddoctor.model.phase import PhaseKind
from builddoctor.policy.clues import Done, UnitNotes
from builddoctor.policy.order import ExpectedPhase, UnitToCome
from builddoctor.policy.outlook import to_come
from builddoctor.policy.planning import AGAIN_AFTER_S, MANY_UNITS, NEWS_AFTER_S, Planner, worth_a_search
from unit.builders import phase


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
    planner = Planner(lambda each: float(each.phase_id), slots=2)
    assert planner.priority(phase(7)) == 7.0
    assert not planner.hangs_on(1e9, 0.0)


def test_a_plan_changes_priorities() -> None:
    """By one factor for each unit."""
    planner = Planner(lambda _: 1.0, slots=3)
    assert planner.think(Asked(units()), budget_mib=100.0, now_s=0.0)
    assert len({planner.urgency(f"u{each}", 1.0) for each in range(8)}) > 1
    assert planner.urgency("unknown", 3.0) == 3.0


def test_priorities_of_a_long_build_stay_numbers() -> None:
    """Each search begins with the weights of the last, which walk upwards; infinity times nothing orders nothing."""
    planner = Planner(lambda _: 1.0, slots=2)
    pair = [UnitToCome(unit_id=each, phases=(ExpectedPhase(60.0, 0.0, 10.0),)) for each in "ab"]
    asked = Asked(pair)
    for search in range(20):
        planner.think(asked, budget_mib=100.0, now_s=10.0 * search)
    assert asked.times == 20
    assert all(0 < planner.urgency(each, 1.0) < 1e12 for each in "ab")
    assert [planner.urgency(each, 0.0) for each in "ab"] == [0.0, 0.0]


def test_nothing_is_looked_for_all_the_time() -> None:
    """A search that is over rests until something may have changed, or units have come."""
    planner, asked = Planner(lambda _: 1.0, slots=8), Asked(units())
    planner.think(asked, budget_mib=1e6, now_s=0.0)
    for now_s in (0.1, AGAIN_AFTER_S / 2):
        planner.think(asked, budget_mib=1e6, now_s=now_s)
    assert asked.times == 1
    planner.unit_came()
    planner.think(asked, budget_mib=1e6, now_s=AGAIN_AFTER_S / 2 + NEWS_AFTER_S)
    assert asked.times == 2


def test_one_unit_needs_no_order() -> None:
    """Nor do none."""
    planner = Planner(lambda _: 1.0, slots=2)
    assert not planner.think(Asked(units(1)), budget_mib=100.0, now_s=0.0)
    assert not planner.think(Asked([]), budget_mib=100.0, now_s=99.0)


def test_the_build_hangs_on_a_unit_that_takes_nearly_all_of_the_rest() -> None:
    """The order found says how much that is."""
    long = UnitToCome(unit_id="long", phases=(ExpectedPhase(1.0, 0.0, 100.0),))
    planner = Planner(lambda _: 1.0, slots=8)
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
    assert not to_come(UnitNotes(), None)


def test_phases_to_come_are_in_the_order_of_nvcc() -> None:
    """The front end, cicc and ptxas for one architecture after the other, the host compile; preprocessing aside."""
    assert [each.peak_mib for each in to_come(past(*WHOLE), None)] == [300, 800, 40, 900, 50, 700]


def test_what_was_done_is_not_to_come() -> None:
    """Nor is the phase that is asked about."""
    notes = past(*WHOLE)
    notes.note(Done(phase(1, PhaseKind.CUDAFE, arch=""), 300.0, 2.0))
    notes.note(Done(phase(2, PhaseKind.CICC, arch="compute_90"), 900.0, 5.0))
    found = to_come(notes, phase(3, PhaseKind.PTXAS, arch="sm_90"))
    assert [each.peak_mib for each in found] == [800, 40, 700]


def test_nothing_comes_after_the_host_compile() -> None:
    """Where the past knows of no link."""
    assert not to_come(past(*WHOLE), phase(9, PhaseKind.HOST, arch=""))


def test_among_many_units_an_order_is_looked_for_only_while_memory_is_short() -> None:
    """Any order of many is as good until the last of them."""
    assert worth_a_search(MANY_UNITS, short=False)
    assert worth_a_search(MANY_UNITS + 1, short=True)
    assert not worth_a_search(MANY_UNITS + 1, short=False)
    planner, asked = Planner(lambda _: 1.0, slots=3), Asked(units())
    assert not planner.think(asked, budget_mib=100.0, now_s=0.0, worth=False)
    assert asked.times == 0
    assert planner.think(asked, budget_mib=100.0, now_s=1.0)
