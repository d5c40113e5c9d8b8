"""When processes without gates are looked for at all."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from builddoctor.model.limits import MemoryLevel, MemoryReading
from builddoctor.model.phase import Outcome
from builddoctor.policy.budget import allowance
from builddoctor.policy.estimator import LearningEstimator
from builddoctor.policy.events import PhaseAsked, PhaseEnded, Sampled
from builddoctor.policy.governor import Governor
from builddoctor.supervise.accounts import Accounts
from builddoctor.supervise.kill_evidence import KillEvidence
from builddoctor.supervise.pausing import MOST_HELD_S, Pausing
from builddoctor.supervise.phases import LivePhase
from builddoctor.supervise.session import Session
from builddoctor.trace.writer import TraceWriter
from unit.builders import phase
from unit.test_tree import PAGE_BYTES, planted
from unit.trees import TextRoot

LIMIT_MIB = 4096.0


class Counting(TextRoot):
    """Counts what is read below /proc."""

    reads = 0

    def text(self, absolute: str) -> str | None:
        self.reads += absolute.startswith("/proc/")
        return super().text(absolute)

    def names(self, absolute: str) -> list[str]:
        self.reads += absolute.startswith("/proc/")
        return super().names(absolute)


class Watch:
    """Pauses of a build whose tree is one compiler that no gate caught."""

    def __init__(self, folder: Path, rss_mib: int) -> None:
        self.now_s = 0.0
        self.root = Counting({"/proc/self/stat": "10 (x) R"})
        for files in (planted(10, 11), planted(11, rss_mib=rss_mib + 1)):
            self.root.files |= files

        async def no_front(*_: object) -> tuple[list[str], dict[str, str]]:
            return [], {}

        session = self.session = Session(
            governor=Governor(LearningEstimator(), slots=2, budget_mib=3000),
            trace=TraceWriter(folder / "trace.jsonl"),
            accounts=Accounts(0.0),
            evidence=KillEvidence(self.root),
            root=self.root,
            page_bytes=PAGE_BYTES,
            clock=lambda: self.now_s,
            answer_front=no_front,
        )
        self.pausing = Pausing(session, clock=lambda: self.now_s)
        self.look(free_mib=LIMIT_MIB)
        self.root.reads = 0

    async def ask(self) -> None:
        """A phase asks while no other may start."""
        self.session.governor.handle(
            Sampled(rss_mib=(), headroom_mib=0.0, budget_mib=0.0, reserve_mib=0.0, share_mib=0.0), self.now_s
        )
        self.session.governor.handle(PhaseAsked(phase=phase()), self.now_s)
        assert self.session.governor.waiting

    def look(self, *, free_mib: float, phases_mib: float = 0.0, kind: str = "cgroup-v2") -> float:
        """One sample later. ``free_mib``: headroom of the cgroup."""
        self.now_s += 0.5
        reading = MemoryReading(
            levels=(MemoryLevel(source="x", kind=kind, limit_mib=LIMIT_MIB, headroom_mib=free_mib),)
        )
        return self.pausing.look(reading, allowance(reading, phases_mib), phases_mib=phases_mib)


@pytest.fixture
def watch(tmp_path: Path) -> Watch:
    return Watch(tmp_path, rss_mib=1000)


def test_while_phases_explain_where_memory_goes_nothing_is_read(watch: Watch) -> None:
    """However short it is: a build in which all have gates pays nothing."""
    for held_mib in range(0, 4000, 100):
        assert watch.look(free_mib=LIMIT_MIB - held_mib, phases_mib=float(held_mib)) == 0
    assert watch.root.reads == 0


def test_while_memory_is_not_short_nothing_is_read(watch: Watch) -> None:
    """Twice of what is unexplained is free, beside twice the reserve."""
    assert watch.look(free_mib=LIMIT_MIB - 1000) == 0
    assert watch.root.reads == 0
    assert not watch.pausing.watching


def test_what_no_phase_explains_is_looked_for_and_its_growth_kept_from_phases(watch: Watch) -> None:
    """It holds 1000 MiB and may come to hold as much again; ``--memory`` counts it, too."""
    assert watch.look(free_mib=1200, phases_mib=1800) == 1000
    assert watch.pausing.ungated_mib == 1000
    assert watch.pausing.watching


def test_when_memory_is_back_it_is_left_alone(watch: Watch) -> None:
    """And no longer counted."""
    watch.look(free_mib=1200, phases_mib=1800)
    watch.root.reads = 0
    assert watch.look(free_mib=LIMIT_MIB) == 0
    assert watch.root.reads == 0
    assert watch.pausing.ungated_mib == 0


def test_at_the_end_of_a_build_nothing_is_looked_for_any_more(watch: Watch) -> None:
    """What was let go on must not be stopped again by the next sample."""
    watch.pausing.end()
    assert watch.look(free_mib=100) == 0
    assert watch.root.reads == 0


def test_without_a_level_that_the_kernel_counts_nothing_is_unexplained(watch: Watch) -> None:
    """A limit that is our own sum says nothing about what is not in it."""
    assert watch.look(free_mib=100, kind="flag") == 0


def test_beside_working_processes_no_phase_starts_for_the_sake_of_progress(watch: Watch) -> None:
    """They get on by themselves: what does not fit beside them waits for their end."""
    assert watch.pausing.share_mib(500.0) == float("inf")
    watch.look(free_mib=1200, phases_mib=1800)
    assert watch.pausing.share_mib(500.0) == 500
    watch.look(free_mib=LIMIT_MIB)
    assert watch.pausing.share_mib(500.0) == float("inf")


def test_a_process_that_only_sits_there_holds_up_no_phase(watch: Watch) -> None:
    """A server takes memory, and no processor time: with it alone nothing would ever get on."""
    for _ in range(20):
        watch.look(free_mib=1200, phases_mib=1800)
    assert watch.pausing.share_mib(500.0) == float("inf")


def test_phases_do_not_wait_for_ever_for_one_that_works_on_and_on(watch: Watch) -> None:
    """After some minutes the first of them starts all the same."""
    asyncio.run(watch.ask())
    shares = []
    for look in range(int(2 * MOST_HELD_S) + 4):
        watch.root.files |= planted(11, rss_mib=1000 + look % 2 * 300)
        watch.look(free_mib=1200, phases_mib=1800)
        shares.append(watch.pausing.share_mib(500.0))
    assert shares[:10] == [500.0] * 10
    assert shares[-1] == float("inf")


@pytest.mark.parametrize("beside", [True, False])
def test_what_the_kernel_ends_beside_them_is_not_called_too_big_three_times(watch: Watch, beside: bool) -> None:
    """It was not alone, whatever the governor thinks; but a phase that dies again and again has its verdict."""

    async def outcomes() -> list[Outcome]:
        live = LivePhase(phase(), gate_pid=1, trusted=True, asked_at_s=0.0)
        live.admitted_at_s = watch.now_s
        if beside:
            watch.look(free_mib=1200, phases_mib=1800)
        ended = PhaseEnded(phase_id=1, outcome=Outcome.KILLED_BY_KERNEL, peak_mib=900.0, wall_s=1.0)
        return [watch.session.as_seen(live, ended).outcome for _ in range(4)]

    found = asyncio.run(outcomes())
    kernel = Outcome.KILLED_BY_KERNEL
    assert found == ([Outcome.KILLED_BY_US] * 3 + [kernel] if beside else [kernel] * 4)


@pytest.mark.parametrize(
    ("sizes_mib", "ended"),
    [
        pytest.param([500.0], [1], id="one"),
        pytest.param([500.0, 500.0], [], id="two"),
        pytest.param([500.0, 20.0], [1], id="one-and-one-that-begins"),
    ],
)
def test_only_the_last_phase_makes_way_for_them(
    watch: Watch, monkeypatch: pytest.MonkeyPatch, sizes_mib: list[float], ended: list[int]
) -> None:
    """Of several the governor chooses, one after the other; but never one that holds next to nothing."""
    killed: list[int] = []

    async def run() -> None:
        session = watch.session
        for phase_id, size_mib in enumerate(sizes_mib, start=1):
            live = session.live[phase_id] = LivePhase(phase(phase_id), gate_pid=1, trusted=True, asked_at_s=0.0)
            session.decide(PhaseAsked(phase=live.phase))
            live.rss_mib = size_mib
        assert session.governor.running == len(sizes_mib)
        monkeypatch.setattr(session, "carry_out", lambda action: killed.append(action.phase_id))
        watch.look(free_mib=1200, phases_mib=1800)
        watch.pausing.looked(Sampled(rss_mib=(), headroom_mib=0.0, budget_mib=0.0, reserve_mib=300.0))
        for live in session.live.values():
            live.granted.cancel()

    asyncio.run(run())
    assert killed == ended


def test_who_does_not_stop_is_let_go_on_before_he_is_forgotten(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that waits for a disk stops when that has answered: nobody would let it go on any more."""
    sent: list[signal.Signals] = []

    class Handle:
        def send(self, number: signal.Signals) -> bool:
            sent.append(number)
            return True

        def close(self) -> None:
            sent.append(signal.SIGCHLD)

    monkeypatch.setattr("builddoctor.supervise.pausing._held", lambda *_: Handle())
    for rss_mib in range(1000, 2000, 100):
        for files in (planted(10, 11, 12), planted(11, rss_mib=rss_mib), planted(12, rss_mib=rss_mib, state="D")):
            watch.root.files |= files
        watch.look(free_mib=LIMIT_MIB - 2 * rss_mib)
        if len(sent) > 1:
            break
    assert sent[:3] == [signal.SIGSTOP, signal.SIGCONT, signal.SIGCHLD]
