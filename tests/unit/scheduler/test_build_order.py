"""The order of units: by what they have to do, and by the memory that they take; what is known to come of a unit."""

from __future__ import annotations

import pytest

from builddoctor.core.past import PastPhase, PastUnit, Seen, UnitKey
from builddoctor.core.phase import ExpectedPhase, PhaseKind
from builddoctor.estimation.features import Done, UnitNotes
from builddoctor.scheduler.build_order import MEMORY_SHARE, BuildOrder
from unit.builders import phase


def order(left_s: dict[str, float]) -> BuildOrder:
    """Of units with so much to do, on 4 slots."""
    return BuildOrder(lambda asked: left_s[asked.unit_id], slots=4)


def test_the_longest_unit_is_first() -> None:
    """Nothing is known of their memory."""
    found = order({"a": 3.0, "b": 5.0})
    assert (found.priority(phase(1, unit_id="a")), found.priority(phase(2, unit_id="b"))) == (3.0, 5.0)


def test_memory_counts_beside_time() -> None:
    """Half of the budget for half of its time: a quarter, which is one of four cores."""
    found = order({"a": 8.0, "b": 9.0})
    found.weigh("a", [ExpectedPhase(500.0, 0.0, 2.0), ExpectedPhase(0.0, 0.0, 2.0)], budget_mib=1000.0)
    assert found.priority(phase(1, unit_id="a")) == pytest.approx(8.0 * (1.0 + MEMORY_SHARE))
    assert found.priority(phase(1, unit_id="a")) > found.priority(phase(2, unit_id="b"))


@pytest.mark.parametrize(("to_come", "budget_mib"), [((), 9.0), ((ExpectedPhase(9.0, 0.0, 0.0),), 9.0), ((), 0.0)])
def test_a_unit_of_which_nothing_is_known_counts_by_its_time(
    to_come: tuple[ExpectedPhase, ...], budget_mib: float
) -> None:
    """Nor does one that takes no time, or where there is no memory."""
    found = order({"a": 3.0})
    found.weigh("a", to_come, budget_mib=budget_mib)
    assert found.urgency("a", 7.0) == 7.0


def test_a_unit_that_has_ended_is_forgotten() -> None:
    """Another of that name begins anew."""
    found = order({})
    found.weigh("a", [ExpectedPhase(500.0, 0.0, 2.0)], budget_mib=1000.0)
    found.ended("a")
    assert found.urgency("a", 7.0) == 7.0


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
