"""When processes without gates are looked for at all, what the scheduler makes of it, and that none stays stopped."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from builddoctor.core.events import (
    Beside,
    Continue,
    ContinueReason,
    GiveUp,
    MemorySampled,
    Pause,
    PauseRefused,
    PhaseAsked,
    PhaseEnded,
    Requeue,
    UngatedGone,
    UngatedSeen,
)
from builddoctor.core.limits import LevelKind
from builddoctor.core.phase import Outcome
from builddoctor.gates import stopping
from builddoctor.runtime.ungated_watch import UngatedWatch
from builddoctor.scheduler.budget import allowance
from builddoctor.scheduler.scheduler import MOST_UNGATED_S
from support.schedulers import scheduler_of
from unit.builders import TableEstimator, phase
from unit.runtime.gates_played import Gate, killed
from unit.runtime.sessions import asks, build_of, reading_of
from unit.system.test_process import PAGE_BYTES, planted
from unit.trees import TextRoot

LIMIT_MIB = 4096.0
TOO_BIG_MIB = 1e5
"""More than there is: alone, such a phase starts all the same."""


class Counting(TextRoot):
    """Counts what is read below /proc; pages are of 64 KiB."""

    reads = 0

    def page_bytes(self) -> int:
        return PAGE_BYTES

    def text(self, absolute: str) -> str | None:
        self.reads += absolute.startswith("/proc/")
        return super().text(absolute)

    def names(self, absolute: str) -> list[str]:
        self.reads += absolute.startswith("/proc/")
        return super().names(absolute)


class Signalled:
    """In the place of a pidfd: notes what is sent, and that it was let go (SIGCHLD)."""

    sent: list[tuple[int, signal.Signals]]
    there = True

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def send(self, number: signal.Signals) -> bool:
        self.sent.append((self.pid, number))
        if not self.there:
            self.close()
        return self.there

    def close(self) -> None:
        self.sent.append((self.pid, signal.SIGCHLD))


class Watch:
    """A build whose tree is one compiler that no gate caught."""

    def __init__(self, folder: Path, rss_mib: int) -> None:
        self.now_s = 0.0
        self.root = Counting({"/proc/self/stat": "10 (x) R", "/proc/vmstat": "oom_kill 5\n"})
        for files in (planted(10, 11), planted(11, rss_mib=rss_mib + 1)):
            self.root.files |= files
        self.scheduler = scheduler_of(TableEstimator(dict.fromkeys(range(1, 9), TOO_BIG_MIB)), slots=2, budget_mib=3000)
        self.built = build_of(self.scheduler, self.root, folder, clock=lambda: self.now_s)
        self.look(free_mib=LIMIT_MIB)
        self.root.reads = 0

    @property
    def ungated(self) -> UngatedWatch:
        return self.built.ungated

    def ask(self, phase_id: int = 1) -> None:
        """A gate asks."""
        self.built.decisions.decide(PhaseAsked(at_s=self.now_s, phase=phase(phase_id)))

    def end(self, phase_id: int = 1) -> None:
        self.built.decisions.decide(
            PhaseEnded(at_s=self.now_s, phase_id=phase_id, outcome=Outcome.OK, peak_mib=1.0, wall_s=1.0)
        )

    def look(self, *, free_mib: float, phases_mib: float = 0.0, kind: LevelKind = LevelKind.CGROUP_V2) -> float:
        """One sample later: what of the budget is kept from phases. ``free_mib``: headroom of the cgroup."""
        self.now_s += 0.5
        reading = reading_of(free_mib, limit_mib=LIMIT_MIB, kind=kind)
        allowed = allowance(reading, phases_mib)
        decisions, at_s = self.built.decisions, self.now_s
        seen = self.ungated.look(reading, allowed, phases_mib=phases_mib, open_units=0, at_s=at_s)
        if seen is not None:
            decisions.decide(seen)
            self.ungated.let_go()
        decisions.decide(
            MemorySampled(
                at_s=at_s,
                held_mib=phases_mib,
                headroom_mib=allowed.kill_headroom_mib,
                budget_mib=allowed.budget_mib,
                reserve_mib=allowed.reserve_mib,
            )
        )
        return round(allowed.budget_mib - self.scheduler.budget_mib, 6)

    def grow_until(self, is_enough: Callable[[], bool], *, state: str = "R") -> None:
        """Two compilers that grow while memory runs out; ``state``: of the younger one."""
        for rss_mib in range(1000, 2000, 100):
            for files in (planted(10, 11, 12), planted(11, rss_mib=rss_mib), planted(12, rss_mib=rss_mib, state=state)):
                self.root.files |= files
            self.look(free_mib=LIMIT_MIB - 2 * rss_mib)
            if is_enough():
                return
        raise AssertionError("it did not come to that")

    def of_kind(self, kind: type[object]) -> int:
        """So many events of a kind are in the log."""
        return sum(isinstance(event, kind) for event in self.built.events)

    @property
    def continued(self) -> list[tuple[int, ContinueReason]]:
        return [(each.process.pid, each.reason) for each in self.built.events if isinstance(each, Continue)]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, signal.Signals]]:
    """What was sent to which process; nothing real is ever signalled."""
    found: list[tuple[int, signal.Signals]] = []
    monkeypatch.setattr(Signalled, "sent", found, raising=False)
    monkeypatch.setattr(stopping, "PidHandle", Signalled)
    return found


@pytest.fixture
def watch(tmp_path: Path, sent: list[tuple[int, signal.Signals]]) -> Watch:
    assert sent == []
    return Watch(tmp_path, rss_mib=1000)


def test_while_phases_explain_where_memory_goes_nothing_is_read(watch: Watch) -> None:
    """However short it is: a build in which all have gates pays nothing."""
    for held_mib in range(0, 4000, 100):
        assert watch.look(free_mib=LIMIT_MIB - held_mib, phases_mib=float(held_mib)) == 0
    assert watch.root.reads == 0
    assert not watch.of_kind(UngatedSeen)


def test_a_phase_that_ended_between_two_looks_is_not_missing_later(watch: Watch) -> None:
    """What it held was counted as free, and as held."""
    watch.look(free_mib=LIMIT_MIB, phases_mib=LIMIT_MIB)
    watch.look(free_mib=300, phases_mib=LIMIT_MIB - 300)
    assert watch.root.reads == 0


def test_while_memory_is_not_short_nothing_is_read(watch: Watch) -> None:
    """Twice of what is unexplained is free, beside twice the reserve."""
    assert watch.look(free_mib=LIMIT_MIB - 1000) == 0
    assert watch.root.reads == 0
    assert not watch.ungated.watching


def test_what_no_phase_explains_is_looked_for_and_its_growth_kept_from_phases(watch: Watch) -> None:
    """It holds 1000 MiB and may come to hold as much again; ``--memory`` counts it, too."""
    assert watch.look(free_mib=1200, phases_mib=1800) == 1000
    assert watch.ungated.ungated_mib == 1000
    assert watch.ungated.watching


def test_of_a_server_nothing_is_said_however_long_it_holds_its_memory(watch: Watch) -> None:
    """It is counted, and looked at as seldom as when nothing is there; phases get what it leaves."""
    watch.root.files |= planted(11, rss_mib=1001, name="python3.12")
    for _ in range(20):
        assert watch.look(free_mib=1200, phases_mib=1800) == 0
    assert watch.ungated.ungated_mib == 1000
    assert not watch.ungated.watching
    assert not watch.of_kind(UngatedSeen)
    watch.look(free_mib=LIMIT_MIB)
    assert not watch.of_kind(UngatedGone)


def test_when_memory_is_back_it_is_left_alone(watch: Watch) -> None:
    """And no longer counted."""
    watch.look(free_mib=1200, phases_mib=1800)
    watch.root.reads = 0
    assert watch.look(free_mib=LIMIT_MIB) == 0
    assert watch.root.reads == 0
    assert watch.ungated.ungated_mib == 0
    assert watch.of_kind(UngatedGone) == 1
    watch.look(free_mib=LIMIT_MIB)
    assert watch.of_kind(UngatedGone) == 1


def test_at_the_end_of_a_build_nothing_is_looked_for_any_more(watch: Watch) -> None:
    """What was let go on must not be stopped again by the next sample."""
    watch.built.decisions.interrupt(None)
    assert watch.look(free_mib=100) == 0
    assert watch.root.reads == 0


def test_without_a_level_that_the_kernel_counts_nothing_is_unexplained(watch: Watch) -> None:
    """A limit that is our own sum says nothing about what is not in it."""
    assert watch.look(free_mib=100, kind=LevelKind.FLAG) == 0
    assert watch.root.reads == 0


def test_beside_working_processes_no_phase_starts_for_the_sake_of_progress(watch: Watch) -> None:
    """They get on by themselves: what does not fit beside them waits for their end."""
    watch.ask()
    assert watch.scheduler.running == 1
    watch.end()
    watch.look(free_mib=1200, phases_mib=1800)
    watch.ask(2)
    watch.look(free_mib=1200, phases_mib=1800)
    assert (watch.scheduler.running, watch.scheduler.waiting) == (0, 1)
    watch.look(free_mib=LIMIT_MIB)
    assert watch.scheduler.running == 1


def test_a_process_that_only_sits_there_holds_up_no_phase(watch: Watch) -> None:
    """A server takes memory, and no processor time: with it alone nothing would ever get on."""
    watch.look(free_mib=1200, phases_mib=1800)
    watch.ask()
    assert watch.scheduler.running == 0
    for _ in range(20):
        watch.look(free_mib=1200, phases_mib=1800)
    assert watch.scheduler.running == 1


def test_phases_do_not_wait_for_ever_for_one_that_works_on_and_on(watch: Watch) -> None:
    """After some minutes the first of them starts all the same."""
    watch.look(free_mib=1200, phases_mib=1800)
    watch.ask()
    running = []
    for look in range(int(2 * MOST_UNGATED_S) + 4):
        watch.root.files |= planted(11, rss_mib=1000 + look % 2 * 300)
        watch.look(free_mib=1200, phases_mib=1800)
        running.append(watch.scheduler.running)
    assert running[:10] == [0] * 10
    assert running.index(1) == pytest.approx(2 * MOST_UNGATED_S, abs=2)


@pytest.mark.parametrize("beside", [True, False])
def test_what_the_kernel_ends_beside_them_was_not_alone(watch: Watch, beside: bool) -> None:
    """It is told with its end, and the phase is not called too big for that."""

    def kernel_kills() -> None:
        if beside:
            watch.look(free_mib=1200, phases_mib=1800)
        watch.root.files["/proc/vmstat"] = "oom_kill 6\n"

    asyncio.run(watch.built.session.converse(Gate(asks(), kernel_kills, killed(3600.0))))
    ended = next(event for event in watch.built.events if isinstance(event, PhaseEnded))
    assert ended.outcome is Outcome.KILLED_BY_KERNEL
    assert (Beside.UNGATED in ended.beside) is beside
    assert (watch.of_kind(Requeue), watch.of_kind(GiveUp)) == ((1, 0) if beside else (0, 1))


def test_those_that_were_there_before_a_phase_had_no_part_in_its_kill(watch: Watch) -> None:
    """They ended before it was let start."""
    watch.look(free_mib=1200, phases_mib=1800)
    watch.root.files |= planted(10)
    watch.look(free_mib=LIMIT_MIB)

    def kernel_kills() -> None:
        watch.look(free_mib=100, phases_mib=LIMIT_MIB - 100)
        watch.root.files["/proc/vmstat"] = "oom_kill 6\n"

    asyncio.run(watch.built.session.converse(Gate(asks(), kernel_kills, killed(3600.0))))
    ended = next(event for event in watch.built.events if isinstance(event, PhaseEnded))
    assert ended.beside == ()
    assert watch.of_kind(GiveUp) == 1


# -- stopped, and let go on ------------------------------------------------------------------------------------


def test_the_youngest_is_stopped_and_goes_on_when_memory_is_back(
    watch: Watch, sent: list[tuple[int, signal.Signals]]
) -> None:
    """By the process that was seen; the log has both."""
    watch.grow_until(lambda: watch.of_kind(Pause) > 0)
    assert sent == [(12, signal.SIGSTOP)]
    assert watch.scheduler.paused == {(1012, 12)}
    watch.root.files |= planted(10, 12) | planted(12, rss_mib=1000, state="T")
    for _ in range(20):
        watch.look(free_mib=3000)
    assert sent == [(12, signal.SIGSTOP), (12, signal.SIGCONT), (12, signal.SIGCHLD)]
    assert [pid for pid, _ in watch.continued] == [12]


def test_a_process_that_does_not_stop_is_let_go_on_before_it_is_forgotten(
    watch: Watch, sent: list[tuple[int, signal.Signals]]
) -> None:
    """A process that waits for a disk stops when that has answered: nothing would let it go on any more."""
    watch.grow_until(lambda: len(sent) > 1, state="D")
    assert [number for _, number in sent[:3]] == [signal.SIGSTOP, signal.SIGCONT, signal.SIGCHLD]


def test_a_process_that_could_not_be_stopped_is_said_and_not_tried_again(
    watch: Watch, sent: list[tuple[int, signal.Signals]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is gone, or not ours: the next look must not count on it."""
    monkeypatch.setattr(Signalled, "there", False)
    watch.grow_until(lambda: watch.of_kind(PauseRefused) > 0)
    kinds = [type(event) for event in watch.built.events]
    place = kinds.index(PauseRefused)
    assert kinds[place - 2 : place + 2] == [UngatedSeen, Pause, PauseRefused, MemorySampled]
    assert sent == [(12, signal.SIGSTOP), (12, signal.SIGCHLD)]
    assert watch.scheduler.paused == frozenset()
    for _ in range(4):
        watch.look(free_mib=500)
    assert [pid for pid, number in sent if number is signal.SIGSTOP].count(12) == 1


def test_a_number_that_another_process_got_is_not_stopped(
    watch: Watch, sent: list[tuple[int, signal.Signals]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Same pid, other start time: it was held first and looked at afterwards."""
    monkeypatch.setattr(watch.built.processes, "start_ticks", lambda _: 9999)
    watch.grow_until(lambda: watch.of_kind(PauseRefused) > 0)
    assert sent[0] == (12, signal.SIGCHLD)
    assert not [number for _, number in sent if number is not signal.SIGCHLD]


@pytest.mark.parametrize("signalled", [None, int(signal.SIGINT)])
def test_at_the_end_of_a_build_all_go_on(
    watch: Watch, sent: list[tuple[int, signal.Signals]], signalled: int | None
) -> None:
    """Interrupted, or ended by itself: none stays stopped, and none is stopped any more."""
    watch.grow_until(lambda: watch.of_kind(Pause) > 0)
    watch.built.decisions.interrupt(signalled)
    assert sent == [(12, signal.SIGSTOP), (12, signal.SIGCONT), (12, signal.SIGCHLD)]
    assert watch.continued == [(12, ContinueReason.BUILD_ENDS)]
    for _ in range(4):
        watch.look(free_mib=100)
    assert watch.of_kind(Pause) == 1


def test_when_memory_cannot_be_looked_at_all_go_on(watch: Watch, sent: list[tuple[int, signal.Signals]]) -> None:
    """Nothing would ever say that memory is back."""
    watch.grow_until(lambda: watch.of_kind(Pause) > 0)
    watch.built.sampler.look = lambda *_, **__: (_ for _ in ()).throw(ZeroDivisionError)  # type: ignore[method-assign]
    watch.built.decisions.look()
    assert sent == [(12, signal.SIGSTOP), (12, signal.SIGCONT), (12, signal.SIGCHLD)]
    assert watch.continued == [(12, ContinueReason.UNSEEN)]
    assert watch.scheduler.paused == frozenset()
    watch.ask(1)
    watch.ask(2)
    assert (watch.scheduler.running, watch.scheduler.waiting) == (1, 1)
