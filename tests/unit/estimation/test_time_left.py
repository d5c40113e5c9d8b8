"""How long a build still takes: from its own units, and from what earlier builds took."""

from __future__ import annotations

import heapq
import math
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from builddoctor.core.board import TimeLeft
from builddoctor.estimation.time_left import LEAST_UNITS, NOTHING, Foreseen, ForeseenWork, OpenUnit, Works, time_left


def works_of(*units_s: float) -> Works:
    works = Works()
    for number, each_s in enumerate(units_s):
        works.phase_ran(f"u{number}", each_s / 2)
        works.phase_ran(f"u{number}", each_s / 2)
        works.unit_ended(f"u{number}", counted=True)
    return works


def test_too_little_is_known_at_first() -> None:
    """A few units must have ended, and work must have been done."""
    assert time_left(works_of(*[10.0] * (LEAST_UNITS - 1)), to_come=5, open_units=[], rate=1.0) is None
    assert time_left(works_of(*[10.0] * LEAST_UNITS), to_come=5, open_units=[], rate=0.0) is None
    assert time_left(works_of(*[10.0] * LEAST_UNITS), to_come=5, open_units=[], rate=1.0) is not None


def test_units_that_are_all_alike_leave_a_narrow_range() -> None:
    """Fifty units of ten seconds at two a time take 250 s."""
    left = time_left(works_of(*[10.0] * 50), to_come=50, open_units=[], rate=2.0)
    assert left is not None
    assert 210 < left.low_s < 250 < left.high_s < 310


def test_the_longest_open_unit_is_the_least_there_is() -> None:
    """However many cores there are."""
    left = time_left(works_of(10, 10, 10), to_come=0, open_units=[OpenUnit(5.0, 100.0), OpenUnit(5.0, 1.0)], rate=50.0)
    assert left is not None
    assert left.high_s >= 100


def test_units_without_phases_do_not_count() -> None:
    """A compiler cache answered: they say nothing about those to come. Nor do those that configure steps compile."""
    works = works_of(10, 10, 10)
    works.unit_ended("cached", counted=True)
    works.phase_ran("try", 0.1)
    works.unit_ended("try", counted=False)
    assert (works.count, works.mean_s) == (3, 10.0)


FLOATS = st.floats(allow_nan=True, allow_infinity=True)


@example([6.09e-265], 0, [], 1.0, 1.0)
@example([6.09e-265] * 3, 1, [1.0], 1.0, 1.0)
@given(st.lists(FLOATS, max_size=8), st.integers(0, 10**6), st.lists(FLOATS, max_size=5), FLOATS, FLOATS)
def test_any_figures_give_a_range_or_nothing(
    units_s: list[float], to_come: int, open_s: list[float], rate: float, jobs: float
) -> None:
    """Low is not above high, and nothing is negative."""
    left = time_left(
        works_of(*units_s),
        to_come=to_come,
        open_units=[OpenUnit(each, each) for each in open_s],
        rate=rate,
        jobs=jobs,
    )
    assert left is None or 0 <= left.low_s <= left.high_s


def played(
    sizes_s: list[float], cores: int, at: float, then_s: list[float] | None = None
) -> tuple[TimeLeft | None, float]:
    """Units in this order on so many cores: the range told after a share ``at`` of them, and what it really took.

    ``then_s``: what they took in an earlier build.
    """
    pace = 1.4 if then_s else 1.0
    works = Works()
    free = [0.0] * cores
    ends: list[tuple[float, float, int]] = []
    for number, size_s in enumerate(sizes_s):
        begins_s = heapq.heappop(free)
        heapq.heappush(free, begins_s + size_s)
        ends.append((begins_s + size_s, begins_s, number))
    ends.sort()
    now_s = ends[int(at * len(ends))][0]
    open_units = []
    work_s = 0.0
    begun = 0
    foreseen = ForeseenWork({(str(number), ""): each_s for number, each_s in enumerate(then_s or [])})
    for end_s, begins_s, number in ends:
        if begins_s < now_s:
            foreseen.began(str(number), str(number), "")
        if end_s <= now_s:
            foreseen.ended(str(number))
            works.phase_ran(str(number), sizes_s[number])
            works.unit_ended(str(number), counted=True)
            work_s += sizes_s[number]
            begun += 1
        elif begins_s < now_s:
            begun += 1
            work_s += now_s - begins_s
    for end_s, begins_s, number in ends:
        if begins_s < now_s < end_s:
            whole_s = foreseen.work_s(str(number), pace)
            ran_s = now_s - begins_s
            left_s = max(0.0, whole_s - ran_s) if whole_s is not None else None
            open_units.append(OpenUnit(ran_s, left_s, left_s is not None))
    left = time_left(
        works,
        to_come=len(sizes_s) - begun,
        open_units=open_units,
        rate=work_s / now_s,
        jobs=cores,
        foreseen=foreseen.to_come(pace),
    )
    return left, ends[-1][0] - now_s


@pytest.mark.parametrize("at", [0.1, 0.3, 0.5, 0.8])
@pytest.mark.parametrize("spread", [0.3, 0.8])
def test_the_range_is_honest(at: float, spread: float) -> None:
    """Of 300 builds of 66 units each, drawn anew, at least three of four end within what was said."""
    drawn = random.Random(5)
    within = told = 0
    widths = []
    for _ in range(300):
        sizes_s = [drawn.lognormvariate(3.0, spread) for _ in range(66)]
        left, really_s = played(sizes_s, drawn.choice((2, 4, 8)), at)
        if left is not None:
            told += 1
            within += left.low_s <= really_s <= left.high_s
            widths.append(left.high_s / max(1.0, left.low_s))
    assert told > 250
    assert within / told >= 0.75
    assert sorted(widths)[len(widths) // 2] < 6


@pytest.mark.parametrize("at", [0.1, 0.3, 0.5, 0.8])
@pytest.mark.parametrize("spread", [0.3, 0.8])
def test_a_build_that_was_done_before_is_foreseen(at: float, spread: float) -> None:
    """Each unit takes what it took then, within a tenth, and all 1.4 times as long: narrow, and as honest."""
    drawn = random.Random(7)
    within = 0
    widths = []
    for _ in range(300):
        then_s = [drawn.lognormvariate(3.0, spread) for _ in range(66)]
        sizes_s = [1.4 * each * drawn.uniform(0.9, 1.1) for each in then_s]
        left, really_s = played(sizes_s, drawn.choice((2, 4, 8)), at, then_s)
        assert left is not None
        within += left.low_s <= really_s <= left.high_s
        widths.append(left.high_s / max(1.0, left.low_s))
    assert within / 300 >= 0.75
    assert sorted(widths)[150] < 1.9


def test_where_only_some_are_foreseen_the_others_are_as_those_seen() -> None:
    """Half of what is to come is known to be short."""
    short = Foreseen(count=10, mean_s=1.0, spread=0.0, longest_s=1.0)
    works = works_of(*[10.0] * 30)
    without = time_left(works, to_come=20, open_units=[], rate=1.0)
    half = time_left(works, to_come=20, open_units=[], rate=1.0, foreseen=short)
    assert without is not None
    assert half is not None
    assert half.low_s < 110 < half.high_s < without.high_s


def test_where_all_have_begun_and_nobody_knows_them_nothing_is_foreseen() -> None:
    """A wide window lets all units begin at once, where they wait: that is no knowledge of them."""
    waiting = [OpenUnit(0.0)] * 60
    assert time_left(works_of(10.0), to_come=0, open_units=waiting, rate=2.0, foreseen=NOTHING) is None
    unknown = time_left(works_of(*[10.0] * 5), to_come=0, open_units=waiting, rate=2.0, foreseen=NOTHING)
    known = [*[OpenUnit(0.0, 10.0, foreseen=True)] * 57, *waiting[:3]]
    foreseen = time_left(works_of(*[10.0] * 5), to_come=0, open_units=known, rate=2.0, foreseen=NOTHING)
    assert unknown is not None
    assert foreseen is not None
    assert unknown.high_s / unknown.low_s > 1.5 * foreseen.high_s / foreseen.low_s


def test_a_part_of_what_is_known_may_be_any_part() -> None:
    """A build that was begun before does the rest, and nobody says which units that are."""
    known = Foreseen(count=40, mean_s=10.0, spread=1.0, longest_s=10.0)
    works = works_of(*[10.0] * 30)
    some = time_left(works, to_come=4, open_units=[], rate=1.0, foreseen=known)
    whole = time_left(works, to_come=40, open_units=[], rate=1.0, foreseen=known)
    assert some is not None
    assert whole is not None
    assert some.high_s / some.low_s > whole.high_s / whole.low_s


KNOWN = {("src/a.cu", "a.cu.o"): 10.0, ("src/b.cu", "b.cu.o"): 30.0, ("other/a.cu", "a.cu.o"): 50.0}


def test_what_has_not_begun_is_to_come() -> None:
    """Count, mean and longest, until units begin."""
    work = ForeseenWork(KNOWN)
    whole = work.to_come(1.0)
    assert (whole.count, whole.mean_s, whole.longest_s) == (3, 30.0, 50.0)
    work.began("u1", "other/a.cu", "a.cu.o")
    left = work.to_come(2.0)
    assert (left.count, left.mean_s, left.longest_s) == (2, 40.0, 60.0)
    assert left.spread == pytest.approx(0.5)
    assert work.work_s("u1", 1.5) == 75.0
    work.ended("u1")
    assert work.work_s("u1", 1.0) is None
    assert work.to_come(1.0).count == 2


def test_a_unit_in_another_folder_is_the_same() -> None:
    """Recipes of one checkout serve others; an output of another name is another unit."""
    work = ForeseenWork(KNOWN)
    work.began("u1", "csrc/b.cu", "b.cu.o")
    assert work.work_s("u1", 1.0) == 30.0
    assert work.to_come(1.0).count == 2
    work.began("u2", "csrc/b.cu", "b.cu.o")
    work.began("u3", "src/a.cu", "a.sm90.o")
    assert (work.work_s("u2", 1.0), work.work_s("u3", 1.0)) == (None, None)


def test_units_of_another_project_or_release_are_not_trusted() -> None:
    """Most that began were not foreseen: those to come are not either."""
    work = ForeseenWork(KNOWN)
    work.began("u1", "src/a.cu", "a.cu.o")
    assert work.to_come(1.0).count == 2
    work.began("u2", "src/new.cu", "new.cu.o")
    assert work.to_come(1.0).count == 0


def test_a_recipe_that_names_no_outputs_serves_any() -> None:
    """They are optional in it."""
    work = ForeseenWork({("src/a.cu", ""): 10.0})
    work.began("u1", "src/a.cu", "a.cu.o")
    assert work.work_s("u1", 1.0) == 10.0


def test_nothing_known_is_nothing_to_come() -> None:
    """No earlier build, no recipe."""
    work = ForeseenWork({})
    work.began("u1", "src/a.cu", "a.cu.o")
    work.ended("u1")
    assert work.to_come(1.0).count == 0


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=6))
def test_any_figures_are_figures(works_s: list[float]) -> None:
    """A damaged history."""
    found = ForeseenWork({(f"{number}.cu", "o"): each for number, each in enumerate(works_s)}).to_come(1.0)
    assert found.count <= len(works_s)
    assert found.mean_s >= 0
    assert not math.isnan(found.mean_s)
