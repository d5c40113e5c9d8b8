"""One build's side of sharing: what it tells the others, and that nothing in it can end a build."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from builddoctor.model.build_record import BuildRecord
from builddoctor.model.evidence import KillCause
from builddoctor.model.limits import MemoryLevel, MemoryReading
from builddoctor.model.phase import Estimate, Outcome
from builddoctor.policy.estimator import LearningEstimator
from builddoctor.policy.events import Sampled
from builddoctor.policy.governor import Governor
from builddoctor.supervise.accounts import Accounts
from builddoctor.supervise.kill_evidence import KillEvidence
from builddoctor.supervise.ledger import Ledger
from builddoctor.supervise.phases import LivePhase
from builddoctor.supervise.session import Session
from builddoctor.supervise.sharing import (
    ALONE_S,
    BESIDE_S,
    CONTENDED_S,
    EVERYTHING,
    MOST_EXCUSED,
    Sharing,
    open_sharing,
)
from builddoctor.trace.writer import TraceWriter
from unit.builders import asked, ended, phase
from unit.trees import TextRoot, meminfo

LIMIT_MIB = 8192.0
READING = MemoryReading(
    levels=(MemoryLevel(source="/proc/meminfo", kind="host", limit_mib=LIMIT_MIB, headroom_mib=LIMIT_MIB),)
)
POOL_MIB = 0.9 * LIMIT_MIB
"""less the reserve"""


async def _no_front(*_: object) -> tuple[list[str], dict[str, str]]:
    return [], {}


class Side:
    """A build with its session, and another one's ledger beside it."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.now_s = 0.0
        self.env = {"BUILDDOCTOR_LEDGER_DIR": str(folder / "ledger")}
        self.root = TextRoot(meminfo(8, 8))
        for pid in (1, 2):
            self.root.files[f"/proc/{pid}/stat"] = f"{pid} (a) S 1 " + "0 " * 17 + "100 0"
        self.root.files["/proc/self/ns/pid"] = "pid:[1]"
        trace = TraceWriter(folder / "trace.jsonl")
        stack.callback(trace.close)
        self.session = Session(
            governor=Governor(LearningEstimator(), slots=2, budget_mib=POOL_MIB),
            trace=trace,
            accounts=Accounts(0.0),
            evidence=KillEvidence(self.root),
            root=self.root,
            page_bytes=4096,
            clock=self.clock,
            answer_front=_no_front,
        )
        self.told: list[str] = []
        self.session.on_event = lambda event: self.told.append(event.text)
        self.sharing = self.open()
        stack.callback(self.sharing.close)
        self.peer = Ledger(self.env, self.root, pid=2)
        stack.callback(self.peer.close)

    def open(self) -> Sharing:
        return open_sharing(self.session, self.env, slots=2, root=self.root, clock=self.clock)

    def clock(self) -> float:
        return self.now_s

    def says(self, **values: float) -> None:
        record = BuildRecord(build_id="0" * 16, scopes=("host",))
        self.peer.write(msgspec.structs.replace(record, **values))

    def look(self) -> float:
        self.now_s += 0.1
        return self.sharing.look(READING, 0.0, own_budget_mib=POOL_MIB)


@pytest.fixture
def side(tmp_path: Path) -> Iterator[Side]:
    with ExitStack() as stack:
        yield Side(tmp_path, stack)


def test_alone_everything_is_ours_and_looks_are_rare(side: Side) -> None:
    """Nothing is said of it; a newcomer reads that all is taken."""
    assert side.look() == EVERYTHING
    assert side.sharing.period_s == ALONE_S
    assert side.peer.others()[0].lease_mib > LIMIT_MIB
    assert side.told == []


def test_beside_another_the_share_is_what_its_promises_leave(side: Side) -> None:
    """Looks come more often, and again more often while somebody waits; the user hears of it once."""
    side.look()
    side.says(lease_mib=5000.0, wants_mib=5000.0, running=1)
    side.session.governor.handle(asked(1), 0.0)
    side.session.governor.handle(asked(2), 0.0)
    side.session.governor.handle(ended(1, Outcome.FAILED), 0.0)
    assert side.look() == pytest.approx(POOL_MIB - 5000, abs=1)
    assert side.sharing.period_s == BESIDE_S
    side.says(claim_mib=5000.0, wants_mib=5000.0)
    side.look()
    assert side.sharing.period_s == CONTENDED_S


def test_an_error_switches_sharing_off_and_the_build_goes_on(side: Side) -> None:
    """The folder is gone and cannot be made again: said once, and from then on it is as if there were nobody else."""
    side.says(lease_mib=5000.0, wants_mib=5000.0)
    assert side.look() < LIMIT_MIB
    folder = Path(side.env["BUILDDOCTOR_LEDGER_DIR"])
    shutil.rmtree(folder)
    folder.touch()
    assert [side.look(), side.look()] == [EVERYTHING, EVERYTHING]
    side.sharing.looked(Sampled(rss_mib=(), headroom_mib=0.0, budget_mib=0.0, reserve_mib=100.0))
    assert side.sharing.period_s == EVERYTHING
    assert len(side.told) == 1
    assert "does not share memory with other builds" in side.told[0]


def test_without_a_place_for_a_ledger_a_build_goes_on(side: Side, tmp_path: Path) -> None:
    """It is said, at the start."""
    (tmp_path / "file").touch()
    side.env["BUILDDOCTOR_LEDGER_DIR"] = str(tmp_path / "file")
    alone = side.open()
    assert alone.look(READING, 0.0, own_budget_mib=POOL_MIB) == EVERYTHING
    assert len(side.told) == 1


@pytest.mark.parametrize(
    ("peer", "outcome"),
    [
        ({"running": 1}, Outcome.KILLED_BY_US),
        ({"changes": 9}, Outcome.KILLED_BY_US),
        ({"running": 1, "scopes": ("cgroup:1:2",)}, Outcome.KILLED_BY_KERNEL),
        ({"changes": 1}, Outcome.KILLED_BY_KERNEL),
    ],
)
def test_a_kill_beside_another_builds_phases_does_not_prove_that_one_is_too_big(
    side: Side, peer: dict[str, float], outcome: Outcome
) -> None:
    """Only if they ran since it was let start, under the limit that is tightest."""
    side.says(lease_mib=100.0, changes=1)
    side.look()

    async def killed() -> Outcome:
        live = _killed_phase(side.now_s)
        side.says(**peer)
        side.look()
        return side.session.as_seen(live, ended(1, Outcome.KILLED_BY_KERNEL)).outcome

    assert asyncio.run(killed()) is outcome


def test_phases_that_had_ended_before_had_no_part_in_a_kill(side: Side) -> None:
    """The other build ran, and stopped before this phase was let start."""
    side.says(running=1, changes=1)
    side.look()
    side.says(changes=1)
    side.look()

    async def killed() -> Outcome:
        live = _killed_phase(side.now_s)
        side.look()
        return side.session.as_seen(live, ended(1, Outcome.KILLED_BY_KERNEL)).outcome

    assert asyncio.run(killed()) is Outcome.KILLED_BY_KERNEL


def test_a_phase_that_is_too_big_is_found_out_all_the_same(side: Side) -> None:
    """At once when it held all that builds have together; and other builds excuse it only so often."""
    side.says(running=1)
    side.look()

    async def killed(peak_mib: float) -> Outcome:
        live = _killed_phase(side.now_s - 0.1)
        event = ended(1, Outcome.KILLED_BY_KERNEL, peak_mib=peak_mib)
        return side.session.as_seen(live, event).outcome

    assert asyncio.run(killed(POOL_MIB + 1)) is Outcome.KILLED_BY_KERNEL
    tries = [asyncio.run(killed(100.0)) for _ in range(MOST_EXCUSED + 1)]
    assert tries == [Outcome.KILLED_BY_US] * MOST_EXCUSED + [Outcome.KILLED_BY_KERNEL]


def _killed_phase(admitted_at_s: float) -> LivePhase:
    live = LivePhase(phase(1), gate_pid=1, trusted=False, asked_at_s=0.0)
    live.admitted_at_s = admitted_at_s
    live.cause = KillCause.CGROUP
    live.estimate = Estimate(peak_mib=100.0, spread_mib=0.0, source="")
    return live


def test_an_end_is_told_before_another_phase_starts(side: Side) -> None:
    """The other reads that the memory is back; and what it has taken meanwhile is not promised a second time."""
    side.says()
    side.session.governor.handle(asked(1), 0.0)

    async def ends() -> float:
        live = _killed_phase(side.now_s)
        live.rss_mib = 2000.0
        side.session.live[1] = live
        side.sharing.look(READING, 2000.0, own_budget_mib=POOL_MIB)
        assert side.peer.others()[0].use_mib == 2000
        live.rss_mib = 0.0
        side.says(lease_mib=POOL_MIB - 300, wants_mib=8000.0)
        seen = side.session.as_seen(live, ended(1))
        assert side.peer.others()[0].use_mib == 0
        return seen.share_mib

    assert asyncio.run(ends()) == pytest.approx(2300, abs=2)
