"""Do the resident sizes that we read explain the memory that goes? Pure.

Covers: the suspicion that a kernel reports resident sizes as zero (64 KiB pages, RHEL-97601; memory.md S4), the proof
of it for one process, and a figure that moves smoothly between readings five seconds apart.
Does *not* cover: reading anything (``supervise.rereading``). Other people's memory makes headroom fall just so; the
suspicion alone therefore changes nothing.
"""

from __future__ import annotations

import msgspec


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
        """Our sizes were right: somebody else has that memory. From here on a further fall counts."""
        self._reference = (ours_mib, headroom_mib)

    def reads_as_zero(self, *, reported_mib: float, real_mib: float) -> bool:
        """The kernel's cheap figure of a process is (nearly) zero, and the dear one is large."""
        return real_mib >= self._rules.large_mib and reported_mib < self._rules.zero_share * real_mib


class Ramp:
    """A figure that is known every ``over_s`` seconds, and shown as rising or falling evenly in between.

    Shown in steps it would look like gigabytes in one sample, and the governor ends phases that grow so fast.
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
