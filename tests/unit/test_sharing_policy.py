"""What one build may promise beside others."""

from __future__ import annotations

from typing import Any

import pytest

from builddoctor.model.build_record import BuildRecord
from builddoctor.model.phase import Estimate
from builddoctor.policy.estimator import LearningEstimator
from builddoctor.policy.events import PhaseAsked, Sampled
from builddoctor.policy.governor import Governor
from builddoctor.policy.sharing import (
    FORGOTTEN_S,
    SILENT_S,
    Answer,
    Service,
    SharedLevel,
    budget_mib,
    committed_mib,
    gives_way,
    may_start,
)
from unit.builders import phase

NOW_S = 1000.0
LEVEL = SharedLevel(scope="host", free_mib=8000.0)


def build(number: int, **values: Any) -> BuildRecord:
    """A record; all under the machine's memory, all just written."""
    defaults: dict[str, Any] = {"scopes": ("host",), "beat_s": NOW_S}
    return BuildRecord(build_id=f"{number:016x}", pid=100 + number, **{**defaults, **values})


def test_alone_a_build_has_everything() -> None:
    """No record, no deduction."""
    assert budget_mib(build(1), [], [LEVEL], NOW_S) == 8000


def test_a_promise_is_the_others_though_nobody_holds_it_yet() -> None:
    """Free memory alone would be promised twice."""
    peer = build(2, committed_mib=5000, rss_mib=100, running=1)
    level = SharedLevel(scope="host", free_mib=7900.0, held=((peer.build_id, 100.0),))
    assert budget_mib(build(1), [peer], [level], NOW_S) == 3000


def test_builds_in_cgroups_of_their_own_share_only_what_lies_over_both() -> None:
    """A peer's promise counts at the machine's memory and not at a limit that it does not live under."""
    peer = build(2, committed_mib=5000, running=1)
    mine = SharedLevel(scope="cgroup:1:7", free_mib=4000.0)
    assert budget_mib(build(1), [peer], [mine], NOW_S) == 4000
    assert budget_mib(build(1), [peer], [mine, LEVEL], NOW_S) == 3000


def test_who_wants_less_than_his_part_leaves_the_rest() -> None:
    """Two builds, one wants 1000 of its 4000: the other has 7000; where both want all, it is half and half."""
    assert budget_mib(build(1), [build(2, waiting_mib=1000)], [LEVEL], NOW_S) == 7000
    assert budget_mib(build(1), [build(2, waiting_mib=90000)], [LEVEL], NOW_S) == 4000
    three = [build(2, waiting_mib=90000), build(3, waiting_mib=2000)]
    assert budget_mib(build(1), three, [LEVEL], NOW_S) == 3000


def test_who_is_above_his_part_starts_nothing_more() -> None:
    """It has 6000 of 8000 and the other wants as much: its budget is half, below what it has."""
    me = build(1, committed_mib=6000, rss_mib=6000, running=3, claim_mib=100)
    peer = build(2, committed_mib=1500, running=1, waiting_mib=5000)
    assert budget_mib(me, [peer], [LEVEL], NOW_S) == 4000
    assert may_start(me, [peer], [LEVEL], NOW_S) is Answer.WAIT


def test_a_build_of_which_nothing_runs_claims_what_it_needs() -> None:
    """Those served longer keep it free; those served less do not."""
    starving = build(2, claim_mib=5000, waiting_mib=5000, served_s=10)
    assert budget_mib(build(1, served_s=20), [starving], [LEVEL], NOW_S) == 3000
    assert budget_mib(build(1, served_s=5), [starving], [LEVEL], NOW_S) == 4000


def test_two_giants_take_turns() -> None:
    """Neither fits beside the other: the one served less starts when nothing runs, and only then."""
    first, second = build(1, claim_mib=9000, served_s=1), build(2, claim_mib=9000, served_s=2)
    assert may_start(first, [second], [LEVEL], NOW_S) is Answer.START
    assert may_start(second, [first], [LEVEL], NOW_S) is Answer.WAIT
    runs = build(1, committed_mib=9000, running=1, served_s=1)
    assert may_start(second, [runs], [LEVEL], NOW_S) is Answer.WAIT
    assert may_start(second, [build(1, served_s=30, claim_mib=9000)], [LEVEL], NOW_S) is Answer.START


def test_whoever_decides_at_the_same_moment_is_looked_at_again() -> None:
    """It was served longer, and may have looked before we wrote: it starts or steps back, and we look once more."""
    me, peer = build(1, claim_mib=5000), build(2, claim_mib=5000, trying=True, served_s=9)
    assert may_start(me, [peer], [LEVEL], NOW_S) is Answer.LOOK_AGAIN
    assert may_start(peer, [me], [LEVEL], NOW_S) is Answer.WAIT
    assert may_start(me, [build(2, claim_mib=1000, trying=True, served_s=9)], [LEVEL], NOW_S) is Answer.START


def test_a_stopped_build_claims_nothing_and_keeps_its_promises_for_a_while() -> None:
    """Ctrl-Z: its phases may still grow; its turn does not hold up the others."""
    stopped = build(2, committed_mib=5000, rss_mib=1000, running=1, waiting_mib=5000, claim_mib=5000)
    held = SharedLevel(scope="host", free_mib=7000.0, held=((stopped.build_id, 1000.0),))
    later_s = NOW_S + SILENT_S + 1
    assert budget_mib(build(1, served_s=9), [stopped], [held], later_s) == 3000
    assert budget_mib(build(1, served_s=9), [stopped], [held], NOW_S + FORGOTTEN_S + 1) == 7000


def test_the_dead_take_along_what_they_held_until_the_next_look() -> None:
    """Its phases may not have gone yet: what it held is not free, what it was promised is."""
    level = SharedLevel(scope="host", free_mib=6000.0, held=((build(2).build_id, 2000.0),))
    assert budget_mib(build(1), [], [level], NOW_S) == 6000


def test_memory_that_runs_out_under_two_last_phases_ends_one_of_them() -> None:
    """No build ends its only phase of itself; of two the one served longer does, and never both."""
    one, two = build(1, running=1, rss_mib=500, served_s=3), build(2, running=1, rss_mib=500, served_s=4)
    assert gives_way(two, [one], NOW_S)
    assert not gives_way(one, [two], NOW_S)
    assert not gives_way(two, [], NOW_S)
    assert not gives_way(two, [build(1, running=1, rss_mib=1)], NOW_S)


def test_who_comes_back_has_no_lead() -> None:
    """A newcomer begins where the least served of the others stands; then seconds count while others are there."""
    service, old = Service(), build(2, served_s=500, running=1)
    assert service.look([old], running=False, wanting=True, now_s=0.0) == 500
    assert service.look([old], running=True, wanting=True, now_s=2.0) == 502
    assert service.look([], running=True, wanting=True, now_s=5.0) == 502


@pytest.mark.parametrize("rss_mib", [0.0, 300.0, 2000.0])
def test_what_is_committed_is_what_the_governor_says(rss_mib: float) -> None:
    """Of phases that all run, the figure told to the others is the governor's own."""
    governor = Governor(LearningEstimator(), slots=4, budget_mib=90000.0)
    promised: list[tuple[float, Estimate]] = []
    for number in (1, 2):
        (admit,) = governor.handle(PhaseAsked(phase=phase(number)), 0.0)
        promised.append((rss_mib, admit.estimate))
    rss = tuple((number, rss_mib) for number in (1, 2))
    governor.handle(Sampled(rss_mib=rss, headroom_mib=90000.0, budget_mib=90000.0, reserve_mib=0.0), 1.0)
    assert committed_mib(promised) == pytest.approx(governor.committed_mib)
