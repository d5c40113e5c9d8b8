"""A session over a planted /proc, for tests of what it makes of phases and units."""

from __future__ import annotations

from pathlib import Path

from builddoctor.intercept.protocol import Asked
from builddoctor.policy.governor import Governor
from builddoctor.sensors.root import Clock, SystemRoot
from builddoctor.supervise.accounts import Accounts
from builddoctor.supervise.kill_evidence import KillEvidence
from builddoctor.supervise.remembering import Remembering
from builddoctor.supervise.session import Session
from builddoctor.trace.writer import TraceWriter


async def no_front(*_: object) -> tuple[list[str], dict[str, str]]:
    """Nothing to add."""
    return [], {}


def session(
    governor: Governor, root: SystemRoot, trace: Path, *, clock: Clock, remembering: Remembering | None = None
) -> Session:
    """With pages of 1 MiB. To be made in a running event loop."""
    return Session(
        governor=governor,
        trace=TraceWriter(trace),
        accounts=Accounts(clock()),
        evidence=KillEvidence(root),
        root=root,
        page_bytes=1 << 20,
        clock=clock,
        answer_front=no_front,
        remembering=remembering,
    )


def asks(*, unit_id: str = "", gate_pid: int = 11) -> Asked:
    """A gate before ``cicc`` asks."""
    return Asked(
        gate_pid=gate_pid, parent_pid=0, unit_id=unit_id, tool="cicc", cwd="/", sizes="", redoable=True, argv=("a.ii",)
    )
