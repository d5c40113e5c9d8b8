"""Courses: from looks at a phase, and of several builds together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builddoctor.core.events import ContinueReason, Resume, Suspend
from builddoctor.estimation.course import (
    LEAST_LOOKS,
    LEAST_MIB,
    LEAST_S,
    MOST_LOOKS,
    MOST_STEPS,
    CourseWatch,
    course_of_text,
    course_text,
    is_shape,
    together,
    watch_courses,
)
from support.trace_events import sampled


def watched(sizes: list[float], *, peak_mib: float, wall_s: float) -> tuple[tuple[float, float], ...]:
    """Looked at in even steps, last at the phase's end."""
    watch = CourseWatch(100.0)
    for number, mib in enumerate(sizes, start=1):
        watch.looked(100.0 + wall_s * number / len(sizes), mib)
    return watch.course(peak_mib=peak_mib, wall_s=wall_s)


def at(course: tuple[tuple[float, float], ...], share: float) -> float:
    return next(mib for until, mib in course if share <= until)


def test_a_phase_that_rises_and_falls() -> None:
    """Each step is what was held at most in it; the highest look counts as the peak."""
    found = watched([200.0, 800.0, 400.0, 400.0], peak_mib=1000.0, wall_s=8.0)
    assert found == ((0.25, 250.0), (0.75, 1000.0), (1.0, 500.0))


def test_a_phase_that_stood_still_has_the_course_of_its_work() -> None:
    """As if it had not: it held all the while what it held then."""
    plain, stood, away_s = CourseWatch(0.0), CourseWatch(0.0), 30.0
    for look in range(1, 11):
        plain.looked(look, 100.0 * look)
        stood.looked(look + (away_s if look > 4 else 0.0), 100.0 * look)
        if look == 4:
            watch_courses({7: stood}, Suspend(at_s=4.0, phase_id=7, held_mib=400.0, left_mib=0.0, growth_mib_s=0.0))
            watch_courses({7: stood}, sampled(10.0, 7, 400.0))
            resume = Resume(at_s=4.0 + away_s, phase_id=7, stood_s=away_s, reason=ContinueReason.NOTHING_MOVES)
            watch_courses({7: stood}, resume)
    assert stood.course(peak_mib=1000.0, wall_s=10.0) == plain.course(peak_mib=1000.0, wall_s=10.0)


@pytest.mark.parametrize(
    ("looks", "peak_mib", "wall_s"),
    [(20, LEAST_MIB - 1, 8.0), (20, 1000.0, LEAST_S - 0.1), (LEAST_LOOKS - 1, 1000.0, 8.0), (0, 1000.0, 8.0)],
)
def test_what_is_small_short_or_hardly_seen_has_none(looks: int, peak_mib: float, wall_s: float) -> None:
    """It counts with its peak from start to end."""
    assert watched([100.0] * looks, peak_mib=peak_mib, wall_s=wall_s) == ()


@given(st.lists(st.floats(0.0, 4000.0), min_size=LEAST_LOOKS, max_size=5 * MOST_LOOKS))
def test_no_look_lies_above_the_course(sizes: list[float]) -> None:
    """However many there were: a few steps, to the end, and none too low."""
    highest_mib = max(sizes)
    course = watched(sizes, peak_mib=max(highest_mib, LEAST_MIB), wall_s=50.0)
    if highest_mib == 0.0:
        assert course == ()
        return
    scale = max(highest_mib, LEAST_MIB) / highest_mib
    assert len(course) <= MOST_STEPS
    assert [until for until, _ in course] == sorted({until for until, _ in course})
    assert course[-1][0] == 1.0
    for number, mib in enumerate(sizes, start=1):
        # Shares are kept in thousandths.
        around = (max(0.0, number / len(sizes) - 0.0006), min(1.0, number / len(sizes) + 0.0006))
        assert max(at(course, share) for share in around) >= scale * mib - 0.06


@given(st.lists(st.tuples(st.floats(0.0, 1e4), st.floats(0.0, 1e5)), min_size=LEAST_LOOKS, max_size=40))
def test_a_course_has_a_text_whenever_looks_came(looks: list[tuple[float, float]]) -> None:
    """However near to each other: a recipe refuses times that do not rise."""
    watch = CourseWatch(0.0)
    for at_s, mib in sorted(looks):
        watch.looked(at_s, mib)
    course = watch.course(peak_mib=max(LEAST_MIB, *(mib for _, mib in looks)), wall_s=max(LEAST_S, max(looks)[0]))
    if course:
        shape = together([course])
        assert is_shape(shape)
        assert is_shape(course_of_text(course_text(shape)))


def test_the_step_that_costs_least_goes_first() -> None:
    """Of ten sizes that rise evenly but for two near each other, those two become one."""
    sizes = [100.0, 200.0, 300.0, 400.0, 405.0, 600.0, 700.0, 800.0, 900.0]
    course = watched(sizes, peak_mib=900.0, wall_s=9.0)
    assert len(course) == MOST_STEPS
    assert 400.0 not in [mib for _, mib in course]


def test_courses_of_several_builds_are_the_most_of_each_moment() -> None:
    """In shares of each one's own peak."""
    early, late = ((0.2, 100.0), (1.0, 1000.0)), ((0.4, 400.0), (0.8, 2000.0), (1.0, 200.0))
    assert together([early, late]) == ((0.2, 0.2), (1.0, 1.0))
    assert together([late]) == ((0.4, 0.2), (0.8, 1.0), (1.0, 0.1))
    assert together([]) == ()
