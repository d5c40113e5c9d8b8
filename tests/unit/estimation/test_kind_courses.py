"""What is usual for phases of a kind, and what a build's own phases make of it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from builddoctor.core.past import Course
from builddoctor.core.phase import PhaseKind
from builddoctor.estimation.course import is_shape
from builddoctor.estimation.kind_courses import AT_ONCE, LEAST_OF_KIND, USUAL, KindCourses
from support.usual_courses import measured_projects, usual_courses

DATA = Path(__file__).resolve().parents[3] / "recipes" / "data"


def seen(*means: float, kind: PhaseKind = PhaseKind.CICC, kinds: KindCourses | None = None) -> KindCourses:
    """Phases that held this share of their peaks on average."""
    found = kinds or KindCourses()
    for mean in means:
        found.ended(kind, area_mib_s=mean * 1000 * 10, looks=50, peak_mib=1000.0, wall_s=10.0)
    return found


def mean_of(course: Course) -> float:
    ends = [0.0, *(until for until, _ in course)]
    return sum((end - since) * share for (since, end), (_, share) in zip(pairwise(ends), course, strict=True))


def test_usual_courses_are_those_of_the_measured_phases_that_ship() -> None:
    """Whoever adds a project to the recipes' data sees here what it changes."""
    assert usual_courses(measured_projects(DATA)) == USUAL


@pytest.mark.parametrize("project", ["flash-attn", "mamba-ssm", "transformer-engine", "xgboost"])
def test_no_project_makes_what_is_usual_of_front_ends_and_host_code(project: str) -> None:
    """Without any of these the courses are the same within a twelfth of the peak, at each tenth of the time."""
    others = usual_courses(measured_projects(DATA), without=project)
    for kind in (PhaseKind.CUDAFE, PhaseKind.HOST):
        for tenth in range(1, 11):
            assert abs(at(others[kind], tenth / 10) - at(USUAL[kind], tenth / 10)) < 1 / 12


def at(course: Course, moment: float) -> float:
    return next(share for until, share in course if until >= moment)


def test_a_kind_has_its_usual_course_until_some_of_it_were_seen() -> None:
    """And what is seldom met takes all at its start."""
    kinds = seen(*[0.3] * (LEAST_OF_KIND - 1))
    assert kinds.course(PhaseKind.CICC, peak_mib=1000.0, wall_s=10.0) == USUAL[PhaseKind.CICC]
    assert kinds.course(PhaseKind.LINK, peak_mib=1000.0, wall_s=10.0) == AT_ONCE


@pytest.mark.parametrize(("peak_mib", "wall_s"), [(1000.0, 0.5), (100.0, 10.0)])
def test_what_is_too_short_or_small_to_be_watched_counts_with_its_peak(peak_mib: float, wall_s: float) -> None:
    """What is usual was seen of longer and larger ones."""
    assert KindCourses().course(PhaseKind.HOST, peak_mib=peak_mib, wall_s=wall_s) == AT_ONCE


@pytest.mark.parametrize("mean", [0.65, 0.75, 0.85])
def test_a_course_is_fitted_to_what_was_held_on_average(mean: float) -> None:
    """With the shape that is usual."""
    course = seen(*[mean] * LEAST_OF_KIND).course(PhaseKind.CICC, peak_mib=1000.0, wall_s=10.0)
    assert mean_of(course) == pytest.approx(mean)
    assert is_shape(course)


def test_what_takes_all_at_its_start_is_believed() -> None:
    """Looks do not see the first moment."""
    assert {
        share for _, share in seen(*[0.96] * LEAST_OF_KIND).course(PhaseKind.CICC, peak_mib=1000.0, wall_s=10.0)
    } == {1.0}


def test_a_course_is_not_lowered_without_end() -> None:
    """However little was held on average: something is, and the shape is only the usual one."""
    low = seen(*[0.01] * LEAST_OF_KIND).course(PhaseKind.PTXAS, peak_mib=1000.0, wall_s=10.0)
    assert all(0.0 < share <= 1.0 for _, share in low)
    assert mean_of(low) > 0.5


def test_the_usual_of_a_kind_decide() -> None:
    """The median: one odd phase changes nothing."""
    kinds = seen(0.5, 0.5, 0.5, 1.0)
    assert kinds.evenness[PhaseKind.CICC] == 1.0


@pytest.mark.parametrize("changed", [{"wall_s": 0.3}, {"peak_mib": 20.0}, {"looks": 2}])
def test_short_and_small_phases_show_nothing(changed: dict[str, float]) -> None:
    """Between two samples anything may have happened."""
    kinds = KindCourses()
    for _ in range(5):
        kinds.ended(PhaseKind.CICC, **{"area_mib_s": 5.0, "looks": 50, "peak_mib": 1000.0, "wall_s": 10.0, **changed})  # type: ignore[arg-type]
    assert kinds.evenness[PhaseKind.CICC] == 0.0
    assert kinds.course(PhaseKind.CICC, peak_mib=1000.0, wall_s=10.0) == USUAL[PhaseKind.CICC]


def test_how_evenly_a_kind_grows_is_its_own() -> None:
    """An even ramp is 1, all at the start 0; a kind of which little was seen is as hasty as the most hasty."""
    kinds = seen(*[0.5] * LEAST_OF_KIND)
    seen(*[1.0] * LEAST_OF_KIND, kind=PhaseKind.PTXAS, kinds=kinds)
    assert kinds.evenness[PhaseKind.CICC] == 1.0
    assert kinds.evenness[PhaseKind.PTXAS] == kinds.evenness[PhaseKind.HOST] == 0.0
