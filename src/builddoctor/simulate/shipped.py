"""A simulated build under builddoctor, with the settings that production would choose.

Covers: the scheduler, its settings, and an estimator that knows every phase as it is (``ExactEstimator``).
Does *not* cover: the file of the history (``history``). The simulator touches no system.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec

from builddoctor.core.events import Fact
from builddoctor.core.past import Course, PastUnit, UnitKey
from builddoctor.core.phase import Estimate, ExpectedPhase, Outcome, Phase
from builddoctor.core.settings import SchedulerSettings
from builddoctor.estimation.course import fewer
from builddoctor.estimation.estimator import Estimator, LearningEstimator
from builddoctor.estimation.past import RAISE_FACTOR
from builddoctor.scheduler.budget import slots, window
from builddoctor.scheduler.scheduler import Scheduler
from builddoctor.simulate.engine import Known, simulate
from builddoctor.simulate.result import Host, Result, Rules
from builddoctor.simulate.workload import Growth, PhaseWork, Workload, course_of, unit_id


def scheduler(host: Host, estimator: Estimator | None = None, *, until_s: float | None = None) -> Scheduler:
    """The scheduler of a build on ``host``, which has to end by ``until_s``."""
    settings = SchedulerSettings(
        slots=slots(host.cores),
        budget_mib=host.budget_mib,
        # As in production where temporary files have room.
        most_open=shipped_jobs(host),
        until_s=until_s,
    )
    return Scheduler(settings, estimator or LearningEstimator())


def shipped_jobs(host: Host) -> int:
    """Units that ninja is told to keep open."""
    return window(host.cores, host.budget_mib)


def shipped_rules(host: Host, growth: Growth) -> Rules:
    """Units that wait at their compiler drivers, and looks as in production; where phases hold their peaks from their
    start on, none while they run."""
    ours = Rules(growth=growth, jobs=shipped_jobs(host), held=True)
    if growth == "flat":
        return msgspec.structs.replace(ours, sample_s=None)
    return msgspec.structs.replace(ours, looks="production's")


def as_shipped(
    workload: Workload,
    host: Host,
    *,
    estimator: Estimator | None = None,
    rules: Rules | None = None,
    known: Known | None = None,
    first: Sequence[Fact] = (),
    until_s: float | None = None,
) -> Result:
    """Scheduler, budget, slots and window as in production; ``rules`` are taken as they are where given."""
    if rules is None:
        rules = msgspec.structs.replace(Rules(), jobs=shipped_jobs(host))
    decider = scheduler(host, estimator, until_s=until_s)
    return simulate(workload, decider, host, rules, first=first, known=known)


class ExactEstimator:
    """Peaks and times of ``workload``. Phases are told apart by their unit and the order in which it asks for them.

    ``margin``: the bound lies this share above the peak. ``growth``: of phases without a course; where they grow it
    knows no more than what is usual of them.
    """

    def __init__(self, workload: Workload, *, margin: float = 0.0, growth: Growth = "flat") -> None:
        self._phases = {unit_id(index): unit.phases for index, unit in enumerate(workload.units)}
        self._before = {unit_id(index): phase for index, phase in enumerate(workload.preprocessed_by)}
        self._margin = margin
        self._growth = growth
        self._asked: dict[str, int] = {}
        self._at: dict[int, int] = {}
        self._floor_mib: dict[int, float] = {}

    def know(
        self,
        unit_id: str,
        *,
        key: UnitKey | None = None,
        past: PastUnit | None = None,
        archs: tuple[str, ...] = (),
        teaches: bool = True,
    ) -> None:
        """It is known already."""

    def forget(self, unit_id: str) -> None:
        """Nothing is learned that could be forgotten."""

    def course(self, phase: Phase) -> Course:
        work = self._remaining(phase)[0]
        if work.steps or (not work.curve and self._growth != "flat"):
            return work.steps
        points = (*course_of(work, "flat"), (1.0, 0.0))
        return tuple(fewer((until, max(before, held)) for (_, before), (until, held) in pairwise(points)))

    @property
    def pace(self) -> float:
        return 1.0

    def estimate(self, phase: Phase) -> Estimate:
        work = self._remaining(phase)[0]
        floor_mib = self._floor_mib.get(phase.phase_id, 0.0)
        if floor_mib > work.peak_mib * (1.0 + self._margin):
            return Estimate(peak_mib=floor_mib, spread_mib=0.0, source="raised after a kill")
        return Estimate(peak_mib=work.peak_mib, spread_mib=self._margin * work.peak_mib, source="exact")

    def observe(self, phase: Phase, *, outcome: Outcome, peak_mib: float, wall_s: float) -> None:
        """Nothing to learn."""

    def raise_after_kill(self, phase: Phase, *, peak_mib: float, reserved_mib: float) -> Estimate:
        floor_mib = RAISE_FACTOR * max(peak_mib, reserved_mib)
        self._floor_mib[phase.phase_id] = max(floor_mib, self._floor_mib.get(phase.phase_id, 0.0))
        return self.estimate(phase)

    def least_s(self, phase: Phase) -> float:
        return self.remaining_s(phase)

    def remaining_s(self, phase: Phase, *, keep: bool = True) -> float:  # noqa: ARG002 - nothing is guessed
        return sum(each.wall_s for each in self._remaining(phase))

    def wall_s(self, phase: Phase) -> float:
        """Time of this phase alone."""
        return self._remaining(phase)[0].wall_s

    def outlook(self, unit_id: str, phase: Phase | None) -> Sequence[ExpectedPhase]:
        works = self._phases[unit_id] if phase is None else self._remaining(phase)[1:]
        return [ExpectedPhase(each.peak_mib, self._margin * each.peak_mib, each.wall_s) for each in works]

    def _remaining(self, phase: Phase) -> tuple[PhaseWork, ...]:
        if phase.urgent:
            # It is none of the unit's own.
            before = self._before[phase.unit_id]
            return () if before is None else (before,)
        at = self._at.get(phase.phase_id)
        if at is None:
            at = self._at[phase.phase_id] = self._asked.get(phase.unit_id, 0)
            self._asked[phase.unit_id] = at + 1
        return self._phases[phase.unit_id][at:]
