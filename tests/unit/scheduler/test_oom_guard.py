"""Which running phase is ended for memory, and that only one is ended at a time."""

from __future__ import annotations

import pytest

from builddoctor.core.events import Admit, Decision, Fact, Kill
from builddoctor.core.phase import Outcome
from builddoctor.scheduler.oom_guard import Candidate, choose_victim
from builddoctor.scheduler.scheduler import Scheduler
from support.schedulers import handle, scheduler_of
from unit.builders import TableEstimator, asked, ended, sampled


def candidate(phase_id: int, rss_mib: float, age_s: float) -> Candidate:
    return Candidate(phase_id=phase_id, rss_mib=rss_mib, age_s=age_s)


@pytest.mark.parametrize("candidates", [[], [candidate(1, 5000, 1)]])
def test_the_only_running_phase_is_never_ended(candidates: list[Candidate]) -> None:
    """With fewer than two there is no victim."""
    assert choose_victim(candidates) is None


def test_the_oldest_is_spared_even_when_it_holds_most() -> None:
    """Its work would be lost, and somebody has to finish."""
    assert choose_victim([candidate(1, 9000, 100), candidate(2, 10, 99)]) == candidate(2, 10, 99)


def test_of_two_of_one_age_the_first_admitted_is_spared() -> None:
    """The lower number counts as older."""
    assert choose_victim([candidate(2, 100, 5), candidate(1, 900, 5)]) == candidate(2, 100, 5)


def test_the_one_that_frees_most_for_the_least_lost_work_is_ended() -> None:
    """Memory for each second of work decides among the others."""
    oldest, big_and_old, middling_and_young = candidate(1, 1, 500), candidate(2, 3000, 299), candidate(3, 400, 9)
    assert choose_victim([oldest, big_and_old, middling_and_young]) == middling_and_young
    assert choose_victim([oldest, big_and_old, candidate(3, 50, 9)]) == big_and_old


def test_one_that_may_be_a_runaway_is_ended_first_though_it_is_the_oldest() -> None:
    """Else all others would be ended for it, one by one; but the only running phase is never ended for memory."""
    suspect = Candidate(phase_id=1, rss_mib=9000, age_s=500, suspect=True)
    assert choose_victim([suspect, candidate(2, 300, 5), candidate(3, 9500, 5)]) == suspect
    assert choose_victim([suspect]) is None


def test_the_order_of_candidates_does_not_matter() -> None:
    """The same phases give the same victim, ties included."""
    candidates = [candidate(1, 100, 10), candidate(2, 100, 5), candidate(3, 100, 5)]
    assert choose_victim(candidates) == choose_victim(candidates[::-1]) == candidate(3, 100, 5)


def test_one_that_cannot_be_redone_counts_as_company() -> None:
    """`g++ -pipe` runs beside them: the youngest of the others goes, and the only other one, too. Never it itself."""
    piped = Candidate(phase_id=3, rss_mib=5000, age_s=3, redoable=False)
    old_piped = Candidate(phase_id=3, rss_mib=5000, age_s=300, redoable=False)
    assert choose_victim([candidate(1, 900, 50), piped]) == candidate(1, 900, 50)
    assert choose_victim([candidate(1, 900, 50), old_piped]) == candidate(1, 900, 50)
    assert choose_victim([candidate(1, 900, 50), candidate(2, 300, 20), piped]) == candidate(2, 300, 20)
    assert choose_victim([piped, Candidate(phase_id=4, rss_mib=1, age_s=1, redoable=False)]) is None


LIMIT_MIB = 16_384.0
FREED_MIB_S = 13_000.0
"""8 GiB take 627 ms to come back (docs/reference/host-memory.md, 5)."""


def step(scheduler: Scheduler, event: Fact, now_s: float) -> list[Decision]:
    actions = handle(scheduler, event, now_s)
    scheduler.check()
    return actions


@pytest.mark.trap(32)
@pytest.mark.parametrize("period_s", [0.05, 0.2])
def test_exactly_one_kill_while_eight_gib_are_being_freed(period_s: float) -> None:
    """Three phases fill the limit; the biggest young one is ended, and looks at low memory end no second one."""
    held = {1: 4000.0, 2: 8192.0, 3: 3900.0}
    scheduler = scheduler_of(TableEstimator({1: 4000, 2: 4000, 3: 4000, 4: 10}), slots=8, budget_mib=LIMIT_MIB)
    for phase_id in held:
        step(scheduler, asked(phase_id), float(phase_id))

    def look(now_s: float) -> list[Decision]:
        headroom_mib = LIMIT_MIB - sum(held.values())
        return step(scheduler, sampled(held, headroom_mib=headroom_mib, budget_mib=15_000.0, reserve_mib=1024.0), now_s)

    kills = [action for action in look(10.0) if isinstance(action, Kill)]
    now_s = 10.0
    while held[2] > 0:
        now_s += period_s
        # What it frees, the others take at half that speed: memory stays low all the while.
        freed_mib = min(held[2], FREED_MIB_S * period_s)
        held[2] -= freed_mib
        held[1] += freed_mib / 2
        held[3] += freed_mib / 2 - 1
        kills += [action for action in look(now_s) if isinstance(action, Kill)]
        assert not [each for each in step(scheduler, asked(4), now_s) if isinstance(each, Admit)]
    assert [kill.phase_id for kill in kills] == [2]
    # Gone, and memory is still low: only now may the next one be considered.
    step(scheduler, ended(2, Outcome.WITHDRAWN), now_s)
    del held[2]
    assert [action.phase_id for action in look(now_s + period_s) if isinstance(action, Kill)] == [3]
