"""A build's events as the history recorder and the scheduler hear of them, without a gate or a process."""

from __future__ import annotations

from collections.abc import Sequence

from builddoctor.core.events import Decision, Fact, MemorySampled, PhaseAsked, PhaseEnded, Queue, UnitBegan, UnitEnded
from builddoctor.core.phase import Estimate, Outcome, Phase, Unit
from builddoctor.estimation.estimator import LearningEstimator
from builddoctor.runtime.history_recorder import HistoryRecorder
from support.schedulers import scheduler_of


class Recorded:
    """One build: each event goes to the log's observer, then to the scheduler, as ``runtime.decision_loop`` does it."""

    def __init__(self, recorder: HistoryRecorder) -> None:
        self.recorder = recorder
        self.estimator = LearningEstimator()
        self._scheduler = scheduler_of(self.estimator, slots=2, budget_mib=1e6)

    def unit_began(self, unit: Unit, argv: Sequence[str] = ("-c",), cwd: str = "/home/me/demo") -> None:
        """Its driver was called."""
        known = self.recorder.unit_called(unit, argv, cwd)
        self._handle(
            UnitBegan(
                unit=unit,
                key=known.key,
                target=known.target,
                source_digest=known.source_digest,
                past=known.past,
                teaches=known.teaches,
            )
        )

    def asked(self, phase: Phase) -> Estimate:
        """A gate asked: what the phase is expected to take."""
        (queued,) = [each for each in self._handle(PhaseAsked(phase=phase)) if isinstance(each, Queue)]
        return queued.estimate

    def ended(self, phase: Phase, *, outcome: Outcome = Outcome.OK, peak_mib: float, wall_s: float) -> None:
        """Its tool ended."""
        self._handle(PhaseEnded(phase_id=phase.phase_id, outcome=outcome, peak_mib=peak_mib, wall_s=wall_s))

    def sampled(self, phase: Phase, at_s: float, mib: float) -> None:
        """A look at memory."""
        sizes = ((phase.phase_id, mib),)
        self._handle(
            MemorySampled(at_s=at_s, rss_mib=sizes, held_mib=mib, headroom_mib=1e6, budget_mib=1e6, reserve_mib=0.0)
        )

    def ran(self, phase: Phase, *, outcome: Outcome = Outcome.OK, peak_mib: float, wall_s: float) -> Estimate:
        """It asked, and ended: what it was expected to take."""
        expected = self.asked(phase)
        self.ended(phase, outcome=outcome, peak_mib=peak_mib, wall_s=wall_s)
        return expected

    def unit_ended(self, unit: Unit) -> None:
        """Its driver ended."""
        self._handle(UnitEnded(unit_id=unit.unit_id))

    def _handle(self, fact: Fact) -> list[Decision]:
        self.recorder.saw(fact)
        decisions = self._scheduler.handle(fact)
        for decision in decisions:
            self.recorder.saw(decision)
        return decisions
