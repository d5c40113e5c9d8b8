"""Who killed it? Two readings of the counters, before a process ran and after it was reaped. Pure.

Covers: deaths by a SIGKILL that builddoctor did not send. The kernel counts before it sends the signal, so the counter
is there when the process has been reaped. Exit codes, texts, ``failcnt`` and full groups are no evidence.
Does *not* cover: which of several deaths a counted kill explains (``supervise.kill_evidence``).
"""

from __future__ import annotations

from builddoctor.model.evidence import Evidence, GroupCounters, KillCause

_SAID = {
    KillCause.CGROUP: "the kernel",
    KillCause.ANCESTOR: "the kernel, for a hidden ancestor's limit or the whole machine's memory,",
    KillCause.HOST: "the kernel, by the machine's counter,",
    KillCause.OOMD: "systemd-oomd",
}


def compare(before: Evidence, after: Evidence, *, ample: bool = False) -> KillCause:
    """The cause of a death between the two readings, which must be of the same cgroup.

    ``ample``: plenty of memory was free at every level until then, and no level is hidden. It counts only where no
    counter of our own can be read: the machine's counter then rose for somebody else.
    """
    kills = _rise(_of(before.own, "oom_kill"), _of(after.own, "oom_kill"))
    if kills:
        return KillCause.CGROUP if _limit_reached(before, after) else KillCause.ANCESTOR
    if _rise(before.oomd_kill, after.oomd_kill):
        return KillCause.OOMD
    if kills == 0 and after.proven:
        return KillCause.OUTSIDE
    on_host = _rise(before.host_oom_kill, after.host_oom_kill)
    if on_host is None:
        return KillCause.UNKNOWN
    return KillCause.HOST if on_host and not ample else KillCause.OUTSIDE


def describe(cause: KillCause) -> str:
    """Who that is, for a sentence: ``ended by …``."""
    return _SAID.get(cause, "somebody else")


def _limit_reached(before: Evidence, after: Evidence) -> bool:
    """A level that can be seen reached its limit meanwhile; ``max`` counts where there is no ``oom``."""
    earlier = {level.directory: level for level in before.levels}
    for level in after.levels:
        was = earlier.get(level.directory)
        name = "max" if level.oom is None else "oom"
        if _rise(_of(was, name), _of(level, name)):
            return True
    return False


def _of(counters: GroupCounters | None, name: str) -> int | None:
    return None if counters is None else getattr(counters, name)


def _rise(before: int | None, after: int | None) -> int | None:
    """By how much a counter rose; None when it cannot be said. One that fell is another's: the group was made anew."""
    return None if before is None or after is None else max(after - before, 0)
