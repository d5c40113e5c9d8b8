"""Which running phase stands still when memory runs out, for how long, and when none may."""

from __future__ import annotations

import pytest

from builddoctor.core.events import (
    Admit,
    ContinueReason,
    Hold,
    HoldReason,
    Interrupted,
    Kill,
    KillReason,
    MemoryUnseen,
    Requeue,
    Resume,
    Suspend,
    SuspendRefused,
)
from builddoctor.core.phase import Outcome
from builddoctor.scheduler.brake import LEAST_STOOD_S, MOST_STOOD_S
from builddoctor.scheduler.scheduler import Scheduler
from support.schedulers import handle, scheduler_of
from unit.builders import TableEstimator, asked, ended, sampled

NEAR_S = 20.4
"""When the second look is, at which memory is short; danger begins at 30 MiB."""


def grown(
    first_mib: tuple[float, float] = (280, 290),
    second_mib: tuple[float, float] = (100, 200),
    *,
    left_mib: float = 80,
    expected_mib: float = 300,
) -> tuple[Scheduler, list]:
    """Two phases of 300 MiB, the first of which is nearly there; what is decided when 80 MiB are left."""
    table = TableEstimator({1: expected_mib, 2: expected_mib, 3: 10}, {1: 20.0, 2: 20.0})
    scheduler = scheduler_of(table, slots=8, budget_mib=1000.0)
    for phase_id in (1, 2):
        handle(scheduler, asked(phase_id), 10.0)
    handle(scheduler, sampled({1: first_mib[0], 2: second_mib[0]}, headroom_mib=600), 20.0)
    decisions = handle(scheduler, sampled({1: first_mib[1], 2: second_mib[1]}, headroom_mib=left_mib), NEAR_S)
    scheduler.check()
    return scheduler, decisions


def look(scheduler: Scheduler, rss_mib: dict[int, float], left_mib: float, now_s: float) -> list:
    decisions = handle(scheduler, sampled(rss_mib, headroom_mib=left_mib), now_s)
    scheduler.check()
    return decisions


def test_the_one_with_most_still_to_take_stands_while_the_other_ends() -> None:
    """It would have been ended before: what it holds is no more than what it was expected to."""
    _, decisions = grown()
    assert [(type(each), each.phase_id) for each in decisions] == [(Suspend, 2)]
    assert (decisions[0].held_mib, decisions[0].left_mib) == (200, 50)


def test_none_stands_where_all_that_is_expected_is_there() -> None:
    """However fast they grow: 110 MiB are all they still want."""
    assert grown(left_mib=200)[1] == []


def test_none_stands_while_there_is_still_time() -> None:
    """80 MiB are missing, and the first could still end beside the second at the next look."""
    assert grown(left_mib=30 + 109, second_mib=(100, 110))[1] == []


def test_where_the_others_could_not_end_either_one_is_ended() -> None:
    """Each still wants more than there is: what stands would only keep its memory from the other."""
    _, decisions = grown((150, 200), (150, 200), expected_mib=450)
    assert [type(each) for each in decisions] == [Kill]


def test_nothing_starts_while_one_stands() -> None:
    """However small: what it takes would be missing to what stands."""
    scheduler, _ = grown()
    (hold,) = handle(scheduler, asked(3), NEAR_S + 0.1)
    assert isinstance(hold, Hold)
    assert hold.reason is HoldReason.MEMORY


def test_it_goes_on_when_there_is_room() -> None:
    """Not at the next look, but once it has stood for a second; what it held counts as before."""
    scheduler, _ = grown()
    full = {1: 300.0, 2: 200.0}
    assert look(scheduler, full, 80, NEAR_S + 0.5) == []
    assert look(scheduler, full, 80, NEAR_S + 1.1 * LEAST_STOOD_S) == []
    (resume,) = look(scheduler, full, 400, NEAR_S + 2 * LEAST_STOOD_S)
    assert (resume.phase_id, resume.reason, resume.stood_s) == (2, ContinueReason.MEMORY_BACK, 2 * LEAST_STOOD_S)


def test_it_goes_on_at_once_when_nothing_else_works() -> None:
    """And others may start again beside it."""
    scheduler, _ = grown()
    handle(scheduler, asked(3), NEAR_S + 0.1)
    decisions = handle(scheduler, ended(1, peak_mib=300), NEAR_S + 0.2)
    scheduler.check()
    assert [(type(each), each.phase_id) for each in decisions] == [(Resume, 2), (Admit, 3)]
    assert decisions[0].reason is ContinueReason.NOTHING_MOVES


@pytest.mark.parametrize("others_wait", [True, False])
def test_one_that_stands_while_nothing_ends_is_ended_after_a_minute(others_wait: bool) -> None:
    """Where others wait for what it holds; its work is lost, and not the time that it stood."""
    scheduler, _ = grown()
    if others_wait:
        handle(scheduler, asked(3), NEAR_S + 0.1)
    full = {1: 300.0, 2: 200.0}
    assert look(scheduler, full, 60, NEAR_S + MOST_STOOD_S - 1) == []
    decisions = look(scheduler, full, 60, NEAR_S + MOST_STOOD_S + 1)
    assert [(each.phase_id, each.reason) for each in decisions] == [(2, KillReason.STOOD)] * others_wait
    if others_wait:
        over = handle(scheduler, ended(2, Outcome.KILLED_BY_US, 200), NEAR_S + MOST_STOOD_S + 2)
        (requeue,) = [each for each in over if isinstance(each, Requeue)]
        assert requeue.lost_s == pytest.approx(NEAR_S - 10.0)


def test_one_that_could_not_be_stopped_works_and_is_not_tried_again() -> None:
    """Its gate is in another pid namespace, say."""
    scheduler, _ = grown()
    (resume,) = handle(scheduler, SuspendRefused(phase_id=2), NEAR_S)
    scheduler.check()
    assert (resume.phase_id, resume.reason, resume.stood_s) == (2, ContinueReason.REFUSED, 0)
    decisions = look(scheduler, {1: 295, 2: 230}, 70, NEAR_S + 0.4)
    assert not [each for each in decisions if isinstance(each, Suspend) and each.phase_id == 2]


def test_none_stays_stopped_when_the_build_ends_or_memory_is_not_seen() -> None:
    """Nobody would let it go on."""
    scheduler, _ = grown()
    (resume,) = [each for each in handle(scheduler, Interrupted(), NEAR_S + 1) if isinstance(each, Resume)]
    assert (resume.phase_id, resume.reason) == (2, ContinueReason.BUILD_ENDS)
    scheduler, _ = grown()
    (resume,) = handle(scheduler, MemoryUnseen(problem="gone"), NEAR_S + 1)
    assert (resume.phase_id, resume.reason) == (2, ContinueReason.UNSEEN)
