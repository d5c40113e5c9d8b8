"""A second reading of resident sizes, where the kernel's cheap ones are (nearly) zero (RHEL-97601).

Covers: the suspicion that a kernel reports resident sizes as zero (64 KiB pages), the proof of it for one process, when
to read again and which processes, and figures that move smoothly between readings five seconds apart.
Does *not* cover: reading itself (``system.process``). The memory of other users makes headroom fall just so; the
suspicion alone therefore changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from builddoctor.core.limits import COUNTED_BY_KERNEL, MemoryReading
from builddoctor.runtime.phases import LivePhases
from builddoctor.system.process import Processes
from builddoctor.system.root import Clock

BUSY_S = 0.1
"""Time for one round of readings; skipped processes are read in the next round."""


class CrossCheckRules(msgspec.Struct, frozen=True, kw_only=True):
    """When to look a second time, and what proves the fault."""

    drop_mib: float = 2048.0
    """headroom must have fallen this much"""
    explained_share: float = 0.5
    """our sum must have grown by less than this share of the fall"""
    near_zero_mib: float = 64.0
    """a running tool whose resident size reads below this may be read wrongly"""
    zero_share: float = 0.1
    large_mib: float = 256.0
    """it is read wrongly when it holds at least ``large_mib``, and less than ``zero_share`` of that was reported"""
    again_s: float = 5.0
    """the second reading costs 11 ms for each GiB with 4 KiB pages: never more often"""


class CrossCheck:
    """Compares the sum of our resident sizes with the headroom that is left, look by look."""

    def __init__(self, rules: CrossCheckRules) -> None:
        self._rules = rules
        self._reference: tuple[float, float] | None = None

    def suspicious(self, *, ours_mib: float, headroom_mib: float, running: bool) -> bool:
        """Headroom fell since the reference, and our sum does not explain half of it.

        The reference is the moment with most headroom since phases began to run, or since ``cleared``.
        """
        if not running:
            self._reference = None
            return False
        if self._reference is None or headroom_mib >= self._reference[1]:
            self._reference = (ours_mib, headroom_mib)
            return False
        drop_mib = self._reference[1] - headroom_mib
        explained_mib = ours_mib - self._reference[0]
        return drop_mib >= self._rules.drop_mib and explained_mib < self._rules.explained_share * drop_mib

    def cleared(self, *, ours_mib: float, headroom_mib: float) -> None:
        """Our sizes were right: other processes have that memory. From here on a further fall counts."""
        self._reference = (ours_mib, headroom_mib)

    def reads_as_zero(self, *, reported_mib: float, real_mib: float) -> bool:
        """The kernel's cheap figure of a process is (nearly) zero, and the dear one is large."""
        return real_mib >= self._rules.large_mib and reported_mib < self._rules.zero_share * real_mib


class Ramp:
    """A figure that is known every ``over_s`` seconds, and shown as rising or falling evenly in between.

    Shown in steps it would look like gigabytes in one sample, and the scheduler ends phases that grow so fast.
    """

    def __init__(self, *, now_s: float, over_s: float) -> None:
        self._from_mib = self._to_mib = 0.0
        self._since_s = now_s
        self._over_s = over_s

    def aim(self, size_mib: float, now_s: float) -> None:
        """A new reading."""
        self._from_mib, self._to_mib, self._since_s = self.at(now_s), size_mib, now_s

    def at(self, now_s: float) -> float:
        """The figure to show."""
        share = min(1.0, max(0.0, (now_s - self._since_s) / self._over_s)) if self._over_s > 0 else 1.0
        return self._from_mib + share * (self._to_mib - self._from_mib)


class RssRecheck:
    """One build's second readings. Silent and idle unless our sum does not explain where the memory goes."""

    def __init__(
        self,
        phases: LivePhases,
        processes: Processes,
        rules: CrossCheckRules,
        *,
        clock: Clock,
        tell: Callable[[str], None],
    ) -> None:
        self._phases = phases
        self._processes = processes
        self._tell = tell
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
        live = self._phases[phase_id]
        ramp = self._ramps.get((phase_id, live.tool_pid or 0))
        if ramp is None:
            return reported_mib
        shown_mib = max(reported_mib, ramp.at(self._clock()))
        live.take(shown_mib)
        return shown_mib

    def look(self, ours_mib: float, reading: MemoryReading, *, running: bool) -> None:
        """After each sample. ``ours_mib``: the sum of the running phases."""
        headroom_mib = min(
            (level.headroom_mib for level in reading.levels if level.kind in COUNTED_BY_KERNEL), default=0.0
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
        running = [(live.phase.phase_id, live) for live in self._phases.running]
        keys = {(phase_id, pid): live.reported_mib for phase_id, live in running if (pid := live.tool_pid) is not None}
        self._ramps = {key: ramp for key, ramp in self._ramps.items() if key in keys}
        self._read_s = {key: read_s for key, read_s in self._read_s.items() if key in keys}
        doubtful = [key for key, size_mib in keys.items() if size_mib < self._rules.near_zero_mib or key in self._ramps]
        for key in sorted(doubtful, key=lambda each: self._read_s.get(each, float("-inf"))):
            if self._clock() - now_s > BUSY_S:
                return False
            self._read_s[key] = now_s
            live = self._phases[key[0]]
            real_mib = live.anon_by_rollup_mib(self._processes)
            if real_mib is None:
                continue
            zero = self._check.reads_as_zero(reported_mib=keys[key], real_mib=real_mib)
            if zero and not self._proven:
                self._proven = True
                self._tell(
                    "resident sizes read as zero here, a fault of this kernel (RHEL-97601): the memory of phases is "
                    f"read from their page tables, every {self._rules.again_s:.0f} s"
                )
            if zero or key in self._ramps:
                ramp = self._ramps.setdefault(key, Ramp(now_s=now_s, over_s=self._rules.again_s))
                ramp.aim(real_mib, now_s)
                live.peak_mib = max(live.peak_mib, real_mib)
        return True
