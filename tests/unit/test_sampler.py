"""Looking at memory while the build runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

from builddoctor.model.board import EventRow
from builddoctor.model.limits import MemoryLevel, MemoryReading
from builddoctor.policy.estimator import LearningEstimator
from builddoctor.policy.governor import Governor
from builddoctor.policy.rules import Rules
from builddoctor.sensors.limits import MemorySensor
from builddoctor.sensors.root import monotonic
from builddoctor.supervise.accounts import Accounts
from builddoctor.supervise.kill_evidence import KillEvidence
from builddoctor.supervise.sampler import Sampler
from builddoctor.supervise.session import Session
from builddoctor.trace.writer import TraceWriter
from unit.trees import TextRoot, meminfo

READING = MemoryReading(levels=(MemoryLevel(source="x", kind="host", limit_mib=8192, headroom_mib=8192),))


class Broken(MemorySensor):
    """A sensor that raises what nobody expected."""

    def read(self, own_use_mib: float) -> MemoryReading:
        raise ZeroDivisionError


async def _no_front(*_: object) -> tuple[list[str], dict[str, str]]:
    return [], {}


def test_a_build_is_not_left_unwatched_in_silence(tmp_path: Path) -> None:
    """When memory cannot be looked at, it is said, and nothing starts beside what runs; sampling goes on trying."""
    root = TextRoot(meminfo(8, 8))

    async def first_event() -> tuple[EventRow, float]:
        trace = TraceWriter(tmp_path / "trace.jsonl")
        session = Session(
            governor=Governor(LearningEstimator(), slots=2, budget_mib=8000),
            trace=trace,
            accounts=Accounts(monotonic()),
            evidence=KillEvidence(root),
            root=root,
            page_bytes=4096,
            clock=monotonic,
            answer_front=_no_front,
        )
        told: asyncio.Future[EventRow] = asyncio.get_running_loop().create_future()
        session.on_event = lambda event: None if told.done() else told.set_result(event)
        sampler = Sampler(session, Broken(root), clock=monotonic, reading=READING, rules=Rules())
        task = asyncio.create_task(sampler.run())
        event = await told
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        trace.close()
        return event, session.governor.budget_mib

    event, budget_mib = asyncio.run(first_event())
    assert event.warning
    assert "memory cannot be watched (ZeroDivisionError())" in event.text
    assert budget_mib == 0
