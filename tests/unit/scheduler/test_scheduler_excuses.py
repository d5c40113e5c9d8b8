"""A phase beside what cannot be run again or belongs to another build: when it is ended for that, and when excused."""

from __future__ import annotations

import msgspec
import pytest

from builddoctor.core.events import (
    Beside,
    Decision,
    GiveUp,
    Kill,
    KillReason,
    PhaseAsked,
    Requeue,
    ShareSettled,
    UngatedGone,
    UngatedProcess,
    UngatedSeen,
)
from builddoctor.core.phase import Outcome
from builddoctor.core.verdict import Verdict
from builddoctor.scheduler.oom_guard import DANGER_SHARE, KILL_LATENCY_S, LEAST_UNGATED_MIB, LEAST_WORTH_MIB
from builddoctor.scheduler.scheduler import MOST_EXCUSED, TOO_BIG_SHARE, UNGATED_LATENCY_S, Scheduler
from support.schedulers import handle, scheduler_of
from unit.builders import TableEstimator, ended, phase, sampled

BUDGET_MIB = 4000.0
RESERVE_MIB = 300.0
POOL_MIB = 3500.0
BIG_MIB = (TOO_BIG_SHARE + 0.05) * BUDGET_MIB
"""So much makes a phase too big that the kernel ended while it was alone."""


def scheduler() -> Scheduler:
    return scheduler_of(TableEstimator(dict.fromkeys(range(1, 9), 500.0)), slots=3, budget_mib=BUDGET_MIB)


def working(pid: int = 11, rss_mib: float = 1000.0, cpu_s: float = 1.0) -> UngatedSeen:
    """A compiler that no gate caught."""
    process = UngatedProcess(pid=pid, start_ticks=pid, name="cc1plus", rss_mib=rss_mib, cpu_s=cpu_s)
    return UngatedSeen(processes=(process,), headroom_mib=1200.0, reserve_mib=RESERVE_MIB, phases_mib=0.0)


def run(made: Scheduler, sizes_mib: list[float], *, redoable: bool = True) -> None:
    """Phases from 1 on that hold so much."""
    for phase_id in range(1, len(sizes_mib) + 1):
        handle(made, PhaseAsked(phase=phase(phase_id, redoable=redoable)), 0.0)
    look(made, sizes_mib, headroom_mib=3000.0, now_s=1.0)
    assert made.running == len(sizes_mib)


def look(made: Scheduler, sizes_mib: list[float], *, headroom_mib: float, now_s: float) -> list[Decision]:
    """A look at memory."""
    event = sampled(
        dict(enumerate(sizes_mib, 1)), headroom_mib=headroom_mib, budget_mib=BUDGET_MIB, reserve_mib=RESERVE_MIB
    )
    decisions = handle(made, msgspec.structs.replace(event, held_mib=sum(sizes_mib)), now_s)
    made.check()
    return decisions


def kills(decisions: list[Decision]) -> list[tuple[int, KillReason]]:
    return [(each.phase_id, each.reason) for each in decisions if isinstance(each, Kill)]


# -- beside processes that no gate asked for -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes_mib", "ended_for"),
    [
        pytest.param([500.0], [(1, KillReason.UNGATED)], id="one"),
        pytest.param([500.0, 500.0], [(2, KillReason.HEADROOM)], id="two"),
        pytest.param([500.0, 20.0], [(1, KillReason.UNGATED)], id="one-and-one-that-begins"),
        pytest.param([LEAST_UNGATED_MIB - 1], [], id="one-that-holds-next-to-nothing"),
    ],
)
def test_only_the_last_phase_makes_way_for_them(
    sizes_mib: list[float], ended_for: list[tuple[int, KillReason]]
) -> None:
    """Of several the guard chooses, one after the other; but never one that holds next to nothing."""
    made = scheduler()
    run(made, sizes_mib)
    handle(made, working(), 1.5)
    assert kills(look(made, sizes_mib, headroom_mib=0.0, now_s=2.0)) == ended_for


def test_a_last_phase_that_cannot_be_run_again_does_not_make_way() -> None:
    """Nothing would be gained: neither can be."""
    made = scheduler()
    run(made, [500.0], redoable=False)
    handle(made, working(), 1.5)
    assert kills(look(made, [500.0], headroom_mib=0.0, now_s=2.0)) == []


def test_a_phase_that_makes_way_is_not_ended_twice() -> None:
    """Its memory is not back yet."""
    made = scheduler()
    run(made, [500.0])
    handle(made, working(), 1.5)
    assert kills(look(made, [500.0], headroom_mib=0.0, now_s=2.0)) == [(1, KillReason.UNGATED)]
    assert kills(look(made, [500.0], headroom_mib=0.0, now_s=2.1)) == []


def test_without_them_the_last_phase_is_not_ended() -> None:
    """None was seen; they are gone; or what is there makes no progress."""
    made = scheduler()
    run(made, [500.0])
    assert kills(look(made, [500.0], headroom_mib=0.0, now_s=1.5)) == []
    handle(made, working(), 1.6)
    handle(made, UngatedGone(), 1.8)
    assert kills(look(made, [500.0], headroom_mib=0.0, now_s=2.0)) == []
    for now_s in range(2, 12):
        handle(made, working(), float(now_s))
    assert kills(look(made, [500.0], headroom_mib=0.0, now_s=12.0)) == []


@pytest.mark.parametrize(("falls_mib_s", "ended_for"), [(0.0, []), (2000.0, [(1, KillReason.UNGATED)])])
def test_the_faster_memory_goes_the_sooner_the_phase_makes_way(
    falls_mib_s: float, ended_for: list[tuple[int, KillReason]]
) -> None:
    """What is left would be gone before the phase's memory is back."""
    made = scheduler()
    run(made, [500.0])
    handle(made, working(), 1.5)
    headroom_mib = UNGATED_LATENCY_S * 2000.0 - 1
    assert headroom_mib > DANGER_SHARE * RESERVE_MIB
    look(made, [500.0], headroom_mib=headroom_mib + falls_mib_s, now_s=2.0)
    assert kills(look(made, [500.0], headroom_mib=headroom_mib, now_s=3.0)) == ended_for


# -- beside another build --------------------------------------------------------------------------------------


def share(*, yields: bool = True, growth_mib_s: float = 0.0, lease_mib: float = POOL_MIB) -> ShareSettled:
    return ShareSettled(lease_mib=lease_mib, pool_mib=POOL_MIB, growth_mib_s=growth_mib_s, yields=yields)


@pytest.mark.parametrize("yields", [True, False])
def test_the_only_phase_is_ended_where_the_other_build_goes_on(yields: bool) -> None:
    """Alone a build never ends its only phase; beside another one of the two has to."""
    made = scheduler()
    run(made, [500.0])
    handle(made, share(yields=yields), 1.5)
    decided = kills(look(made, [500.0], headroom_mib=DANGER_SHARE * RESERVE_MIB - 1, now_s=2.0))
    assert decided == ([(1, KillReason.OTHER_BUILD)] if yields else [])


@pytest.mark.parametrize(("sizes_mib", "redoable"), [([LEAST_WORTH_MIB - 1], True), ([500.0], False)])
def test_what_frees_nothing_or_cannot_be_run_again_is_not_ended_for_another_build(
    sizes_mib: list[float], redoable: bool
) -> None:
    """Its work would be lost."""
    made = scheduler()
    run(made, sizes_mib, redoable=redoable)
    handle(made, share(), 1.5)
    assert kills(look(made, sizes_mib, headroom_mib=0.0, now_s=2.0)) == []


def test_of_several_phases_the_guard_chooses() -> None:
    """The build does not stand still for it."""
    made = scheduler()
    run(made, [500.0, 500.0])
    handle(made, share(), 1.5)
    assert kills(look(made, [500.0, 500.0], headroom_mib=0.0, now_s=2.0)) == [(2, KillReason.HEADROOM)]


def test_the_faster_all_builds_grow_the_sooner_one_gives_way() -> None:
    """What is left would be gone before its memory is back."""
    made = scheduler()
    run(made, [500.0])
    growth_mib_s = 1000.0 / KILL_LATENCY_S
    handle(made, share(growth_mib_s=growth_mib_s), 1.5)
    assert kills(look(made, [500.0], headroom_mib=1001.0, now_s=2.0)) == []
    assert kills(look(made, [500.0], headroom_mib=999.0, now_s=2.1)) == [(1, KillReason.OTHER_BUILD)]


# -- what the kernel ends beside either ------------------------------------------------------------------------


def verdicts(made: Scheduler, beside: tuple[Beside, ...], *, peak_mib: float, times: int = 1) -> list[Decision]:
    """What is made of a phase that the kernel ends so often, each time alone among the phases."""
    handle(made, PhaseAsked(phase=phase(1)), 0.0)
    found: list[Decision] = []
    for now_s in range(1, times + 1):
        assert made.running == 1
        event = msgspec.structs.replace(ended(1, Outcome.KILLED_BY_KERNEL, peak_mib=peak_mib), beside=beside)
        found += [each for each in handle(made, event, float(now_s)) if isinstance(each, Requeue | GiveUp)]
        made.check()
    return found


@pytest.mark.parametrize("beside", [Beside.UNGATED, Beside.OTHER_BUILDS])
def test_what_the_kernel_ends_beside_them_is_not_called_too_big_three_times(beside: Beside) -> None:
    """It was not alone, though no other phase ran; but a phase that dies again and again has its verdict."""
    found = verdicts(scheduler(), (beside,), peak_mib=BIG_MIB, times=MOST_EXCUSED + 1)
    assert [type(each) for each in found] == [Requeue] * MOST_EXCUSED + [GiveUp]
    assert isinstance(found[-1], GiveUp)
    assert found[-1].verdict is Verdict.TOO_BIG


def test_what_the_kernel_ends_alone_is_called_too_big_at_once() -> None:
    """Nothing else held memory."""
    (verdict,) = verdicts(scheduler(), (), peak_mib=BIG_MIB)
    assert isinstance(verdict, GiveUp)
    assert verdict.verdict is Verdict.TOO_BIG


@pytest.mark.parametrize(("peak_mib", "decided"), [(POOL_MIB - 1, Requeue), (POOL_MIB, GiveUp)])
def test_a_phase_that_held_all_that_builds_have_together_is_too_big(
    peak_mib: float, decided: type[Requeue | GiveUp]
) -> None:
    """At once, whatever other builds did."""
    made = scheduler()
    handle(made, share(yields=False, lease_mib=POOL_MIB), 0.0)
    assert [type(each) for each in verdicts(made, (Beside.OTHER_BUILDS,), peak_mib=peak_mib)] == [decided]


def test_a_phase_that_was_given_up_and_asks_again_has_its_excuses_again() -> None:
    """Nothing of it is kept when it is over."""
    made = scheduler()
    assert len(verdicts(made, (Beside.UNGATED,), peak_mib=BIG_MIB, times=MOST_EXCUSED + 1)) == MOST_EXCUSED + 1
    again = verdicts(made, (Beside.UNGATED,), peak_mib=BIG_MIB, times=MOST_EXCUSED)
    assert [type(each) for each in again] == [Requeue] * MOST_EXCUSED
