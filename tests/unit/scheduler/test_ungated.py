"""Which processes without gates are stopped for a while, and when they go on."""

from __future__ import annotations

import pytest

from builddoctor.core.events import Continue, Pause, UngatedProcess, UngatedSeen
from builddoctor.scheduler.ungated import (
    CALM_S,
    IDLE_S,
    LEAST_RUN_S,
    LEAST_STOPPED_S,
    MOST_STOPPED_S,
    UngatedPauses,
    may_be_stopped,
)


def process(pid: int, rss_mib: float, *, cpu_s: float = 0.0, stopped: bool = False) -> UngatedProcess:
    """A compiler; those with higher numbers are younger."""
    return UngatedProcess(pid=pid, start_ticks=pid, name="cc1plus", rss_mib=rss_mib, cpu_s=cpu_s, stopped=stopped)


def took(actions: list[Pause | Continue]) -> list[tuple[str, int]]:
    return [("stop" if isinstance(each, Pause) else "continue", each.process.pid) for each in actions]


def look(
    pauses: UngatedPauses,
    processes: list[UngatedProcess],
    *,
    free_mib: float,
    now_s: float,
    phases_cpu_s: float = 0.0,
) -> list[Pause | Continue]:
    """A walk through the tree that found these."""
    seen = UngatedSeen(
        at_s=now_s,
        processes=tuple(processes),
        headroom_mib=free_mib,
        reserve_mib=0.0,
        phases_mib=0.0,
        phases_cpu_s=phases_cpu_s,
    )
    return pauses.look(seen, free_mib=free_mib)


def test_while_all_that_grow_may_double_none_is_stopped() -> None:
    """Three times 100 MiB beside 301 that are free."""
    pauser = UngatedPauses()
    assert look(pauser, [process(pid, 100) for pid in (1, 2, 3)], free_mib=301, now_s=0) == []
    assert pauser.need_mib == 300


def test_the_youngest_go_first_and_no_more_than_needed() -> None:
    """Of four, two are left that may double in 220 MiB."""
    actions = look(UngatedPauses(), [process(pid, 100) for pid in (3, 1, 4, 2)], free_mib=220, now_s=0)
    assert took(actions) == [("stop", 4), ("stop", 3)]


def test_one_that_no_longer_grows_is_let_be() -> None:
    """It takes nothing more, and would keep what it holds: of the others the youngest is stopped."""
    pauser = UngatedPauses()
    look(pauser, [process(pid, 100, cpu_s=0) for pid in (1, 2, 3)], free_mib=1000, now_s=0)
    now_s = CALM_S + 0.5
    grown = [process(1, 200), process(2, 200), process(3, 101, cpu_s=3)]
    assert took(look(pauser, grown, free_mib=250, now_s=now_s)) == [("stop", 2)]


def test_the_last_one_is_never_stopped() -> None:
    """Nothing is free at all: the oldest goes on."""
    actions = look(UngatedPauses(), [process(1, 100), process(2, 100)], free_mib=0, now_s=0)
    assert took(actions) == [("stop", 2)]
    assert look(UngatedPauses(), [process(1, 100)], free_mib=0, now_s=0) == []


def test_while_phases_with_gates_make_progress_the_last_may_be_stopped_too() -> None:
    """They run alone then; when they end, or only wait, it goes on."""
    pauser = UngatedPauses()
    assert took(look(pauser, [process(1, 100)], free_mib=0, now_s=0, phases_cpu_s=1.0)) == [("stop", 1)]
    stopped = [process(1, 100, stopped=True)]
    assert look(pauser, stopped, free_mib=0, now_s=IDLE_S, phases_cpu_s=1.0) == []
    actions = look(pauser, stopped, free_mib=0, now_s=IDLE_S + 0.1, phases_cpu_s=1.0)
    assert took(actions) == [("continue", 1)]
    pauser = UngatedPauses()
    look(pauser, [process(1, 100)], free_mib=0, now_s=0, phases_cpu_s=1.0)
    assert took(look(pauser, stopped, free_mib=0, now_s=0.1)) == [("continue", 1)]


def test_the_last_is_not_stopped_beside_phases_while_half_of_what_it_may_take_is_free() -> None:
    """It gets on while it can: phases can be redone, and it cannot."""
    assert look(UngatedPauses(), [process(1, 100)], free_mib=50, now_s=0, phases_cpu_s=1.0) == []


def test_the_oldest_that_makes_progress_is_the_one_that_stays() -> None:
    """A server, older than all compilers, sits there and does nothing: it is not what keeps the build going."""
    pauser = UngatedPauses()
    look(pauser, [process(1, 100), process(2, 80), process(3, 80)], free_mib=1000, now_s=0)
    now_s = IDLE_S + 1
    actions = look(pauser, [process(1, 100), process(2, 200), process(3, 200)], free_mib=100, now_s=now_s)
    assert took(actions) == [("stop", 3)]


def test_one_goes_on_when_there_is_room_for_it_and_half_as_much_again() -> None:
    """Not sooner, and not before some seconds have passed."""
    pauser = UngatedPauses()
    look(pauser, [process(1, 100), process(2, 100)], free_mib=50, now_s=0)
    stopped = [process(1, 100, cpu_s=9), process(2, 100, stopped=True)]
    assert look(pauser, stopped, free_mib=400, now_s=LEAST_STOPPED_S / 2) == []
    assert look(pauser, stopped, free_mib=249, now_s=LEAST_STOPPED_S) == []
    assert took(look(pauser, stopped, free_mib=250, now_s=LEAST_STOPPED_S)) == [("continue", 2)]


def test_those_that_are_stopped_go_on_one_after_the_other_oldest_first() -> None:
    """What the first takes must show before the next."""
    pauser = UngatedPauses()
    look(pauser, [process(pid, 100) for pid in (1, 2, 3)], free_mib=0, now_s=0)
    stopped = [process(1, 100, cpu_s=9), process(2, 100, stopped=True), process(3, 100, stopped=True)]
    assert took(look(pauser, stopped, free_mib=9000, now_s=10)) == [("continue", 2)]
    stopped[1] = process(2, 100)
    assert look(pauser, stopped, free_mib=9000, now_s=10.1) == []
    assert took(look(pauser, stopped, free_mib=9000, now_s=11.1)) == [("continue", 3)]


def test_when_only_stopped_ones_are_left_the_oldest_goes_on_at_once() -> None:
    """Whatever is free."""
    pauser = UngatedPauses()
    look(pauser, [process(pid, 100) for pid in (1, 2, 3)], free_mib=0, now_s=0)
    left = [process(2, 100, stopped=True), process(3, 100, stopped=True)]
    assert took(look(pauser, left, free_mib=0, now_s=0.1)) == [("continue", 2)]


def test_when_what_runs_makes_no_progress_the_oldest_goes_on() -> None:
    """It may wait for the one that is stopped: at the other end of a pipe, for a lock."""
    pauser = UngatedPauses()
    look(pauser, [process(1, 100), process(2, 100)], free_mib=0, now_s=0)
    waiting = [process(1, 100), process(2, 100, stopped=True)]
    assert look(pauser, waiting, free_mib=0, now_s=IDLE_S) == []
    assert took(look(pauser, waiting, free_mib=0, now_s=IDLE_S + 0.1)) == [("continue", 2)]


def test_none_is_stopped_for_longer_than_timeouts_allow() -> None:
    """And the one that goes on then is the oldest, so another one is stopped in its place."""
    pauser = UngatedPauses()
    look(pauser, [process(2, 100), process(3, 100)], free_mib=0, now_s=0)
    now_s = MOST_STOPPED_S
    both = [process(2, 100, stopped=False, cpu_s=1), process(3, 100, stopped=True)]
    actions = look(pauser, both, free_mib=0, now_s=now_s)
    assert ("continue", 3) in took(actions)


def test_one_that_goes_on_is_left_to_run_unless_memory_is_very_short() -> None:
    """No stopping and starting by turns."""
    pauser = UngatedPauses()
    look(pauser, [process(1, 100), process(2, 100)], free_mib=0, now_s=0)
    look(pauser, [process(1, 100, cpu_s=1), process(2, 100, stopped=True)], free_mib=500, now_s=5)
    running = [process(1, 110, cpu_s=2), process(2, 110)]
    assert look(pauser, running, free_mib=200, now_s=5.1) == []
    assert took(look(pauser, running, free_mib=100, now_s=5.2)) == [("stop", 2)]


def test_after_a_while_it_may_be_stopped_again() -> None:
    """When it grows as before."""
    pauser = UngatedPauses()
    look(pauser, [process(1, 100), process(2, 100)], free_mib=0, now_s=0)
    look(pauser, [process(1, 100, cpu_s=1), process(2, 100, stopped=True)], free_mib=500, now_s=5)
    running = [process(1, 150, cpu_s=2), process(2, 150)]
    assert took(look(pauser, running, free_mib=200, now_s=5 + LEAST_RUN_S)) == [("stop", 2)]


def test_what_somebody_else_stopped_is_not_ours() -> None:
    """It is neither let go on nor counted."""
    pauser = UngatedPauses()
    assert look(pauser, [process(1, 100, stopped=True)], free_mib=0, now_s=0) == []
    assert look(pauser, [process(1, 100, stopped=True)], free_mib=0, now_s=100) == []
    assert pauser.need_mib == 0


def test_one_that_somebody_else_let_go_on_runs() -> None:
    """It is no longer taken for stopped."""
    pauser = UngatedPauses()
    look(pauser, [process(1, 100), process(2, 100)], free_mib=0, now_s=0)
    assert pauser.paused == {(2, 2)}
    look(pauser, [process(1, 100, cpu_s=1), process(2, 100, cpu_s=1)], free_mib=500, now_s=2)
    assert pauser.paused == frozenset()


def test_one_that_cannot_be_stopped_is_not_tried_again() -> None:
    """It belongs to another user; the next is taken."""
    pauser = UngatedPauses()
    three = [process(pid, 100) for pid in (1, 2, 3)]
    (action, *_) = look(pauser, three, free_mib=200, now_s=0)
    pauser.refused(action.process)
    assert took(look(pauser, three, free_mib=200, now_s=0.1)) == [("stop", 2)]


def test_memory_for_those_that_wait_is_kept() -> None:
    """What is to go on next needs its room: phases that ask must not take it."""
    pauser = UngatedPauses()
    look(pauser, [process(1, 100), process(2, 100)], free_mib=150, now_s=0)
    assert pauser.need_mib == 100 + 1.5 * 100


@pytest.mark.parametrize(
    "name", ["bash", "sh", "make", "ninja", "python3.11", "cargo", "cmake", "as", "sccache", "fatbinary"]
)
def test_shells_and_build_tools_are_never_stopped(name: str) -> None:
    """Nor what stands at the end of a pipe, or ends its unit's work in a second."""
    assert not may_be_stopped(name)


@pytest.mark.parametrize("name", ["VLLM::Worker_TP", "VLLM::EngineCor", "sglang::schedul", "pt_main_thread"])
def test_what_runs_python_is_never_stopped_whatever_it_calls_itself(name: str) -> None:
    """Processes that serve a model give themselves names; stopped, the server is down."""
    assert not may_be_stopped(name, "python3.12")
    assert may_be_stopped(name, "")


@pytest.mark.parametrize("name", ["cc1plus", "cicc", "ptxas", "cudafe++", "rustc", "ld", "lld", "mold", "clang-17"])
def test_compilers_and_linkers_may_be_stopped(name: str) -> None:
    """All the others, that is."""
    assert may_be_stopped(name)


def test_who_was_stopped_longest_goes_on_first_in_any_case() -> None:
    """The young are stopped before the old: after some minutes it is their turn."""
    pauser = UngatedPauses()
    look(pauser, [process(pid, 100) for pid in (1, 2, 3)], free_mib=220, now_s=0)
    later_s = MOST_STOPPED_S - 10
    grown = [process(1, 300, cpu_s=1), process(2, 300, cpu_s=1), process(3, 100, stopped=True)]
    assert ("stop", 2) in took(look(pauser, grown, free_mib=310, now_s=later_s))
    both = [process(1, 600, cpu_s=2), process(2, 300, stopped=True), process(3, 100, stopped=True)]
    assert took(look(pauser, both, free_mib=0, now_s=MOST_STOPPED_S))[0] == ("continue", 3)
