"""Second readings of resident sizes, where the kernel's cheap ones are (nearly) zero (RHEL-97601).

Covers: when to read again, whom, and the figures used from then on.
Does *not* cover: the suspicion itself (``policy.crosscheck``).
"""

from __future__ import annotations

from builddoctor.model.limits import MemoryReading
from builddoctor.policy.crosscheck import CrossCheck, CrossCheckRules, Ramp
from builddoctor.sensors.root import Clock
from builddoctor.supervise.session import Session

BUSY_S = 0.1
"""Time for one round of readings; who is not reached has his turn in the next."""

_COUNTED_BY_THE_KERNEL = frozenset(("host", "cgroup-v1", "cgroup-v2"))
"""Levels whose use is not our own sum."""


class Rereading:
    """One build's second readings. Silent and idle unless our sum does not explain where the memory goes."""

    def __init__(self, session: Session, rules: CrossCheckRules, *, clock: Clock) -> None:
        self._session = session
        self._rules = rules
        self._clock = clock
        self._check = CrossCheck(rules)
        self._ramps: dict[tuple[int, int], Ramp] = {}
        self._read_s: dict[tuple[int, int], float] = {}
        self._next_s = float("-inf")
        self._proven = False

    @property
    def busy(self) -> bool:
        """Some figures are between two second readings, and change with the time."""
        return bool(self._ramps)

    def figure(self, phase_id: int, reported_mib: float) -> float:
        """What to count for this phase: the kernel's figure, or the second reading where that is more."""
        if not self._ramps:
            return reported_mib
        live = self._session.live[phase_id]
        ramp = self._ramps.get((phase_id, live.tool_pid or 0))
        if ramp is None:
            return reported_mib
        shown_mib = max(reported_mib, ramp.at(self._clock()))
        live.take(shown_mib)
        return shown_mib

    def look(self, ours_mib: float, reading: MemoryReading, *, running: bool) -> None:
        """After each sample. ``ours_mib``: the sum of the running phases."""
        headroom_mib = min(
            (level.headroom_mib for level in reading.levels if level.kind in _COUNTED_BY_THE_KERNEL), default=0.0
        )
        suspicious = self._check.suspicious(ours_mib=ours_mib, headroom_mib=headroom_mib, running=running)
        now_s = self._clock()
        if not (suspicious or self._proven) or now_s < self._next_s:
            return
        self._next_s = now_s + self._rules.again_s
        complete = self._read_again(now_s)
        if complete and not self._proven:
            self._check.cleared(ours_mib=ours_mib, headroom_mib=headroom_mib)

    def _read_again(self, now_s: float) -> bool:
        """Read those that seem to hold nothing, longest unread first; False when time ran out."""
        running = [(phase_id, live) for phase_id, live in self._session.live.items() if live.admitted_at_s is not None]
        keys = {(phase_id, pid): live.reported_mib for phase_id, live in running if (pid := live.tool_pid) is not None}
        self._ramps = {key: ramp for key, ramp in self._ramps.items() if key in keys}
        self._read_s = {key: read_s for key, read_s in self._read_s.items() if key in keys}
        doubtful = [key for key, size_mib in keys.items() if size_mib < self._rules.near_zero_mib or key in self._ramps]
        for key in sorted(doubtful, key=lambda each: self._read_s.get(each, float("-inf"))):
            if self._clock() - now_s > BUSY_S:
                return False
            self._read_s[key] = now_s
            live = self._session.live[key[0]]
            real_mib = live.anon_by_rollup_mib(self._session.processes)
            if real_mib is None:
                continue
            zero = self._check.reads_as_zero(reported_mib=keys[key], real_mib=real_mib)
            if zero and not self._proven:
                self._proven = True
                self._session.tell(
                    "resident sizes read as zero here, a fault of this kernel (RHEL-97601): the memory of phases is "
                    f"read from their page tables, every {self._rules.again_s:.0f} s",
                    warning=True,
                )
            if zero or key in self._ramps:
                ramp = self._ramps.setdefault(key, Ramp(now_s=now_s, over_s=self._rules.again_s))
                ramp.aim(real_mib, now_s)
                live.peak_mib = max(live.peak_mib, real_mib)
        return True
