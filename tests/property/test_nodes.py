"""Whatever nodes and the store do, no phase is lost, none runs in two places, and all of them end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from builddoctor.core.events import (
    Admit,
    Decision,
    Fact,
    GiveUp,
    Kill,
    MemorySampled,
    NodeLost,
    NodeSeen,
    PhaseAsked,
    PhaseEnded,
    Requeue,
    TimePassed,
)
from builddoctor.core.phase import STORE, Outcome, Phase, PhaseKind
from builddoctor.estimation.estimator import LearningEstimator
from support.examples import examples
from support.schedulers import scheduler_of

BUDGET_MIB = 1000.0
NAMES = ("near", "far")
BACK = st.sampled_from([Outcome.OK, Outcome.FAILED, Outcome.NODE_LOST, Outcome.KILLED_THERE, Outcome.WITHDRAWN])
HERE = st.sampled_from([Outcome.OK, Outcome.FAILED, Outcome.KILLED_BY_KERNEL, Outcome.WITHDRAWN])
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("ask"),
            st.sampled_from([PhaseKind.CICC, PhaseKind.PTXAS, PhaseKind.HOST]),
            st.tuples(st.booleans(), st.booleans()),
        ),
        st.tuples(st.just("node"), st.sampled_from(NAMES), st.sampled_from([500.0, 2000.0, 9000.0])),
        st.tuples(st.just("lost"), st.sampled_from(NAMES), st.just(0.0)),
        st.tuples(st.just("end"), st.integers(0, 9), st.tuples(HERE, BACK, st.floats(1.0, 9000.0))),
        st.tuples(st.just("look"), st.floats(0.0, BUDGET_MIB), st.floats(0.0, BUDGET_MIB)),
    ),
    max_size=40,
)


class World:
    """What gates and nodes would do with the decisions."""

    def __init__(self, slots: int) -> None:
        self.scheduler = scheduler_of(LearningEstimator(), slots=slots, budget_mib=BUDGET_MIB)
        self.now_s = 0.0
        self.asked = 0
        self.places: dict[int, str] = {}
        """of those that run; empty for here"""
        self.over: set[int] = set()
        self.hosts: set[int] = set()
        self.to_ask: list[int] = []
        """host code that was just sent: it is preprocessed here, while its node waits"""

    def feed(self, fact: Fact) -> None:
        self.decide(fact)
        while self.to_ask:
            self.to_ask.pop()
            self.ask(PhaseKind.PREPROCESS, portable=False, stored=False, urgent=True)

    def decide(self, fact: Fact) -> None:
        for decision in self.scheduler.handle(fact):
            self.carry_out(decision)
        self.scheduler.check()
        assert self.scheduler.running == sum(not place for place in self.places.values())
        assert self.scheduler.running + self.scheduler.waiting + len(self.away) + len(self.over) == self.asked

    @property
    def away(self) -> list[int]:
        return [phase_id for phase_id, place in self.places.items() if place]

    def carry_out(self, decision: Decision) -> None:
        if isinstance(decision, Admit):
            assert decision.phase_id not in self.places
            assert decision.phase_id not in self.over
            self.places[decision.phase_id] = decision.node
            if decision.node and decision.node != STORE and decision.phase_id in self.hosts:
                self.to_ask.append(decision.phase_id)
        elif isinstance(decision, Requeue):
            self.over.remove(decision.phase_id)
        else:
            assert not isinstance(decision, GiveUp) or decision.phase_id in self.over
            assert not isinstance(decision, Kill) or not self.places[decision.phase_id]

    def ask(self, kind: PhaseKind, *, portable: bool, stored: bool, urgent: bool = False) -> None:
        self.asked += 1
        phase = Phase(
            phase_id=self.asked,
            unit_id="",
            kind=kind,
            source="a.cu",
            tool={PhaseKind.HOST: "cc1plus"}.get(kind, kind.value),
            portable=portable,
            stored=stored,
            urgent=urgent,
        )
        if kind is PhaseKind.HOST:
            self.hosts.add(self.asked)
        self.feed(PhaseAsked(at_s=self.now_s, phase=phase))
        assert not stored or self.places[self.asked] == STORE

    def end(self, phase_id: int, outcome: Outcome, peak_mib: float) -> None:
        node = self.places.pop(phase_id)
        self.over.add(phase_id)
        self.feed(
            PhaseEnded(at_s=self.now_s, phase_id=phase_id, outcome=outcome, peak_mib=peak_mib, wall_s=1.0, node=node)
        )


@examples(1000)
@given(slots=st.integers(1, 4), steps=STEPS)
def test_every_phase_ends(slots: int, steps: list[tuple]) -> None:
    world = World(slots)
    for what, one, other in steps:
        world.now_s += 0.5
        if what == "ask":
            world.ask(one, portable=other[0], stored=other[1])
        elif what == "node":
            world.feed(
                NodeSeen(at_s=world.now_s, node=one, cores=2, budget_mib=other, tools=("cicc", "ptxas", "cc1plus"))
            )
        elif what == "lost":
            world.feed(NodeLost(at_s=world.now_s, node=one))
        elif what == "look":
            world.feed(MemorySampled(at_s=world.now_s, headroom_mib=one, budget_mib=other, reserve_mib=100.0))
        elif world.places:
            here, back, peak_mib = other
            phase_id = sorted(world.places)[one % len(world.places)]
            if world.places[phase_id] == STORE and back is Outcome.KILLED_THERE:
                continue
            world.end(phase_id, back if world.places[phase_id] else here, peak_mib)
    world.feed(MemorySampled(at_s=world.now_s, headroom_mib=900.0, budget_mib=BUDGET_MIB, reserve_mib=100.0))
    for _ in range(4 * world.asked):
        world.now_s += 1.0
        world.feed(TimePassed(at_s=world.now_s))
        for phase_id in sorted(world.places):
            world.end(phase_id, Outcome.OK, 100.0)
    assert len(world.over) == world.asked
