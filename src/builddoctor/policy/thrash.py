"""A build that hangs at its memory limit instead of dying of it. Pure.

Covers: when to act as if there were no headroom (memory.md V9), and for how long.
Does *not* cover: reading counters (``sensors.pressure``). Pressure alone never leads to anything: kernels without CPU
accounting report 99 % for ever (oomd#119), and a host's pressure may be somebody else's.
"""

from __future__ import annotations

import enum
from collections import deque

import msgspec

from builddoctor.model.pressure import PressureReading


class ThrashRules(msgspec.Struct, frozen=True, kw_only=True):
    """What makes thrashing."""

    full_share: float = 0.3
    stall_s: float = 10.0
    """all tasks stalled for this share of this long"""
    low_headroom_share: float = 0.2
    """pressure counts with less headroom than this share of the limit, or with refaults at the limit"""
    plenty_headroom_share: float = 0.5
    """pressure with more headroom than this, and without refaults, is not believed again"""
    refault_mib_s: float = 10.0
    """memory read in again: what a slow disk can do"""
    at_limit_share: float = 0.95
    idle_s: float = 60.0
    """refaults count when the limit has been reached, and no phase has ended, for this long"""
    calm_s: float = 30.0
    """after something ended, nothing new starts, and nothing else is ended, for this long: more than ``stall_s``"""


class ThrashState(enum.Enum):
    """What the governor should be told."""

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


class ThrashWatch:
    """Follows the kernel's counters; ``reason`` says what was seen when it last acted."""

    def __init__(self, rules: ThrashRules) -> None:
        self.reason = ""
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

    def look(
        self, reading: PressureReading, *, headroom_share: float, ended: int, running: int, now_s: float
    ) -> ThrashState:
        """One look, about once a second. ``ended``: phases that ended so far, well or not."""
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
        reason = (self._stalled(headroom_share) or self._refaulting(now_s)) if running else ""
        self.reason = reason or self.reason
        self._acting = bool(reason)
        return ThrashState.ACT if reason else ThrashState.NONE

    def _stalled(self, headroom_share: float) -> str:
        share, refaults = self._full.per_s(), self._refaults.per_s()
        rules = self._rules
        if share is None or share <= rules.full_share:
            return ""
        refaulting = refaults is not None and refaults >= rules.refault_mib_s
        if headroom_share >= rules.plenty_headroom_share and not refaulting:
            self._believed = False
        low = headroom_share < rules.low_headroom_share or (refaulting and self._full_since_s is not None)
        if not self._believed or not low:
            return ""
        return f"all processes waited for memory {100 * share:.0f} % of the last {rules.stall_s:.0f} s"

    def _refaulting(self, now_s: float) -> str:
        rate, rules = self._refaults_idle.per_s(), self._rules
        if rate is None or rate < rules.refault_mib_s or self._full_since_s is None or self._ended_s is None:
            return ""
        if now_s - max(self._full_since_s, self._ended_s) < rules.idle_s:
            return ""
        return f"{rate:.0f} MiB/s are read in again at the limit, and no phase ended for {rules.idle_s:.0f} s"
