"""What could be told of a kill afterwards, and what cannot be seen from here. Pure."""

from __future__ import annotations

from builddoctor.model.check import Check, Status
from builddoctor.model.visibility import Visibility

TOPIC = "evidence"


def evidence_checks(seen: Visibility) -> list[Check]:
    """One line: with neither counter a kill by the kernel looks like any other."""
    counters = [name for name, there in (("own cgroup", seen.own_kills), ("host", seen.host_kills)) if there]
    unseen = [name for name, there in (("the kernel log", seen.kernel_log), ("pressure", seen.pressure)) if not there]
    beside = f"; not to be seen from here: {', '.join(unseen)}" if unseen else ""
    if counters:
        text = f"kills by the kernel are counted ({', '.join(counters)}){beside}"
        return [Check(name="evidence", topic=TOPIC, status=Status.OK, text=text)]
    text = (
        f"no counter of kernel kills can be read: a kill by the kernel cannot be told from somebody's kill -9{beside}"
    )
    return [Check(name="evidence", topic=TOPIC, status=Status.WARNING, text=text)]
