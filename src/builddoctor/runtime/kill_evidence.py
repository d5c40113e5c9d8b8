"""Did the kernel kill it? Counters, never text.

Covers: counters as they were when a phase was let start, and again when it died; each counted kill explains one death.
The cgroup that is read is the phase's own, which need not be builddoctor's: v1 counts only there.
The kernel counts before it sends the signal, so the counter is there when the process has been reaped. Exit codes,
texts, ``failcnt`` and full groups are no evidence.
Does *not* cover: reading counters (``system.oom_evidence``).
"""

from __future__ import annotations

from collections import deque

import msgspec

from builddoctor.core.evidence import Evidence, GroupCounters, KillCause
from builddoctor.core.units import whole_number
from builddoctor.system.cgroup import CgroupPlace, look_for_place
from builddoctor.system.oom_evidence import Group, group_of, membership, read_evidence
from builddoctor.system.root import SystemRoot

AMPLE_RESERVES = 5.0
"""With five times the reserve free at every level (a quarter of the limit or more) the kernel kills nothing here."""

SAME_S = 0.1
"""Twenty reads of kernel files for each of a hundred phases a second would be a tenth of their own time."""

LOOKS_KEPT = 100
"""5 s at the sampler's shortest period: memory that was full at the death may be free when we hear of it."""


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """Counters of one process's cgroup before it ran."""

    place: CgroupPlace | None
    evidence: Evidence


class KillEvidence:
    """Counts kernel kills since it was made, and which of them are explained."""

    def __init__(self, root: SystemRoot) -> None:
        self._root = root
        found = look_for_place(root)
        self._ours = found.place
        self._hidden = bool(found.unread) or found.hidden_above
        self._groups: dict[str, Group] = {}
        self._first: dict[str, int] = {}
        """kills of each cgroup when it was first seen"""
        self._claimed: dict[str, int] = {}
        """deaths put down to the kills of each cgroup; under "" those that only the machine's counter explains"""
        self._spare: deque[float] = deque(maxlen=LOOKS_KEPT)
        self._latest: tuple[tuple[CgroupPlace | None, bool], float, Baseline] | None = None
        """the cgroup whose counters were read last, when, and what they were"""
        self.start = self.baseline(whole_number((root.text("/proc/self/stat") or "").partition(" ")[0]))
        """our own cgroup before anything ran"""
        self._at_start = self.start.evidence

    def baseline(self, pid: int | None, *, now_s: float | None = None) -> Baseline:
        """Counters for the cgroup of a process that is about to run phases; None for our own.

        With ``now_s``, those of one that was let start just before are these too: a kill between the two explains one
        death, and no second.
        """
        group = None if pid is None else self._group(pid)
        of = (self._ours, False) if group is None else (group.place, group.proven)
        if now_s is not None and self._latest is not None and of == self._latest[0]:
            _, then_s, latest = self._latest
            if then_s <= now_s < then_s + SAME_S:
                return latest
        place, proven = of
        evidence = read_evidence(self._root, place, proven=proven)
        own = evidence.own
        if own is not None and own.oom_kill is not None:
            self._first.setdefault(own.directory, own.oom_kill)
        found = Baseline(place=place, evidence=evidence)
        if now_s is not None:
            self._latest = (of, now_s, found)
        return found

    def looked(self, *, headroom_mib: float, reserve_mib: float) -> None:
        """What was free at the tightest level when the sampler looked."""
        self._spare.append(headroom_mib / reserve_mib if reserve_mib > 0 else 0.0)

    def claim(self, before: Baseline | None) -> KillCause:
        """The cause of a death by a SIGKILL that we did not send. Each counted kill explains one death."""
        before = before or Baseline(place=self._ours, evidence=self._at_start)
        # A phase that starts from now on is not to be put down to what is counted here.
        self._latest = None
        after = read_evidence(self._root, before.place, proven=before.evidence.proven)
        ample = bool(self._spare) and min(self._spare) >= AMPLE_RESERVES and not self._hidden
        cause = compare(before.evidence, after, ample=ample)
        if not cause.by_kernel:
            return cause
        where = after.own.directory if after.own is not None and cause is not KillCause.HOST else ""
        kills = self._kills_on_host(after) if where == "" else self._kills_at(where)
        if kills <= self._claims(where):
            # That kill is another's death.
            return KillCause.OUTSIDE
        self._claimed[where] = self._claimed.get(where, 0) + 1
        return cause

    def total(self) -> int:
        """What the summary reports: kills counted in the cgroups of this build, or that explained a death of ours."""
        counted = sum(self._kills_at(directory) for directory in self._first if not self._inside_another(directory))
        return max(counted, self._claims(""))

    def _group(self, pid: int) -> Group | None:
        """The cgroup of a process; once proven, a path is not looked into again."""
        if self._ours is None:
            return None
        path = membership(self._root, self._ours, pid)
        if path is None or path in self._groups:
            return self._groups.get(path or "")
        group = group_of(self._root, self._ours, pid)
        if group is not None and group.proven:
            self._groups[path] = group
        return group

    def _kills_at(self, directory: str) -> int:
        """Kills of a cgroup since it was first seen; none when it is gone."""
        version = 2 if self._ours is None else self._ours.version
        own = read_evidence(self._root, CgroupPlace(version=version, directories=(directory,))).own
        now = None if own is None else own.oom_kill
        return 0 if now is None else max(now - self._first.get(directory, now), 0)

    def _kills_on_host(self, after: Evidence) -> int:
        start, now = self._at_start.host_oom_kill, after.host_oom_kill
        return 0 if start is None or now is None else max(now - start, 0)

    def _claims(self, directory: str) -> int:
        """Deaths explained by kills of a cgroup: v2 counts those below it too; "" for all."""
        if directory == "":
            return sum(self._claimed.values())
        below = "" if self._ours is None or self._ours.version == 1 else f"{directory}/"
        return sum(
            claims
            for where, claims in self._claimed.items()
            if where == directory or (below and where.startswith(below))
        )

    def _inside_another(self, directory: str) -> bool:
        """v2: its kills are counted at a cgroup above it as well."""
        if self._ours is None or self._ours.version == 1:
            return False
        return any(directory.startswith(f"{other.rstrip('/')}/") for other in self._first)


def compare(before: Evidence, after: Evidence, *, ample: bool = False) -> KillCause:
    """The cause of a death between the two readings, which must be of the same cgroup.

    ``ample``: plenty of memory was free at every level until then, and no level is hidden. It counts only where no
    counter of our own can be read: the machine's counter then rose for another process of the machine.
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
