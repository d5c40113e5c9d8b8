"""Held units in a world of random events: each is opened once, none is forgotten, never too many while any comes to
something."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from builddoctor.core.events import ReleaseUnit
from builddoctor.core.phase import Unit
from builddoctor.scheduler.unit_release import STALL_S, UnitRelease
from support.examples import examples

TIMES = st.sampled_from([0.0, 0.25, 0.25, 1.0, 20.0, 300.0])
COUNTS = st.integers(1, 6)


class World(RuleBasedStateMachine):
    """A build tool that starts units as it likes, and phases that run and wait as they like."""

    @initialize(slots=COUNTS, cores=COUNTS, most_open=st.integers(0, 12), cap=st.none() | COUNTS)
    def begin(self, slots: int, cores: int, most_open: int, cap: int | None) -> None:
        self.times: dict[str, float] = {}
        self.journal: list[tuple[Callable[[UnitRelease], list[ReleaseUnit] | None], list[ReleaseUnit] | None]] = []
        self.slots, self.most_open = slots, max(slots + 1, most_open)
        self.make = lambda: UnitRelease(
            priority=lambda unit: self.times[unit.unit_id],
            expected_s=lambda unit: self.times[unit.unit_id],
            slots=slots,
            cores=cores,
            most_open=most_open,
            most_threads=cap,
        )
        self.cap = cap
        self.opening = self.make()
        self.units: dict[str, Unit] = {}
        self.held: set[str] = set()
        self.open: set[str] = set()
        self.now_s = 0.0

    @rule(time_s=TIMES, archs=st.integers(0, 4), threads=st.integers(0, 8))
    def comes(self, time_s: float, archs: int, threads: int) -> None:
        name = f"u{len(self.times)}"
        self.times[name] = time_s
        unit = Unit(unit_id=name, source=name, archs=tuple(f"sm_{n}" for n in range(archs)), threads=threads)
        self.units[name] = unit
        self.opening.registered(unit, now_s := self.now_s)
        self.journal.append((lambda again: again.registered(unit, now_s), None))
        self.held.add(name)

    @precondition(lambda self: self.held or self.open)
    @rule(data=st.data(), passed_s=st.sampled_from([0.0, 1.0]))
    def ends(self, data: st.DataObject, passed_s: float) -> None:
        self.now_s += passed_s
        name = data.draw(st.sampled_from(sorted(self.held | self.open)))
        self.opening.ended(name, self.now_s)
        now_s = self.now_s
        self.journal.append((lambda again: again.ended(name, now_s), None))
        self.held.discard(name)
        self.open.discard(name)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def starts(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.open)))
        self.opening.started(name, self.now_s)
        now_s = self.now_s
        self.journal.append((lambda again: again.started(name, now_s), None))

    @rule(running=st.integers(0, 6), waiting=st.integers(0, 6), tight=st.booleans(), passed_s=TIMES)
    def looks(self, running: int, waiting: int, tight: bool, passed_s: float) -> None:
        self.now_s += passed_s
        now_s, running = self.now_s, min(running, self.slots)
        actions = self.opening.next(now_s, running=running, waiting=waiting, tight=tight)
        for action in actions:
            assert action.unit_id in self.held, "opened twice, or after it had ended"
            unit = self.units[action.unit_id]
            assert 0 <= action.threads <= max(1, len(unit.archs))
            assert self.cap is None or action.threads <= max(1, self.cap)
            assert action.threads == 0 or action.threads != unit.threads
            assert not tight or action.threads in (0, 1)
            self.held.remove(action.unit_id)
            self.open.add(action.unit_id)
        if actions and len(self.open) > self.most_open:
            assert (len(actions), running, waiting) == (1, 0, 0), "more than may be open, and nothing hangs"
        if actions:
            most = max(self.times[name] for name in self.held) if self.held else 0.0
            assert min(self.times[action.unit_id] for action in actions) >= most, "a more urgent one was passed over"
        self.journal.append((lambda again: again.next(now_s, running=running, waiting=waiting, tight=tight), actions))

    @precondition(lambda self: self.held)
    @rule()
    def nothing_happens_for_long(self) -> None:
        """Whatever the open ones do: one more is opened after a while."""
        before = len(self.open)
        self.now_s += STALL_S
        self.looks(running=0, waiting=0, tight=False, passed_s=0.0)
        assert len(self.open) > before

    @invariant()
    def counts_are_right(self) -> None:
        if hasattr(self, "opening"):
            assert (self.opening.held, self.opening.open) == (len(self.held), len(self.open))

    def teardown(self) -> None:
        """The same events give the same actions."""
        if hasattr(self, "opening"):
            again = self.make()
            for call, answer in self.journal:
                assert call(again) == answer


TestWorld = World.TestCase
TestWorld.settings = examples(2000, stateful_step_count=40)
