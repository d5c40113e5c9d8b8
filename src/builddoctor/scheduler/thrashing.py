"""A build that hangs at its memory limit instead of dying of it. Pure.

Covers: when to act as if there were no headroom, and for how long; a phase that is stuck at ``memory.high``, or alone
at its limit.
Does *not* cover: reading counters (``system.pressure``). Pressure alone never leads to anything: kernels without CPU
accounting report 99 % for ever (oomd#119), and a host's pressure may have another cause.
"""

from __future__ import annotations

import enum
from collections import deque

from builddoctor.core.events import HighLevel, PressureSampled, Stall, Throttled
from builddoctor.core.settings import ThrashRules


class ThrashState(enum.Enum):
    """What admission and the OOM guard go by."""

    NONE = "none"
    ACT = "act"
    """no headroom"""
    HOLD = "hold"
    """true headroom, and no budget for anything new"""


class _Rate:
    """Growth of a counter over a window."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._points: deque[tuple[float, float]] = deque()

    def add(self, now_s: float, total: float | None) -> None:
        if total is None:
            self._points.clear()
            return
        self._points.append((now_s, total))
        while len(self._points) > 2 and now_s - self._points[1][0] >= self._window_s:
            self._points.popleft()

    def per_s(self) -> float | None:
        """None until the window is full."""
        if not self._points or self._points[-1][0] - self._points[0][0] < max(self._window_s, 1e-9):
            return None
        (from_s, low), (to_s, high) = self._points[0], self._points[-1]
        return (high - low) / (to_s - from_s)


class HighWatch:
    """A phase held back at ``memory.high``: it stalls there for ever, since the kernel kills nothing (cgroup-v2.rst).

    Neither pressure nor the counter says so alone: a phase that stays just above the limit is held back a little and
    ends. What is held back, and no longer grows, is stuck.
    """

    def __init__(self, rules: ThrashRules) -> None:
        self._rules = rules
        self._since_s: float | None = None
        self._events = 0
        self._some_s: float | None = None
        self._most_mib = 0.0
        self._ended = 0

    def look(self, reading: PressureSampled, *, ended: int, running: int) -> Throttled | None:
        """What holds the running phases back, so that they are stuck; None when they are not, or not yet. ``ended``:
        phases that ended so far."""
        level, rules, now_s = reading.high, self._rules, reading.at_s
        if level is None or not is_at(level, rules) or reading.high_events is None or not running:
            self._since_s = None
            return None
        grown = reading.held_mib > self._most_mib + rules.high_growth_share * level.limit_mib
        if self._since_s is None or grown or ended != self._ended:
            self._since_s, self._events, self._some_s = now_s, reading.high_events, reading.some_s
            self._most_mib, self._ended = reading.held_mib, ended
            return None
        passed_s, times = now_s - self._since_s, reading.high_events - self._events
        if passed_s < rules.stall_s or times < rules.high_events:
            return None
        if reading.some_s is not None and self._some_s is not None:
            share = (reading.some_s - self._some_s) / passed_s
            if share < rules.high_some_share:
                return None
        return Throttled(times=times, over_s=round(passed_s, 1), limit_mib=level.limit_mib, source=level.source)


def is_at(level: HighLevel, rules: ThrashRules) -> bool:
    """What takes memory now is held back."""
    return level.headroom_mib < rules.high_headroom_share * level.limit_mib


class StandstillWatch:
    """The only phase that runs, at a limit where the kernel drops what it reads in again at once, and kills nothing.

    Seen with a `cc1plus` that needs 1501 MiB where 1410 are left to it (cgroup v1, Linux 6.18): 360 MiB/s read in
    again, and in 45 s it grew by 0.2 MiB and ran for 0.2 s (docs/results/projects.md).
    """

    def __init__(self, rules: ThrashRules) -> None:
        self._rules = rules
        self._since: PressureSampled | None = None
        self._most_mib = 0.0
        self._ended = 0

    def look(self, reading: PressureSampled, *, hangs: bool, ended: int, running: int, held_mib: float) -> Stall | None:
        """What is read in again, where it stands still; None where it does not, or not yet. ``hangs``: the build does.
        ``ended``: phases that ended so far. ``held_mib``: by the phases that run."""
        rules, since = self._rules, self._since
        left = reading.headroom_share >= rules.standstill_headroom_share
        if running != 1 or not hangs or left or reading.refault_mib is None:
            self._since = None
            return None
        grown = held_mib > self._most_mib * (1 + rules.standstill_growth_share)
        if since is None or since.refault_mib is None or grown or ended != self._ended:
            self._since, self._most_mib, self._ended = reading, held_mib, ended
            return None
        passed_s = reading.at_s - since.at_s
        rate_mib_s = (reading.refault_mib - since.refault_mib) / max(passed_s, 1e-9)
        if passed_s < rules.standstill_s or rate_mib_s < rules.refault_mib_s:
            return None
        return Stall(over_s=round(passed_s, 1), refault_mib_s=round(rate_mib_s, 1))


class ThrashWatch:
    """Follows the kernel's counters; ``stall`` is what was seen when it last acted."""

    def __init__(self, rules: ThrashRules) -> None:
        self.stall: Stall | None = None
        self._rules = rules
        self._full = _Rate(rules.stall_s)
        self._refaults = _Rate(rules.stall_s)
        self._refaults_idle = _Rate(rules.idle_s)
        self._believed = True
        self._full_since_s: float | None = None
        self._ended = 0
        self._ended_s: float | None = None
        self._acting = False
        self._calm_until_s = float("-inf")

    def look(self, reading: PressureSampled, *, ended: int, running: int) -> ThrashState:
        """One look, about once a second. ``ended``: phases that ended so far, well or not."""
        now_s = reading.at_s
        over = ended != self._ended or running == 0
        if over or self._ended_s is None:
            self._ended, self._ended_s = ended, now_s
        if over and self._acting:
            # Something gave its memory back: what was measured before says nothing about now.
            self._acting = False
            self._calm_until_s = now_s + self._rules.calm_s
        self._full.add(now_s, reading.full_s)
        self._refaults.add(now_s, reading.refault_mib)
        self._refaults_idle.add(now_s, reading.refault_mib)
        if reading.fullness is None or reading.fullness < self._rules.at_limit_share:
            self._full_since_s = None
        elif self._full_since_s is None:
            self._full_since_s = now_s
        if now_s < self._calm_until_s and running:
            return ThrashState.HOLD
        stall = (self._stalled(reading.headroom_share) or self._refaulting(now_s)) if running else None
        self.stall = stall or self.stall
        self._acting = stall is not None
        return ThrashState.ACT if stall else ThrashState.NONE

    def _stalled(self, headroom_share: float) -> Stall | None:
        share, refaults = self._full.per_s(), self._refaults.per_s()
        rules = self._rules
        if share is None or share <= rules.full_share:
            return None
        refaulting = refaults is not None and refaults >= rules.refault_mib_s
        if headroom_share >= rules.plenty_headroom_share and not refaulting:
            self._believed = False
        low = headroom_share < rules.low_headroom_share or (refaulting and self._full_since_s is not None)
        if not self._believed or not low:
            return None
        return Stall(over_s=rules.stall_s, full_share=round(share, 3))

    def _refaulting(self, now_s: float) -> Stall | None:
        rate, rules = self._refaults_idle.per_s(), self._rules
        if rate is None or rate < rules.refault_mib_s or self._full_since_s is None or self._ended_s is None:
            return None
        if now_s - max(self._full_since_s, self._ended_s) < rules.idle_s:
            return None
        return Stall(over_s=rules.idle_s, refault_mib_s=round(rate, 1))
