"""In which order phases start, what is kept for whom, and what many of them may need together."""

from __future__ import annotations

import pytest

from builddoctor.model.phase import Estimate, Phase, PhaseKind
from builddoctor.policy.actions import Action, Admit
from builddoctor.policy.events import Event, PhaseAsked, Sampled, Tick
from builddoctor.policy.governor import DRAIN_AFTER_S, LINGER_S, Governor
from builddoctor.policy.line import FAR, NEAR
from builddoctor.policy.running import RISK
from unit.builders import TableEstimator, asked, ended, phase


class SpreadEstimator(TableEstimator):
    """Half of each bound is spread."""

    def estimate(self, phase: Phase) -> Estimate:
        bound = self.reserve_mib[phase.phase_id]
        return Estimate(peak_mib=bound / 2, spread_mib=bound / 2, source="table")


def feed(governor: Governor, event: Event, now_s: float = 0.0) -> list[Action]:
    """Hand in an event; the invariants must hold after it."""
    actions = governor.handle(event, now_s)
    governor.check()
    return actions


def admitted(actions: list[Action]) -> list[int]:
    return [action.phase_id for action in actions if isinstance(action, Admit)]


def ask(phase_id: int, unit_id: str, kind: PhaseKind = PhaseKind.CICC) -> PhaseAsked:
    return PhaseAsked(phase=phase(phase_id, kind, unit_id=unit_id))


def test_the_places_beyond_cores_are_for_short_phases() -> None:
    """They fill gaps between the phases of others; a long one would take a core from those that run."""
    table = TableEstimator(dict.fromkeys(range(1, 5), 10.0), {1: 60.0, 2: 60.0, 3: 60.0, 4: 1.0})
    governor = Governor(table, slots=3, cores=2, budget_mib=1000)
    assert [admitted(feed(governor, asked(each))) for each in (1, 2, 3, 4)] == [[1], [2], [], [4]]


def test_a_place_is_kept_for_the_next_phase_of_a_more_urgent_unit() -> None:
    """Between two phases it asks again in some 30 ms; what is less urgent does not take its place and memory."""
    table = TableEstimator({1: 600, 2: 500, 3: 10, 4: 600}, {1: 50.0, 2: 5.0, 3: 5.0, 4: 40.0})
    governor = Governor(table, slots=2, budget_mib=1000)
    feed(governor, ask(1, "urgent", PhaseKind.CUDAFE))
    feed(governor, ask(3, "small"))
    feed(governor, ask(2, "other"))
    assert admitted(feed(governor, ended(1), 1.0)) == []
    assert admitted(feed(governor, ask(4, "urgent"), 1.03)) == [4]


def test_a_kept_place_is_given_up_when_nobody_asks() -> None:
    """After a quarter of a second the unit has nothing more to compile."""
    table = TableEstimator({1: 600, 2: 500, 3: 10}, {1: 50.0, 2: 5.0, 3: 5.0})
    governor = Governor(table, slots=2, budget_mib=1000)
    feed(governor, ask(1, "urgent", PhaseKind.CUDAFE))
    feed(governor, ask(3, "small"))
    feed(governor, ask(2, "other"))
    assert admitted(feed(governor, ended(1), 1.0)) == []
    assert admitted(feed(governor, Tick(), 1.0 + LINGER_S / 2)) == []
    assert admitted(feed(governor, Tick(), 1.0 + 2 * LINGER_S)) == [2]


@pytest.mark.parametrize("kind", [PhaseKind.HOST, PhaseKind.LINK])
def test_nothing_is_kept_after_a_units_last_phase(kind: PhaseKind) -> None:
    """After the host compile nobody asks."""
    table = TableEstimator({1: 600, 2: 500, 3: 10}, {1: 50.0, 2: 5.0, 3: 5.0})
    governor = Governor(table, slots=2, budget_mib=1000)
    feed(governor, ask(1, "urgent", kind))
    feed(governor, ask(3, "small"))
    feed(governor, ask(2, "other"))
    assert admitted(feed(governor, ended(1), 1.0)) == [2]


def test_a_kept_place_does_not_hold_up_a_build_of_which_nothing_runs() -> None:
    """On one core the place of a more urgent unit is all there is; the next in line is beyond this build's share."""
    table = TableEstimator({1: 100, 2: 500, 3: 10}, {1: 50.0, 2: 9.0, 3: 5.0})
    governor = Governor(table, slots=1, budget_mib=1000)
    feed(governor, ask(1, "urgent", PhaseKind.CUDAFE))
    feed(governor, ask(2, "large"))
    feed(governor, ask(3, "small"))
    feed(governor, Sampled(rss_mib=(), headroom_mib=900, budget_mib=1000, reserve_mib=100, share_mib=200))
    assert admitted(feed(governor, ended(1), 1.0)) == [3]


def test_spreads_add_by_their_squares() -> None:
    """Nine phases of 100 to 200 MiB do not all take 200: 900 and most of the root of nine squares are set aside."""
    governor = Governor(SpreadEstimator(dict.fromkeys(range(1, 10), 200.0)), slots=16, budget_mib=900 + RISK * 300)
    for phase_id in range(1, 10):
        feed(governor, asked(phase_id))
    assert governor.running == 9
    assert governor.committed_mib == pytest.approx(900 + RISK * 300)


def test_memory_does_not_drain_to_what_waits_for_its_turn() -> None:
    """A small phase at the end of the line waits long by right: what is before it goes on."""
    table = TableEstimator({1: 500, 2: 600, 3: 700, 4: 400}, {1: 90.0, 2: 1.0, 3: 80.0, 4: 70.0})
    governor = Governor(table, slots=8, budget_mib=1000)
    feed(governor, ask(1, "a"))
    feed(governor, ask(2, "b"))
    feed(governor, ask(3, "c"), DRAIN_AFTER_S)
    assert admitted(feed(governor, ask(4, "d"), DRAIN_AFTER_S + 1)) == [4]


def test_a_question_is_no_turn_of_the_others() -> None:
    """Who waited before is not looked at for it, and a long line is gone through in turn by passes alone."""
    count = NEAR + 3 * FAR
    governor = Governor(
        TableEstimator({1: 900.0} | dict.fromkeys(range(2, count + 3), 200.0)), slots=8, budget_mib=1000
    )
    for each in range(1, count + 2):
        feed(governor, asked(each))
    before = [each.phase.phase_id for each in governor.line.in_turn()]
    feed(governor, asked(count + 2))
    after = [each.phase.phase_id for each in governor.line.in_turn()]
    assert after[:NEAR] == before[:NEAR]
    assert after[NEAR] == before[-1] + 1
