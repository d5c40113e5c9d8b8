"""Who rests is looked at less often."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from builddoctor.supervise.resting import LONG_S, PLACES, STILL_FOR_S, STILL_MIB_S, Resting

REST_S = 1.0


def looks(size_mib: Callable[[float], float], *, seconds: float, place: int = 0, rest_s: float = REST_S) -> list[float]:
    """Ten samples a second: when such a phase is looked at."""
    resting, next_s, found = Resting(place), 0.0, []
    for tick in range(int(10 * seconds)):
        now_s = 100 + tick / 10
        if now_s >= next_s:
            next_s = resting.saw(size_mib(now_s), now_s, rest_s=rest_s)
            found.append(now_s)
    return found


def test_a_phase_that_holds_still_is_looked_at_ten_times_less_often_and_later_twenty_times() -> None:
    """After half a second without a move; at ten samples a second and a resting time of one second."""
    found = looks(lambda _: 800.0, seconds=100)
    first = [now_s for now_s in found if now_s < 100 + LONG_S]
    assert found[4] - found[0] < STILL_FOR_S
    assert 9 <= len(first) <= 12
    assert 50 <= len(found) - len(first) <= 55


def test_a_phase_that_moves_is_looked_at_each_time() -> None:
    """Growing or shrinking, a little faster than what counts as still."""
    for direction in (1.1, -1.1):
        assert len(looks(lambda now_s, by=direction: by * STILL_MIB_S * now_s, seconds=10)) == 100


def test_a_phase_that_begins_to_move_is_looked_at_each_time_from_then_on() -> None:
    """Within the resting time, or twice that after a long rest. It may rest again later."""
    for moves_s, seen_s in ((103, 104), (110, 112)):
        found = looks(lambda now_s, at_s=moves_s: 800.0 + 100 * max(0.0, min(now_s - at_s, 5)), seconds=30)
        assert len([now_s for now_s in found if seen_s <= now_s < moves_s + 5]) == 10 * (moves_s + 5 - seen_s)
    assert len([now_s for now_s in found if now_s >= 117]) < 20


def test_phases_that_begin_to_rest_together_are_not_looked_at_together() -> None:
    """A build starts many at once: their turns are spread over the resting time."""
    turns = [looks(lambda _: 800.0, seconds=20, place=place) for place in range(PLACES)]
    together = [len(list(same)) for _, same in itertools.groupby(sorted(each[-1] for each in turns))]
    assert max(together) < PLACES / 2


def test_without_a_resting_time_nobody_rests() -> None:
    """Every sample looks at everyone."""
    assert len(looks(lambda _: 800.0, seconds=10, rest_s=0.0)) == 100
