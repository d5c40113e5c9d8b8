"""Runaways and phases that are merely big: their courses, sampled once a second."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from builddoctor.core.events import Rise
from builddoctor.core.phase import PhaseKind
from builddoctor.core.settings import RunawayRules
from builddoctor.scheduler.runaway import RunawayWatch
from builddoctor.trace.words import rise_words

GIB = 1024.0


class Course:
    """One phase, followed second by second. Sizes in GiB."""

    def __init__(
        self,
        *,
        expected: float = 1.0,
        budget: float = 1500.0,
        rules: RunawayRules | None = None,
        kind: PhaseKind = PhaseKind.CICC,
    ) -> None:
        self.watch = RunawayWatch(rules or RunawayRules())
        self.watch.admitted(1, expected_mib=expected * GIB, kind=kind)
        self.budget = budget
        self.now_s = 0.0
        self.said_at: float | None = None
        self.why: Rise | None = None

    def run(
        self, rss: Callable[[float], float], *, seconds: int, cpu_share: float | None = 1.0, company: bool = False
    ) -> Course:
        """Sample for so long, or until it is called a runaway. ``rss``: GiB at a second of the whole course."""
        for _ in range(seconds):
            self.now_s += 1.0
            self.watch.look(
                1,
                rss_mib=rss(self.now_s) * GIB,
                cpu_s=None if cpu_share is None else cpu_share * self.now_s,
                budget_mib=self.budget * GIB,
                now_s=self.now_s,
            )
            self.why = self.watch.runs_away(1, company=company)
            if self.why and self.said_at is None:
                self.said_at = self.now_s
                break
        return self

    @property
    def rose_to_its_end(self) -> bool:
        """Ended by the kernel now, it counts as a runaway."""
        rise = self.watch.ran_away(1)
        return rise is not None and rise.to_its_end


@pytest.mark.trap(36)
@pytest.mark.parametrize("budget", [15.0, 21.0, 64.0, 1500.0])
@pytest.mark.parametrize("rate", [0.186, 0.23, 0.5, 2.0])
def test_the_cudafe_of_transformer_engine_is_found_within_90_seconds(budget: float, rate: float) -> None:
    """0.23 GiB/s for ever on a machine of 1.7 TB: 8 GiB after 35 s, ended at 15 GiB, not at 147. Or at the limit."""
    course = Course(budget=budget, expected=0.1, kind=PhaseKind.CUDAFE)
    full_s = int(budget / rate)
    course.run(lambda second: rate * second, seconds=min(90, full_s))
    assert course.why or (full_s < 90 and course.rose_to_its_end)


@pytest.mark.trap(36)
def test_a_cicc_that_grows_for_ever_is_found_within_minutes() -> None:
    """It may be as big as 20 GiB: 16 GiB after 70 s, ended a minute later at 30 GiB."""
    course = Course().run(lambda second: 0.23 * second, seconds=600)
    assert course.said_at == pytest.approx(130, abs=2)
    assert course.why is not None
    assert "30 times what was expected" in rise_words(course.why)


@pytest.mark.trap(37)
@pytest.mark.parametrize("rate", [0.05, 0.23, 1.0])
def test_a_front_end_larger_than_any_that_was_seen_is_none(rate: float) -> None:
    """11 GiB, where 0.3 were expected, and then it works on with that."""
    course = Course(expected=0.3, kind=PhaseKind.CUDAFE).run(lambda second: min(11.0, rate * second), seconds=900)
    assert course.said_at is None


@pytest.mark.trap(37)
@pytest.mark.parametrize("rate", [0.05, 0.1, 0.23, 1.0, 5.0])
@pytest.mark.parametrize("budget", [21.0, 24.0, 64.0, 1500.0])
def test_a_cicc_of_20_gib_that_comes_to_rest_is_none(rate: float, budget: float) -> None:
    """However fast it rises, however little was expected, and however small the machine is."""
    course = Course(expected=0.2, budget=budget).run(lambda second: min(20.0, rate * second), seconds=900)
    assert course.said_at is None


def test_a_rise_with_rests_of_more_than_ten_seconds_is_none() -> None:
    """Compilers grow in steps; each rest begins a new rise."""
    course = Course().run(lambda second: 8.0 * (second // 12), seconds=300)
    assert course.said_at is None


def test_a_rise_in_short_steps_is_one() -> None:
    """Vectors double: eight seconds without growth are no rest."""
    assert Course().run(lambda second: 2.0 * (second // 8), seconds=300).said_at is not None


def test_who_gives_memory_back_is_none() -> None:
    """Up and down by a fifth, every twenty seconds."""
    course = Course().run(lambda second: 40.0 + second - (40.0 if second % 40 > 20 else 0.0), seconds=400)
    assert course.said_at is None


def test_a_phase_below_three_times_its_estimate_is_none() -> None:
    """A recipe that knows of 40 GiB lets it have 120."""
    assert Course(expected=40.0).run(lambda second: min(119.0, 0.5 * second), seconds=600).said_at is None
    assert Course(expected=40.0).run(lambda second: 0.5 * second, seconds=600).said_at is not None


@pytest.mark.parametrize(
    ("cpu_share", "company", "found"),
    [(0.95, False, True), (0.85, False, False), (0.85, True, True), (0.5, True, False), (None, False, False)],
)
def test_a_runaway_keeps_a_core_busy(cpu_share: float | None, company: bool, found: bool) -> None:
    """Who waits while he grows (for a disk, for others) is none; beside others a core is shared, so less is asked."""
    course = Course().run(lambda second: 0.23 * second, seconds=300, cpu_share=cpu_share, company=company)
    assert (course.said_at is not None) is found


def test_processor_time_is_asked_for_suspects_only() -> None:
    """It costs a read of /proc for each sample: rare phases are worth it."""
    course = Course().run(lambda second: 0.23 * second, seconds=60)
    assert course.watch.suspects == frozenset()
    course.run(lambda second: 0.23 * second, seconds=20)
    assert course.watch.suspects == {1}
    course.run(lambda _: 18.4, seconds=12)
    assert course.watch.suspects == frozenset()


def test_a_suspect_that_falls_back_below_all_expectation_is_none() -> None:
    """The minute begins when it passes that size again, and so does its processor time."""
    course = Course().run(lambda second: 0.23 * second, seconds=75)
    assert course.watch.suspects == {1}
    course.run(lambda _: 15.9, seconds=2)
    assert course.watch.suspects == frozenset()
    course.run(lambda second: 0.23 * second, seconds=300)
    assert course.said_at == pytest.approx(138, abs=2)


@pytest.mark.trap(36)
def test_on_a_small_machine_the_kernel_ends_it_first() -> None:
    """8 GiB are full after 35 s of a rise without a rest: that, up to the end, and beyond all expectation."""
    course = Course(budget=7.5).run(lambda second: 0.23 * second, seconds=33)
    assert course.said_at is None
    assert course.rose_to_its_end


@pytest.mark.trap(36)
@pytest.mark.parametrize(("kind", "found"), [(PhaseKind.CUDAFE, True), (PhaseKind.CICC, False)])
def test_a_limit_that_is_reached_soon_tells_a_front_end_by_its_input(kind: PhaseKind, found: bool) -> None:
    """200 MB/s into 3 GiB take 15 s. A front end that should take 0.1 GiB runs away; a ``cicc`` may be that big."""
    course = Course(expected=0.1, budget=2.7, kind=kind).run(lambda second: 0.186 * second, seconds=15)
    assert bool(course.watch.ran_away(1)) is found


def test_a_front_end_of_less_than_eight_times_what_was_expected_is_too_big() -> None:
    """The kernel ended it at 2.7 GiB after 15 s, and half of one was expected."""
    course = Course(expected=0.5, budget=2.7, kind=PhaseKind.CUDAFE).run(lambda second: 0.18 * second, seconds=15)
    assert course.watch.ran_away(1) is None


@pytest.mark.parametrize(
    ("expected", "rss", "seconds"),
    [
        (3.0, lambda second: 0.23 * second, 33),
        (1.0, lambda second: 0.5 * second, 15),
        (1.0, lambda second: min(7.5, 0.5 * second), 60),
        (1.0, lambda second: min(3.7, 0.1 * second), 60),
    ],
    ids=["three times were expected", "too short a rise to tell", "it rested at the limit", "below half the budget"],
)
def test_a_phase_that_the_kernel_ended_is_too_big_otherwise(
    expected: float, rss: Callable[[float], float], seconds: int
) -> None:
    """What is merely big gets another verdict, with other advice."""
    course = Course(expected=expected, budget=7.5).run(rss, seconds=seconds)
    assert course.watch.ran_away(1) is None


@pytest.mark.trap(36)
def test_a_killed_phase_that_gives_its_memory_back_rose_up_to_its_end() -> None:
    """The kernel needs a second for ten GiB, and its end is heard of only then: meanwhile it is seen to fall."""
    course = Course(budget=7.5).run(lambda second: 0.23 * second, seconds=33)
    course.run(lambda _: 3.0, seconds=1).run(lambda _: 0.0, seconds=1)
    assert course.watch.suspects == frozenset()
    assert (rise := course.watch.ran_away(1)) is not None
    assert "it held 7772 MiB" in rise_words(rise)
    course.run(lambda _: 0.5, seconds=10)
    assert course.watch.ran_away(1) is None


def test_the_first_estimate_counts_after_a_kill() -> None:
    """A second try expects what the first one held; by that measure nothing would ever be beyond all expectation."""
    course = Course().run(lambda second: 0.23 * second, seconds=100)
    course.watch.admitted(1, expected_mib=200 * GIB)
    began_s = course.now_s
    course.run(lambda second: 0.23 * (second - began_s), seconds=300)
    assert course.said_at is not None


def test_a_machine_that_slept_begins_a_new_course() -> None:
    """Nobody saw whether it rested meanwhile."""
    course = Course().run(lambda second: 0.23 * second, seconds=100)
    course.now_s += 3600.0
    course.run(lambda second: 0.23 * second, seconds=20)
    assert course.said_at is None


def test_a_phase_that_is_over_is_forgotten() -> None:
    """And one that was never admitted has no course."""
    course = Course().run(lambda second: 0.23 * second, seconds=80)
    course.watch.forget(1)
    assert course.watch.suspects == frozenset()
    course.run(lambda second: 0.23 * second, seconds=300)
    assert course.said_at is None
    assert course.watch.ran_away(1) is None
