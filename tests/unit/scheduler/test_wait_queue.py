"""Phases that wait, in order."""

from __future__ import annotations

from builddoctor.scheduler.wait_queue import FAR, NEAR, Waiting, WaitQueue
from unit.builders import TableEstimator, phase


def line(priorities: dict[int, float]) -> WaitQueue:
    """A line in which these phases wait, asked in the order of their numbers."""
    found = WaitQueue(lambda each: priorities.get(each.phase_id, 0.0))
    table = TableEstimator(dict.fromkeys(priorities, 1.0))
    for at, phase_id in enumerate(sorted(priorities)):
        each = phase(phase_id)
        found.add(Waiting(phase=each, estimate=table.estimate(each), asked_at_s=float(at), queued_at_s=float(at)))
    return found


def order(found: WaitQueue) -> list[int]:
    return [each.phase.phase_id for each in found]


def test_the_most_urgent_come_first_then_the_oldest() -> None:
    """Equal priorities go by age."""
    assert order(line({1: 1.0, 2: 5.0, 3: 5.0, 4: 0.0})) == [2, 3, 1, 4]


def test_what_a_node_waits_for_comes_before_what_may_not_fit() -> None:
    """And both before all others."""
    found = line({1: 5.0})
    estimate = TableEstimator({1: 1.0}).estimate(phase(1))
    for phase_id, urgent, doubtful in ((2, False, True), (3, True, False)):
        each = phase(phase_id, urgent=urgent)
        found.add(Waiting(phase=each, estimate=estimate, asked_at_s=9.0, queued_at_s=9.0, doubtful=doubtful))
    assert order(found) == [3, 2, 1]


def test_who_leaves_is_gone_and_known_no_more() -> None:
    """A second time there is nobody to leave."""
    found = line({1: 1.0, 2: 2.0})
    left = found.leave(2)
    assert left is not None
    assert left.phase.phase_id == 2
    assert found.leave(2) is None
    assert (order(found), len(found), found.keys()) == ([1], 1, frozenset((1,)))


def test_what_waits_is_added_up_but_for_what_comes_first_whatever_it_takes() -> None:
    """Down to the last that waits."""
    found = line({1: 5.0, 2: 3.0})
    each = phase(3, urgent=True)
    estimate = TableEstimator({3: 1.0}).estimate(each)
    found.add(Waiting(phase=each, estimate=estimate, asked_at_s=9.0, queued_at_s=9.0))
    sums = [found.work_s]
    for phase_id in (1, 3, 2):
        found.leave(phase_id)
        sums.append(found.work_s)
    assert sums == [8.0, 3.0, 3.0, 0.0]


def test_phases_may_leave_while_one_goes_through() -> None:
    """Admission takes them out as it goes."""
    found = line({1: 1.0, 2: 2.0, 3: 3.0})
    seen = []
    for each in found:
        seen.append(each.phase.phase_id)
        found.leave(each.phase.phase_id)
        found.leave(1)
    assert seen == [3, 2]


def test_a_long_line_is_looked_at_in_turn() -> None:
    """The most urgent with every pass, each of the others every few passes; who leaves disturbs nothing."""
    count = NEAR + 5 * FAR + 7
    found = line({phase_id: float(-phase_id) for phase_id in range(1, count + 1)})
    near = list(range(1, NEAR + 1))
    seen: set[int] = set()
    for _ in range(6):
        looked = [each.phase.phase_id for each in found.in_turn()]
        assert looked[:NEAR] == near
        assert looked == sorted(looked)
        assert len(looked) <= NEAR + FAR
        seen.update(looked)
    assert seen == set(range(1, count + 1))
    for phase_id in range(NEAR + FAR + 1, count + 1):
        found.leave(phase_id)
    assert [each.phase.phase_id for each in found.in_turn()] == order(found)


def test_some_stand_for_all() -> None:
    """From the whole line alike, no more than asked for, all of a short one; those that left are none."""
    found = line({phase_id: float(-phase_id) for phase_id in range(1, 1001)})
    assert [each.phase.phase_id for each in found.some(64)] == list(range(1, 1001, 16))
    for phase_id in range(11, 1001):
        found.leave(phase_id)
    assert [each.phase.phase_id for each in found.some(64)] == list(range(1, 11))
