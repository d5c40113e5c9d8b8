"""Which held units are opened, when, and with how many threads."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import pytest

from builddoctor.core.events import ReleaseUnit
from builddoctor.core.phase import Unit
from builddoctor.scheduler.unit_release import STALL_S, UnitRelease

ARCHS = ("sm_80", "sm_90", "sm_100")


def unit(name: str, *, archs: tuple[str, ...] = ("sm_90",), threads: int = 1) -> Unit:
    return Unit(unit_id=name, source=f"{name}.cu", archs=archs, threads=threads)


def opening(
    seconds: Mapping[str, float] | None = None,
    *,
    slots: int = 2,
    cores: int = 2,
    most_open: int = 100,
    most_threads: int | None = None,
) -> UnitRelease:
    """Times of units by id, 0.25 s for others, as an estimator has it; priorities are those times."""
    times = seconds if seconds is not None else {}

    def of(each: Unit) -> float:
        return times.get(each.unit_id, 0.25)

    return UnitRelease(
        priority=of, expected_s=of, slots=slots, cores=cores, most_open=most_open, most_threads=most_threads
    )


def register(held: UnitRelease, *names: str) -> None:
    for name in names:
        held.registered(unit(name), 0.0)


def opened(
    held: UnitRelease, now_s: float = 0.0, *, running: int = 0, waiting: int = 0, tight: bool = False
) -> list[str]:
    return [each.unit_id for each in held.next(now_s, running=running, waiting=waiting, tight=tight)]


def test_enough_are_opened_for_every_slot_and_no_more() -> None:
    """Four slots idle: four units are opened, and no fifth before one of them has begun."""
    held = opening(slots=4, cores=4)
    register(held, *"abcdefgh")
    assert opened(held) == list("abcd")
    assert opened(held, waiting=4) == []
    assert (held.open, held.held) == (4, 4)


def test_a_few_wait_beside_full_slots() -> None:
    """All slots run: two more units are opened, so that who ends is followed at once."""
    held = opening(slots=4, cores=4)
    register(held, *"abcdefgh")
    opened(held)
    for name in "abcd":
        held.started(name, 0.0)
    assert opened(held, running=4) == ["e", "f"]
    assert opened(held, running=4, waiting=2) == []


def test_more_are_opened_while_memory_leaves_slots_idle() -> None:
    """Two of eight slots run, the rest waits for memory: six units that have not begun are open for them."""
    held = opening(slots=8, cores=8)
    register(held, *(f"u{n}" for n in range(40)))
    for name in opened(held):
        held.started(name, 0.0)
    assert len(opened(held, running=2, waiting=6, tight=True)) == 6
    assert opened(held, running=2, waiting=12, tight=True) == []


def test_the_most_urgent_opens_first_and_the_unknown_as_they_came() -> None:
    """Known times decide; those that nobody knows follow in the order of arrival."""
    held = opening({"short": 3.0, "long": 90.0}, slots=8)
    register(held, "x", "short", "y", "long", "z")
    assert opened(held) == ["long", "short", "x", "y", "z"]


def test_an_urgent_late_comer_does_not_wait_behind_lesser_ones_that_wait() -> None:
    """The slots are busy and lesser units wait open: one that takes longer is opened all the same."""
    held = opening({"long": 90.0}, slots=2)
    register(held, *"abcdef")
    assert opened(held, running=2) == ["a", "b"]
    assert opened(held, running=2) == []
    register(held, "long")
    assert opened(held, running=2) == ["long"]


def test_never_more_are_open_than_allowed() -> None:
    """However idle: not more than ``most_open``; one for each slot and one more are always allowed."""
    held = opening(slots=8, most_open=10)
    register(held, *(f"u{n}" for n in range(20)))
    for _ in range(5):
        for name in opened(held):
            held.started(name, 0.0)
    assert held.open == 10
    small = opening(slots=8, most_open=1)
    register(small, *(f"u{n}" for n in range(20)))
    for _ in range(5):
        for name in opened(small):
            small.started(name, 0.0)
    assert small.open == 9


def test_who_ended_makes_room() -> None:
    """An ended unit is followed; one whose gate died while it waited is never opened."""
    held = opening(slots=1, cores=1, most_open=2)
    register(held, *"abcd")
    assert opened(held) == ["a", "b"]
    held.ended("c", 1.0)
    held.ended("a", 1.0)
    assert opened(held) == ["d"]
    held.ended("nobody", 1.0)
    assert (held.open, held.held) == (2, 0)


def in_time(limit_s: float) -> Callable[[float], bool]:
    return lambda unit_s: unit_s <= limit_s


def test_what_would_not_end_in_time_is_passed_over() -> None:
    """The longest come first, and behind them are some that can still end."""
    held = opening({"a": 90.0, "b": 80.0, "c": 20.0, "d": 10.0})
    register(held, *"abcd")
    assert held.has_one(in_time(15.0))
    assert [each.unit_id for each in held.next(0.0, running=0, waiting=0, tight=False, has_time=in_time(30.0))] == [
        "c",
        "d",
    ]
    assert not held.has_one(in_time(30.0))
    assert (held.open, held.held) == (2, 2)


def test_an_opened_unit_that_became_too_late_makes_room() -> None:
    """It waits for no core; when its time was judged wrongly it may be begun all the same."""
    held = opening({"a": 9.0, "b": 8.0, "c": 7.0}, slots=1, cores=1, most_open=2)
    register(held, *"abc")
    assert opened(held) == ["a", "b"]
    assert opened(held, waiting=2) == []
    held.too_late("a")
    assert held.open == 1
    assert opened(held, waiting=2) == ["c"]
    held.started("a", 1.0)
    assert held.open == 3
    held.ended("a", 2.0)
    assert held.open == 2


def test_a_stall_opens_one_more() -> None:
    """Open units that never ask and never end, while nothing runs: whatever they wait for, others get their turn."""
    held = opening(slots=1, cores=1)
    register(held, *"abcdef")
    assert opened(held, 0.0) == ["a", "b"]
    assert opened(held, STALL_S - 0.1) == []
    assert opened(held, STALL_S) == ["c"]
    assert opened(held, STALL_S + 0.1) == []
    assert opened(held, 3 * STALL_S, running=1) == []
    assert opened(held, 3 * STALL_S, waiting=1) == []


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, -5.0])
def test_absurd_figures_are_no_trouble(odd: float) -> None:
    """Whatever an estimator says, units open."""
    held = opening({"odd": odd})
    held.registered(unit("odd", archs=ARCHS), 0.0)
    register(held, "a", "b")
    assert sorted(opened(held) + opened(held, 100.0)) == ["a", "b", "odd"]


def threads_of(held: UnitRelease, *, tight: bool = False) -> dict[str, int]:
    return {each.unit_id: each.threads for each in held.next(0.0, running=0, waiting=0, tight=tight)}


@pytest.mark.parametrize(
    ("units", "cores", "threads"),
    [(1, 8, 3), (2, 8, 3), (3, 8, 3), (4, 8, 2), (7, 8, 2), (8, 8, 0), (20, 8, 0), (1, 2, 2), (1, 1, 0)],
)
def test_threads_follow_the_cores_that_units_leave(units: int, cores: int, threads: int) -> None:
    """One for each arch when units run out; one, as the build had it, while there are as many units as cores."""
    held = opening(slots=cores, cores=cores)
    for n in range(units):
        held.registered(unit(f"u{n}", archs=ARCHS), 0.0)
    assert set(threads_of(held).values()) == {threads}


def test_a_unit_that_takes_longer_than_its_share_gets_threads() -> None:
    """Eight units for eight cores, but one takes as long as all others together: its archs are compiled at once."""
    times = {f"u{n}": 1.0 for n in range(8)} | {"u3": 7.0}
    held = opening(times, slots=8, cores=8)
    for name in times:
        held.registered(unit(name, archs=ARCHS), 0.0)
    assert threads_of(held) == {name: 3 if name == "u3" else 0 for name in times}


@pytest.mark.parametrize(
    ("archs", "given", "tight", "most", "threads"),
    [
        (ARCHS, 1, False, None, 3),
        (ARCHS, 3, False, None, 0),
        (ARCHS, 8, False, None, 3),
        (ARCHS, 0, False, None, 3),
        (ARCHS, 1, True, None, 0),
        (ARCHS, 4, True, None, 1),
        (ARCHS, 0, True, None, 1),
        (("sm_90",), 1, False, None, 0),
        (("sm_90",), 4, False, None, 0),
        (("sm_90",), 4, True, None, 1),
        ((), 4, False, None, 0),
        (ARCHS, 1, False, 2, 2),
        (ARCHS, 4, False, 1, 1),
        (ARCHS, 1, False, 1, 0),
    ],
)
def test_threads_of_a_lone_unit(
    archs: tuple[str, ...], given: int, tight: bool, most: int | None, threads: int
) -> None:
    """One for each arch; one where memory is short; never beyond a cap; untouched where they would not help."""
    held = opening(slots=8, cores=8, most_threads=most)
    held.registered(unit("u", archs=archs, threads=given), 0.0)
    assert held.next(0.0, running=0, waiting=0, tight=tight) == [ReleaseUnit(unit_id="u", threads=threads)]


def test_units_whose_end_is_never_heard_of_do_not_stop_the_others() -> None:
    """As many are open as may be, and nothing comes of them."""
    held = opening(slots=1, cores=1, most_open=2)
    register(held, *"abcd")
    assert opened(held, 0.0) == ["a", "b"]
    assert opened(held, STALL_S) == ["c"]
    assert opened(held, STALL_S + 0.1) == []
    assert opened(held, 2 * STALL_S) == ["d"]
