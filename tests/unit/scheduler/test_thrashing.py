"""When a build counts as hanging at its memory limit, look by look, one a second."""

from __future__ import annotations

from typing import Any

import pytest

from builddoctor.core.events import HighLevel, PressureSampled, Throttled
from builddoctor.core.settings import ThrashRules
from builddoctor.scheduler.thrashing import HighWatch, StandstillWatch, ThrashState, ThrashWatch
from builddoctor.trace.words import throttled_words

NONE, ACT, HOLD = ThrashState.NONE, ThrashState.ACT, ThrashState.HOLD


class Build:
    """A build with one look a second."""

    def __init__(self) -> None:
        self.watch = ThrashWatch(ThrashRules())
        self.now_s = 0.0
        self.full_s = 0.0
        self.refault_mib = 0.0
        self.ended = 0

    def go(
        self,
        seconds: int,
        *,
        full_share: float | None = 0.0,
        refault_mib_s: float | None = 0.0,
        fullness: float | None = 0.5,
        headroom_share: float = 0.8,
        running: int = 2,
    ) -> list[ThrashState]:
        states = []
        for _ in range(seconds):
            self.now_s += 1.0
            self.full_s += full_share or 0.0
            self.refault_mib += refault_mib_s or 0.0
            reading = PressureSampled(
                at_s=self.now_s,
                headroom_share=headroom_share,
                full_s=None if full_share is None else self.full_s,
                refault_mib=None if refault_mib_s is None else self.refault_mib,
                fullness=fullness,
            )
            states.append(self.watch.look(reading, ended=self.ended, running=running))
        return states


@pytest.mark.trap(29)
def test_pressure_that_is_stuck_high_does_nothing() -> None:
    """99 % for ever with 80 % of the memory free: a kernel without CPU accounting (oomd#119)."""
    build = Build()
    assert set(build.go(600, full_share=0.99)) == {NONE}


@pytest.mark.trap(29)
def test_pressure_once_seen_to_be_stuck_is_not_believed_when_memory_is_short() -> None:
    """A budget that is well used leaves little headroom, and that is no reason to end anything."""
    build = Build()
    build.go(30, full_share=0.99)
    assert set(build.go(600, full_share=0.99, headroom_share=0.05)) == {NONE}


@pytest.mark.trap(29)
def test_without_pressure_and_without_refaults_nothing_is_done() -> None:
    """Neither file there, or PSI switched off: what cannot be read is no evidence."""
    states = Build().go(300, full_share=None, refault_mib_s=None, fullness=None, headroom_share=0.01)
    assert set(states) == {NONE}


def test_stalls_with_little_headroom_count_after_ten_seconds() -> None:
    """All tasks waited for memory for more than 30 % of them."""
    build = Build()
    states = build.go(12, full_share=0.35, headroom_share=0.1)
    assert states.index(ACT) == 10
    assert build.watch.stall is not None
    assert build.watch.stall.full_share == pytest.approx(0.35)


@pytest.mark.parametrize(("full_share", "headroom_share"), [(0.29, 0.1), (0.6, 0.2), (0.6, 0.49)])
def test_less_pressure_or_more_headroom_does_not_count(full_share: float, headroom_share: float) -> None:
    """Both are needed."""
    assert set(Build().go(120, full_share=full_share, headroom_share=headroom_share)) == {NONE}


def test_a_short_stall_does_not_count() -> None:
    """Two seconds of it in ten."""
    build = Build()
    build.go(20, headroom_share=0.1)
    assert set(build.go(2, full_share=1.0, headroom_share=0.1) + build.go(20, headroom_share=0.1)) == {NONE}


@pytest.mark.trap(40)
def test_refaults_at_the_limit_count_when_no_phase_ends_for_a_minute() -> None:
    """Mapped files count as memory that can be had back, so headroom looks well; and there may be no PSI."""
    build = Build()
    states = build.go(70, full_share=None, refault_mib_s=200.0, fullness=1.0, headroom_share=0.9)
    assert states.index(ACT) == 60
    assert build.watch.stall is not None
    assert build.watch.stall.refault_mib_s == pytest.approx(200.0)


@pytest.mark.trap(40)
def test_stalls_with_refaults_at_the_limit_count_at_once() -> None:
    """The same hang with PSI: ten seconds will do, however much seems to be free."""
    states = Build().go(12, full_share=0.9, refault_mib_s=200.0, fullness=1.0, headroom_share=0.9)
    assert states.index(ACT) == 10


@pytest.mark.parametrize(("refault_mib_s", "fullness"), [(9.0, 1.0), (200.0, 0.94), (None, 1.0), (200.0, None)])
def test_few_refaults_or_room_left_do_not_count(refault_mib_s: float | None, fullness: float | None) -> None:
    """A cgroup full of page cache is at its limit all day."""
    assert set(Build().go(200, refault_mib_s=refault_mib_s, fullness=fullness)) == {NONE}


def test_a_build_whose_phases_end_does_not_hang() -> None:
    """One every fifty seconds is progress."""
    build = Build()
    for _ in range(6):
        assert set(build.go(50, refault_mib_s=200.0, fullness=1.0)) == {NONE}
        build.ended += 1


def test_nothing_counts_while_nothing_runs() -> None:
    """Then it is not our build that hangs."""
    assert set(Build().go(200, full_share=1.0, refault_mib_s=500.0, fullness=1.0, running=0)) == {NONE}


def test_after_something_ended_nothing_new_starts_for_a_while_and_nothing_else_is_ended() -> None:
    """What was measured before says nothing about now: one at a time, each with a full window of its own."""
    build = Build()
    assert build.go(11, full_share=0.9, headroom_share=0.1)[-1] is ACT
    build.ended += 1
    assert set(build.go(29, full_share=0.9, headroom_share=0.1)) == {HOLD}
    assert ACT in build.go(12, full_share=0.9, headroom_share=0.1)


def test_acting_ends_when_the_stall_does() -> None:
    """Without any end of a phase."""
    build = Build()
    assert build.go(11, full_share=0.9, headroom_share=0.1)[-1] is ACT
    assert build.go(12, headroom_share=0.1)[-1] is NONE


def test_a_counter_that_can_no_longer_be_read_is_no_evidence() -> None:
    """The last figure is not believed for ever."""
    build = Build()
    assert build.go(11, full_share=0.9, headroom_share=0.1)[-1] is ACT
    assert set(build.go(60, full_share=None, headroom_share=0.1)) == {NONE}


def test_a_counter_that_falls_does_nothing() -> None:
    """Moved to another cgroup: what it counted before is not there."""
    build = Build()
    build.go(9, full_share=0.9, headroom_share=0.1)
    build.full_s = 0.0
    assert set(build.go(10, full_share=0.9, headroom_share=0.1)) == {NONE}


@pytest.mark.parametrize(
    ("changed", "stands"),
    [
        ({}, True),
        ({"hangs": False}, False),
        ({"running": 2}, False),
        ({"headroom_share": 0.02}, False),
        ({"refault_mib_s": 5.0}, False),
        ({"refault_mib_s": None}, False),
        ({"grows_mib_s": 0.5}, False),
        ({"ends": 60}, False),
        ({"seconds": 119}, False),
    ],
)
def test_a_phase_stands_still_where_all_says_so_for_two_minutes(changed: dict[str, Any], stands: bool) -> None:
    """It is alone, the build hangs, nothing is left, memory is read in again, nothing ends, and it does not grow."""
    case: dict[str, Any] = {
        "hangs": True,
        "running": 1,
        "headroom_share": 0.0007,
        "refault_mib_s": 330.0,
        "grows_mib_s": 0.005,
    }
    case = {**case, "seconds": 121, "ends": 1000, **changed}
    watch, found = StandstillWatch(ThrashRules()), None
    for second in range(case["seconds"]):
        rate = case["refault_mib_s"]
        reading = PressureSampled(
            at_s=float(second),
            headroom_share=case["headroom_share"],
            refault_mib=None if rate is None else rate * second,
        )
        held_mib = 1400.0 + case["grows_mib_s"] * second
        ended = int(second >= case["ends"])
        found = watch.look(reading, hangs=case["hangs"], ended=ended, running=case["running"], held_mib=held_mib)
    assert (found is not None) == stands
    assert found is None or found.refault_mib_s == pytest.approx(330.0)


class HeldBack:
    """A phase under a ``memory.high`` of 800 MiB, with one look a second."""

    def __init__(self) -> None:
        self.watch = HighWatch(ThrashRules())
        self.now_s = 0.0
        self.events = 5
        self.some_s = 0.0
        self.held_mib = 760.0
        self.ended = 0

    def go(
        self,
        seconds: int,
        *,
        headroom_mib: float = -10.0,
        events: int | None = 50,
        some_share: float | None = 0.9,
        grows_mib_s: float = 0.1,
        running: int = 1,
    ) -> list[Throttled | None]:
        found = []
        for _ in range(seconds):
            self.now_s += 1.0
            self.events += events or 0
            self.some_s += some_share or 0.0
            self.held_mib += grows_mib_s
            reading = PressureSampled(
                at_s=self.now_s,
                headroom_share=0.1,
                some_s=None if some_share is None else self.some_s,
                high_events=None if events is None else self.events,
                high=HighLevel(source="/sys/fs/cgroup/a/memory.high", limit_mib=800.0, headroom_mib=headroom_mib),
                held_mib=self.held_mib,
            )
            found.append(self.watch.look(reading, ended=self.ended, running=running))
        return found


@pytest.mark.trap(8)
def test_a_phase_held_back_at_memory_high_is_stuck_after_ten_seconds() -> None:
    """As in a real kernel: the counter rises, a process waits nearly always, and the phase hardly grows."""
    found = HeldBack().go(12)
    assert found[:10] == [None] * 10
    assert found[10] is not None
    assert throttled_words(found[10]) == (
        "memory.high held it back 500 times in 10 s, and it gets no further: it needs more than 800 MiB; "
        "raise /sys/fs/cgroup/a/memory.high, or set it to max, so that memory.max alone holds"
    )


@pytest.mark.trap(8)
def test_without_pressure_files_the_counter_and_the_lack_of_growth_are_enough() -> None:
    """PSI may be switched off."""
    assert HeldBack().go(12, some_share=None)[-1]


@pytest.mark.trap(8)
@pytest.mark.parametrize(
    "otherwise",
    [
        {"headroom_mib": 100.0},
        {"events": 0},
        {"events": None},
        {"some_share": 0.05},
        {"grows_mib_s": 5.0},
        {"running": 0},
    ],
    ids=["room", "not held back", "no counter", "nobody waits", "grows", "nothing runs"],
)
def test_a_phase_that_gets_on_at_memory_high_is_left_alone(otherwise: dict) -> None:
    """Just above the limit the kernel holds back a little, and the phase ends by itself."""
    assert set(HeldBack().go(120, **otherwise)) == {None}


@pytest.mark.trap(8)
def test_each_end_of_a_phase_begins_a_new_window() -> None:
    """Something gave its memory back."""
    build = HeldBack()
    build.go(9)
    build.ended += 1
    assert set(build.go(10)) == {None}
    assert build.go(2)[-1]
