"""Courses that are usual for a kind of phase, found in measured phases: how those that ship were made.

At each sixteenth of a phase's time the most that was held until the next; of all phases of a kind the middle one, each
project counted alike; then as few steps as a course has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from builddoctor.core.past import Course
from builddoctor.core.phase import PhaseKind
from builddoctor.estimation.course import course_of_text, course_text, fewer
from builddoctor.recipes.measured_phases import MeasuredPhase
from support.measured_rows import read_rows

PARTS = 16
LEAST_OF_PROJECT = 4
"""Fewer phases of a kind do not stand for a project."""

ByProject = Mapping[str, Sequence[MeasuredPhase]]


def usual_courses(projects: ByProject, *, without: str = "") -> dict[PhaseKind, Course]:
    """Of each kind; one project may be left out."""
    kept = {name: phases for name, phases in projects.items() if name != without}
    kinds = {phase.kind for phases in kept.values() for phase in phases if phase.course}
    return {kind: course for kind in kinds if (course := _usual(kind, kept))}


def _usual(kind: PhaseKind, projects: ByProject) -> Course:
    weighted: list[tuple[Sequence[float], float]] = []
    for phases in projects.values():
        found = [_levels(course_of_text(each.course)) for each in phases if each.kind is kind and each.course]
        if len(found) >= LEAST_OF_PROJECT:
            weighted += [(levels, 1.0 / len(found)) for levels in found]
    if not weighted:
        return ()
    middles = [_middle((levels[at], weight) for levels, weight in weighted) for at in range(PARTS)]
    steps = fewer(((at + 1) / PARTS, level / max(middles)) for at, level in enumerate(middles))
    return course_of_text(course_text(tuple(steps)))


def _levels(course: Course) -> list[float]:
    levels, since = [0.0] * PARTS, 0.0
    for until, share in course:
        for at in range(int(since * PARTS), PARTS):
            if at / PARTS < until and since < (at + 1) / PARTS:
                levels[at] = max(levels[at], share)
        since = until
    return levels


def _middle(weighted: Iterable[tuple[float, float]]) -> float:
    ordered = sorted(weighted)
    half, so_far = sum(weight for _, weight in ordered) / 2, 0.0
    for value, weight in ordered:
        so_far += weight
        if so_far >= half:
            return value
    return ordered[-1][0]


def measured_projects(folder: Path) -> dict[str, list[MeasuredPhase]]:
    """All phases of all files of one form in a folder, by project."""
    found: dict[str, list[MeasuredPhase]] = {}
    for path in sorted(folder.glob("*.csv")):
        rows = read_rows(path)
        found.setdefault(rows.remark("project"), []).extend(rows.phases)
    return found
