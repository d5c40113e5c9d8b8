"""Phases that the governor admits and that wait for another build all the same."""

from __future__ import annotations

from builddoctor.model.phase import Estimate, Outcome
from builddoctor.policy.actions import Admit, Requeue
from builddoctor.policy.events import PhaseEnded, Sampled, Tick
from builddoctor.supervise.doorman import Doorman

ESTIMATE = Estimate(peak_mib=100, spread_mib=0, source="prior")
LOOK = Sampled(rss_mib=(), headroom_mib=0, budget_mib=0, reserve_mib=0)


class Strict(Doorman):
    """Lets in those named."""

    def __init__(self) -> None:
        super().__init__()
        self.allowed: set[int] = set()
        self.asked: list[int] = []

    def may_start(self, action: Admit) -> bool:
        self.asked.append(action.phase_id)
        return action.phase_id in self.allowed


def admit(phase_id: int) -> Admit:
    return Admit(phase_id=phase_id, estimate=ESTIMATE, alone=False)


def test_without_other_builds_all_are_let_in() -> None:
    """Nothing waits, nothing changes."""
    doorman = Doorman()
    assert doorman.lets_start(admit(1))
    assert doorman.happened(LOOK, lambda _: None) == []
    assert not doorman.withheld


def test_first_come_first_served() -> None:
    """Who comes later is not asked about while the first waits: it may be what the first waits for."""
    doorman, started = Strict(), []
    doorman.allowed = {2}
    assert not doorman.lets_start(admit(1))
    assert not doorman.lets_start(admit(2))
    assert doorman.asked == [1]

    def start(action: Admit) -> None:
        if doorman.lets_start(action):
            started.append(action.phase_id)

    doorman.happened(LOOK, start)
    assert (started, list(doorman.withheld)) == ([], [1, 2])
    doorman.happened(Tick(), start)
    assert doorman.asked == [1, 1]
    doorman.allowed = {1, 2}
    doorman.happened(LOOK, start)
    assert (started, list(doorman.withheld)) == ([1, 2], [])


def test_a_phase_whose_gate_died_waits_no_more() -> None:
    """It is not started when its turn comes, and those behind it go on."""
    doorman, started = Strict(), []
    for phase_id in (1, 2):
        doorman.lets_start(admit(phase_id))
    doorman.allowed = {1, 2}
    ended = PhaseEnded(phase_id=1, outcome=Outcome.WITHDRAWN, peak_mib=0, wall_s=0)
    doorman.happened(ended, lambda action: started.append(doorman.lets_start(action) and action.phase_id))
    assert started == [2]


def test_a_phase_that_is_redone_waits_on() -> None:
    """The governor lets it start again before the end of its last run has been dealt with: it is not forgotten."""
    doorman, asked = Strict(), []
    doorman.lets_start(admit(1))
    ended = PhaseEnded(phase_id=1, outcome=Outcome.KILLED_BY_US, peak_mib=0, wall_s=0)
    doorman.happened(ended, lambda action: asked.append(action.phase_id))
    assert asked == list(doorman.withheld) == [1]


def test_who_has_to_run_alone_is_known_until_its_next_try() -> None:
    """A requeue says so, and a later one may take it back."""
    doorman = Doorman()
    doorman.again(Requeue(phase_id=1, estimate=ESTIMATE, solo=True))
    assert doorman.solo == {1}
    doorman.again(Requeue(phase_id=1, estimate=ESTIMATE, solo=False))
    assert doorman.solo == set()
