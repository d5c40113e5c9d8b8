"""What phases with a course hold from now on, and whether one more fits in time."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builddoctor.core.past import Course
from builddoctor.scheduler.course_forecast import (
    LEAST_LEFT,
    OFF_S,
    OFF_SHARE,
    CourseForecast,
    CourseForecasts,
    Outlook,
    Steps,
    ahead,
    later,
    with_slack,
)

HILL = ((0.3, 0.4), (0.6, 1.0), (1.0, 0.5))
OFF_OF_100_S = OFF_SHARE * 100.0 + OFF_S


def steps_of(course: Course, *, now_mib: float, peak_mib: float, elapsed_s: float) -> Steps:
    """Of a phase of 100 s."""
    slack = with_slack(course, 100.0)
    return ahead(slack, now_mib=now_mib, peak_mib=peak_mib, elapsed_s=elapsed_s, wall_s=100.0)


def test_a_course_rises_early_and_falls_late() -> None:
    """By what its time is uncertain; so does its end."""
    steps = steps_of(HILL, now_mib=0.0, peak_mib=1000.0, elapsed_s=0.0)
    assert [mib for _, mib in steps] == [400.0, 1000.0, 500.0]
    assert [until for until, _ in steps] == pytest.approx([30 - OFF_OF_100_S, 60 + OFF_OF_100_S, 100 + OFF_OF_100_S])


def test_what_is_behind_a_phase_is_gone() -> None:
    """70 s of 100: only the last step is left."""
    steps = steps_of(HILL, now_mib=500.0, peak_mib=1000.0, elapsed_s=70.0)
    assert steps == [(pytest.approx(30 + OFF_OF_100_S), 500.0)]


def test_what_is_held_now_stays_for_a_while() -> None:
    """The course says 500 MiB, and 900 were seen: it is late."""
    steps = steps_of(HILL, now_mib=900.0, peak_mib=1000.0, elapsed_s=70.0)
    assert steps == [(pytest.approx(OFF_OF_100_S), 900.0), (pytest.approx(30 + OFF_OF_100_S), 500.0)]


def test_a_phase_is_never_almost_done() -> None:
    """What takes longer than expected takes long."""
    steps = steps_of(HILL, now_mib=500.0, peak_mib=1000.0, elapsed_s=400.0)
    assert steps[-1][0] == pytest.approx(LEAST_LEFT * 100)


def test_a_dip_that_is_no_longer_than_times_are_uncertain_is_none() -> None:
    """Late from the first height, early to the second: the higher of both all along."""
    dip = ((0.50, 0.8), (0.52, 0.1), (1.0, 1.0))
    steps = steps_of(dip, now_mib=0.0, peak_mib=1000.0, elapsed_s=0.0)
    assert [mib for _, mib in steps] == [800.0, 1000.0]
    assert steps[0][0] == pytest.approx(52 - OFF_OF_100_S)


def beside(running: list[Steps], *, size_mib: float = 0.0, urgency: float = 0.0) -> CourseForecast:
    return CourseForecasts(Outlook(0.0, steps, size_mib) for steps in running).beside(urgency)


courses = st.lists(st.tuples(st.integers(1, 999), st.integers(1, 1000)), min_size=1, max_size=8).map(
    lambda steps: (
        *((share / 1000, level / 1000) for share, level in sorted(dict(steps[:-1]).items())),
        (1.0, steps[-1][1] / 1000),
    )
)


@given(courses, st.floats(0.0, 1.0), st.floats(-1.0, 1.0))
def test_within_the_slack_nothing_lies_above_the_steps(
    course: tuple[tuple[float, float], ...], elapsed: float, late: float
) -> None:
    """A phase that is ahead of its course or behind it by up to the slack holds no more than was forecast."""
    wall_s, off_s = 100.0, OFF_SHARE * 100.0 + OFF_S
    steps = steps_of(course, now_mib=0.0, peak_mib=1.0, elapsed_s=elapsed * wall_s)
    ends = [until for until, _ in steps]
    assert ends == sorted(ends)
    for moment in range(1, 100):
        after_s = moment * ends[-1] / 100
        then = (elapsed * wall_s + after_s + 0.99 * late * off_s) / wall_s
        if 0.0 < then <= 1.0:
            assert at(steps, after_s) >= next(level for until, level in course if then <= until)


def at(steps: Steps, after_s: float) -> float:
    return next((mib for until_s, mib in steps if after_s <= until_s), 0.0)


def test_what_falls_makes_room_for_what_rises() -> None:
    """800 MiB fall to 200 before the newcomer comes to its 800; what is more urgent keeps its own for the next."""
    running, newcomer = [(5.0, 800.0), (60.0, 200.0)], [(10.0, 100.0), (30.0, 800.0)]
    assert beside([running]).fits(newcomer, 1000.0)
    assert not beside([running]).fits(newcomer, 999.0)
    assert not beside([running], size_mib=800.0, urgency=-1.0).fits([(70.0, 300.0)], 1050.0)
    assert beside([]).fits(newcomer, 800.0)


def test_one_more_is_added_to_those_that_were_there() -> None:
    """In its place by urgency; what is as urgent as the candidate frees its memory for it."""
    first, second, third = (
        Outlook(urgency, [(end_s, 100.0)], 100.0) for urgency, end_s in ((9, 5.0), (1, 9.0), (5, 2.0))
    )
    grown = CourseForecasts([first, second])
    assert grown.beside(0.0).fits([(20.0, 100.0)], 300.0)
    grown.add(third)
    for urgency, most in ((9.0, 400.0), (5.0, 400.0), (0.0, 400.0)):
        assert grown.beside(urgency).fits([(1.0, 100.0)], most)
        assert not grown.beside(urgency).fits([(1.0, 100.0)], most - 1)
    late = [(3.0, 0.0), (20.0, 100.0)]
    assert grown.beside(5.0).fits(late, 300.0)
    assert not grown.beside(4.0).fits(late, 300.0)


@given(
    st.lists(st.lists(st.integers(1, 50), min_size=1, max_size=6), max_size=6),
    st.lists(st.integers(1, 50), min_size=1, max_size=6),
)
def test_the_sum_is_that_of_each_moment(running: list[list[int]], candidate: list[int]) -> None:
    """Against adding up at every second."""
    together = [_made(levels) for levels in running]
    newcomer = _made(candidate)
    most = max(
        sum(at(steps, moment + 0.5) for steps in [*together, newcomer]) for moment in range(math.ceil(newcomer[-1][0]))
    )
    forecast = beside(together)
    assert forecast.fits(newcomer, most)
    assert not forecast.fits(newcomer, most - 0.5)


def test_what_is_begun_later_holds_nothing_until_then() -> None:
    assert later([(2.0, 10.0), (5.0, 30.0)], 3.0) == [(3.0, 0.0), (5.0, 10.0), (8.0, 30.0)]


@given(
    st.lists(st.lists(st.integers(1, 50), min_size=1, max_size=6), max_size=6),
    st.lists(st.integers(1, 50), min_size=1, max_size=6),
    st.integers(1, 200),
)
def test_the_first_moment_is_the_first_at_which_it_fits(
    running: list[list[int]], candidate: list[int], within_mib: int
) -> None:
    """Against adding up at every second after each moment at which memory falls."""
    together, newcomer = [_made(levels) for levels in running], _made(candidate)

    def held(steps: list[Steps], after_s: float) -> float:
        return sum(at(each, after_s) for each in steps if after_s < each[-1][0])

    def fits(begins_s: float) -> bool:
        seconds = range(math.ceil(newcomer[-1][0]))
        sums = (held(together, begins_s + each + 0.5) + held([newcomer], each + 0.5) for each in seconds)
        return max(sums) <= within_mib

    moments = sorted({until_s for steps in together for until_s, _ in steps})
    falls = [each for each in moments if held(together, each + 0.5) < held(together, each - 0.5)]
    found, first = beside(together).first_s(newcomer, float(within_mib)), next(filter(fits, falls), None)
    # It may be earlier, where one phase falls and another rises at the same moment.
    assert (found is None and first is None) or (found is not None and fits(found) and found <= (first or math.inf))


def _made(levels: list[int]) -> list[tuple[float, float]]:
    return [(1.0 * sum(levels[: number + 1]), float(level)) for number, level in enumerate(levels)]
