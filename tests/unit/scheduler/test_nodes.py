"""Other machines: local first, overflow to where it fits, and every way in which a phase comes back."""

from __future__ import annotations

import msgspec

from builddoctor.core.events import (
    Admit,
    Decision,
    Fact,
    GiveUp,
    Hold,
    HoldReason,
    Kill,
    KillReason,
    NodeLost,
    NodeSeen,
    PhaseAsked,
    PhaseEnded,
    Requeue,
)
from builddoctor.core.phase import STORE, Outcome, PhaseKind
from builddoctor.core.verdict import Verdict
from builddoctor.estimation.estimator import LearningEstimator
from builddoctor.scheduler.scheduler import MOST_STRAYED, Scheduler
from support.schedulers import handle, scheduler_of
from unit.builders import TableEstimator, ended, phase, sampled


def scheduler_with(
    reserve_mib: dict[int, float], *, slots: int = 3, nodes: dict[str, float] | None = None
) -> Scheduler:
    """A budget of 1000 MiB here, and nodes of one core with these."""
    estimator = TableEstimator(reserve_mib, remaining_s=dict.fromkeys(reserve_mib, 20.0))
    scheduler = scheduler_of(estimator, slots=slots, budget_mib=1000.0)
    for name, budget_mib in (nodes or {}).items():
        feed(scheduler, node(name, budget_mib))
    return scheduler


def node(name: str, budget_mib: float, *, cores: int = 1, tools: tuple[str, ...] = ("cicc",)) -> NodeSeen:
    return NodeSeen(node=name, cores=cores, budget_mib=budget_mib, tools=tools)


def asks(phase_id: int, *, portable: bool = True, tool: str = "cicc") -> PhaseAsked:
    return PhaseAsked(phase=phase(phase_id, portable=portable, tool=tool))


def back(phase_id: int, outcome: Outcome, peak_mib: float = 100.0, where: str = "far") -> PhaseEnded:
    return msgspec.structs.replace(ended(phase_id, outcome, peak_mib), node=where)


def feed(scheduler: Scheduler, event: Fact, now_s: float = 0.0) -> list[Decision]:
    decisions = handle(scheduler, event, now_s)
    scheduler.check()
    return decisions


def sent(decisions: list[Decision]) -> list[tuple[int, str]]:
    return [(each.phase_id, each.node) for each in decisions if isinstance(each, Admit)]


def test_what_fits_here_stays_here() -> None:
    scheduler = scheduler_with({1: 300, 2: 300}, nodes={"far": 4000})
    assert sent(feed(scheduler, asks(1))) == [(1, "")]
    assert sent(feed(scheduler, asks(2))) == [(2, "")]


def test_what_waits_for_memory_or_a_core_goes_there() -> None:
    """The third finds no place here, for one is kept; the fourth no core there either, and waits."""
    scheduler = scheduler_with({1: 300, 2: 300, 3: 300, 4: 300}, nodes={"far": 4000})
    feed(scheduler, asks(1))
    feed(scheduler, asks(2))
    assert sent(feed(scheduler, asks(3))) == [(3, "far")]
    assert sent(feed(scheduler, asks(4))) == []
    assert sent(feed(scheduler, back(3, Outcome.OK), 5.0)) == [(4, "far")]


def test_what_does_not_fit_here_is_not_tried_here() -> None:
    """Not even alone, while a node has room for it; it waits for that one to be free."""
    scheduler = scheduler_with({1: 3000, 2: 3000}, nodes={"far": 4000})
    assert sent(feed(scheduler, asks(1))) == [(1, "far")]
    (hold,) = feed(scheduler, asks(2))
    assert isinstance(hold, Hold)
    assert hold.reason is HoldReason.NODE
    assert sent(feed(scheduler, back(1, Outcome.OK), 5.0)) == [(2, "far")]


def test_only_what_can_be_sent_is() -> None:
    """Links and preprocessing stay, and so does what the node has no such program for."""
    scheduler = scheduler_with({1: 3000, 2: 3000}, nodes={"far": 4000})
    assert sent(feed(scheduler, asks(1, portable=False))) == [(1, "")]
    feed(scheduler, ended(1), 1.0)
    assert sent(feed(scheduler, asks(2, tool="ptxas"), 2.0)) == [(2, "")]


def test_what_is_over_before_it_is_sent_stays_here() -> None:
    """It waits for a core."""
    reserve_mib = {1: 300.0, 2: 300.0, 3: 300.0}
    scheduler = scheduler_of(TableEstimator(reserve_mib, remaining_s={3: 0.2}), slots=3, budget_mib=1000.0)
    feed(scheduler, node("far", 4000))
    for phase_id in (1, 2):
        feed(scheduler, asks(phase_id))
    assert sent(feed(scheduler, asks(3))) == []


def test_one_place_is_kept_for_what_can_run_nowhere_else() -> None:
    """Nodes wait for it."""
    scheduler = scheduler_with({1: 300, 2: 300, 3: 300, 4: 100}, nodes={"far": 4000})
    for phase_id in (1, 2, 3):
        feed(scheduler, asks(phase_id))
    assert scheduler.running == 2
    assert sent(feed(scheduler, asks(4, portable=False))) == [(4, "")]


def test_an_idle_node_takes_what_is_expected_to_fit() -> None:
    """It is alone there; beside another phase only what is sure to fit."""
    estimator = TableEstimator({1: 900.0, 2: 900.0}, spread_mib=600.0, remaining_s={1: 20.0, 2: 20.0})
    scheduler = scheduler_of(estimator, slots=3, budget_mib=1000.0)
    feed(scheduler, node("far", 1200, cores=4))
    assert sent(feed(scheduler, asks(1))) == [(1, "far")]
    assert sent(feed(scheduler, asks(2))) == []


def test_the_emptiest_node_gets_it() -> None:
    scheduler = scheduler_with({1: 1500, 2: 1500, 3: 1500}, nodes={"small": 2000, "large": 8000})
    assert sent(feed(scheduler, asks(1))) == [(1, "large")]
    assert sent(feed(scheduler, asks(2))) == [(2, "small")]


def test_beyond_every_budget_the_largest_tries_it_alone() -> None:
    """As this machine would, if there were no other."""
    scheduler = scheduler_with({1: 9000}, nodes={"small": 2000, "large": 8000})
    assert sent(feed(scheduler, asks(1))) == [(1, "large")]


def test_a_phase_whose_node_is_lost_runs_elsewhere() -> None:
    scheduler = scheduler_with({1: 3000}, nodes={"far": 4000})
    feed(scheduler, asks(1))
    assert feed(scheduler, NodeLost(node="far"), 5.0) == []
    feed(scheduler, node("other", 4000), 6.0)
    requeue, admit = feed(scheduler, back(1, Outcome.NODE_LOST), 7.0)
    assert isinstance(requeue, Requeue)
    assert requeue.lost_s == 7.0
    assert sent([admit]) == [(1, "other")]


def test_without_any_other_node_it_is_tried_here() -> None:
    """As without a cluster: something always runs."""
    scheduler = scheduler_with({1: 3000}, nodes={"far": 4000})
    feed(scheduler, asks(1))
    feed(scheduler, NodeLost(node="far"), 5.0)
    assert sent(feed(scheduler, back(1, Outcome.NODE_LOST), 5.0)) == [(1, "")]


def test_what_waits_for_a_node_that_goes_is_tried_here() -> None:
    scheduler = scheduler_with({1: 3000, 2: 3000}, nodes={"far": 4000})
    feed(scheduler, asks(1))
    feed(scheduler, asks(2))
    assert sent(feed(scheduler, NodeLost(node="far"), 5.0)) == [(2, "")]


def test_a_phase_that_is_lost_again_and_again_stays_here() -> None:
    scheduler = scheduler_with({1: 3000}, nodes={"far": 4000})
    places = sent(feed(scheduler, asks(1)))
    for time in range(MOST_STRAYED):
        places += sent(feed(scheduler, back(1, Outcome.NODE_LOST), float(time)))
    assert places == [(1, "far")] * MOST_STRAYED + [(1, "")]


def test_what_a_node_could_not_hold_goes_to_a_larger_one() -> None:
    scheduler = scheduler_with({1: 1900}, nodes={"small": 2000})
    feed(scheduler, asks(1))
    feed(scheduler, node("large", 8000), 1.0)
    decisions = feed(scheduler, back(1, Outcome.KILLED_THERE, 1950.0, "small"), 5.0)
    assert sent(decisions) == [(1, "large")]


def test_what_a_node_lacked_is_not_told_of_the_phase() -> None:
    """The estimator hears what was held: others alike are judged by it."""
    estimator = LearningEstimator()
    scheduler = scheduler_of(estimator, slots=3, budget_mib=10.0)
    feed(scheduler, node("small", 2000))
    assert sent(feed(scheduler, asks(1))) == [(1, "small")]
    feed(scheduler, node("large", 8000), 1.0)
    alike = phase(2, unit_id="u2", portable=True, tool="cicc")
    before = estimator.estimate(alike)
    decisions = feed(scheduler, back(1, Outcome.KILLED_THERE, 30.0, "small"), 5.0)
    assert [each.estimate.reserve_mib for each in decisions if isinstance(each, Requeue)] == [2000]
    assert sent(decisions) == [(1, "large")]
    assert estimator.estimate(alike) == before


def test_what_the_largest_could_not_hold_is_given_up() -> None:
    """With the figure that was seen there; this machine has less."""
    scheduler = scheduler_with({1: 3000}, nodes={"far": 4000})
    feed(scheduler, asks(1))
    (give_up,) = feed(scheduler, back(1, Outcome.KILLED_THERE, 3900.0), 5.0)
    assert isinstance(give_up, GiveUp)
    assert (give_up.verdict, give_up.peak_mib) == (Verdict.TOO_BIG, 3900.0)


def test_what_was_ended_far_below_what_the_largest_has_is_not_too_big() -> None:
    """That node's limit was lowered, and it did not say so yet. Again and again: the phase stays here."""
    scheduler = scheduler_with({1: 3000}, nodes={"far": 4000})
    places = sent(feed(scheduler, asks(1)))
    for time in range(MOST_STRAYED):
        places += sent(feed(scheduler, back(1, Outcome.KILLED_THERE, 114.0), float(time)))
    assert places == [(1, "far")] * MOST_STRAYED + [(1, "")]


def test_what_this_machine_could_not_hold_goes_there() -> None:
    """Killed here though nothing else ran: without a node that is a verdict."""
    scheduler = scheduler_with({1: 500}, nodes={"far": 4000})
    feed(scheduler, asks(1))
    feed(scheduler, sampled({1: 950}, headroom_mib=200.0), 1.0)
    decisions = feed(scheduler, ended(1, Outcome.KILLED_BY_KERNEL, 980.0), 2.0)
    assert not [each for each in decisions if isinstance(each, GiveUp)]
    assert sent(decisions) == [(1, "far")]


def test_the_last_phase_is_ended_before_the_kernel_does() -> None:
    """Where it can go on elsewhere; without another place it is left alone."""
    for nodes, kills in (({"far": 4000.0}, [KillReason.LARGER_PLACE]), ({}, []), ({"far": 900.0}, [])):
        scheduler = scheduler_with({1: 500}, nodes=nodes)
        feed(scheduler, asks(1))
        decisions = feed(scheduler, sampled({1: 950}, headroom_mib=5.0), 1.0)
        assert [each.reason for each in decisions if isinstance(each, Kill)] == kills


def test_a_compile_error_there_is_over() -> None:
    scheduler = scheduler_with({1: 3000}, nodes={"far": 4000})
    feed(scheduler, asks(1))
    assert feed(scheduler, back(1, Outcome.FAILED), 5.0) == []
    assert (scheduler.running, scheduler.waiting) == (0, 0)


def test_what_the_store_has_waits_for_nothing() -> None:
    """Neither for memory nor for a core, nor for what waits already; and it counts as nothing that runs here."""
    scheduler = scheduler_with({1: 900.0, 2: 900.0, 3: 5000.0}, slots=1)
    feed(scheduler, PhaseAsked(phase=phase(1)))
    feed(scheduler, PhaseAsked(phase=phase(2)))
    assert sent(feed(scheduler, PhaseAsked(phase=phase(3, stored=True)))) == [(3, STORE)]
    assert (scheduler.running, scheduler.waiting) == (1, 1)
    assert sent(feed(scheduler, back(3, Outcome.OK, where=STORE), 1.0)) == []
    assert scheduler.committed_mib == 900.0


def test_what_the_store_could_not_give_runs_like_any_other() -> None:
    scheduler = scheduler_with({1: 900.0, 2: 500.0}, slots=2)
    feed(scheduler, PhaseAsked(phase=phase(1)))
    feed(scheduler, PhaseAsked(phase=phase(2, stored=True)))
    decisions = feed(scheduler, back(2, Outcome.NODE_LOST, where=STORE), 1.0)
    assert any(isinstance(each, Requeue) for each in decisions)
    assert scheduler.waiting == 1
    assert sent(feed(scheduler, ended(1), 2.0)) == [(2, "")]


def test_what_a_node_waits_for_comes_first_and_needs_no_core_of_its_own() -> None:
    """A compile that was sent holds its place there until its source is preprocessed here."""
    remaining_s = {1: 90.0, 2: 20.0, 3: 90.0, 4: 90.0, 5: 1.0}
    scheduler = scheduler_of(TableEstimator(dict.fromkeys(remaining_s, 100), remaining_s), slots=1, budget_mib=1000.0)
    feed(scheduler, node("far", 4000))
    assert sent(feed(scheduler, asks(1))) == [(1, "")]
    assert sent(feed(scheduler, asks(2))) == [(2, "far")]
    for phase_id in (3, 4):
        assert sent(feed(scheduler, asks(phase_id, portable=False))) == []
    before = PhaseAsked(phase=phase(5, PhaseKind.PREPROCESS, urgent=True))
    assert sent(feed(scheduler, before)) == [(5, "")]
    assert sent(feed(scheduler, ended(5), 1.0)) == []
    assert sent(feed(scheduler, ended(1), 9.0)) == [(3, "")]


def test_of_two_that_nodes_wait_for_one_has_the_place_beyond() -> None:
    scheduler = scheduler_with(dict.fromkeys(range(1, 6), 100.0), slots=1, nodes={"far": 4000, "near": 4000})
    assert sent(feed(scheduler, asks(1))) == [(1, "")]
    for phase_id, name in ((2, "far"), (3, "near")):
        assert sent(feed(scheduler, asks(phase_id))) == [(phase_id, name)]
    first, second = (PhaseAsked(phase=phase(each, PhaseKind.PREPROCESS, urgent=True)) for each in (4, 5))
    assert sent(feed(scheduler, first)) == [(4, "")]
    assert sent(feed(scheduler, second)) == []
    assert sent(feed(scheduler, ended(4), 1.0)) == [(5, "")]
