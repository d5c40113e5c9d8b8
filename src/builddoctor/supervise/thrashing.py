"""Watches for a build that hangs at its memory limit: counters once a second, the policy's answer in between.

Does *not* cover: the rules (``policy.thrash``) or the counters (``sensors.pressure``).
"""

from __future__ import annotations

from builddoctor.policy.thrash import ThrashRules, ThrashState, ThrashWatch
from builddoctor.sensors.pressure import PressureSensor
from builddoctor.sensors.root import Clock
from builddoctor.supervise.session import Session

LOOK_EVERY_S = 1.0


class Thrashing:
    """One build's watch. ``reason`` says what was seen when it last acted."""

    def __init__(self, session: Session, rules: ThrashRules, *, clock: Clock) -> None:
        self._session = session
        self._clock = clock
        self._sensor = PressureSensor(session.root, page_bytes=session.page_bytes)
        self._watch = ThrashWatch(rules)
        self._state = ThrashState.NONE
        self._next_s = float("-inf")
        self._told = False

    @property
    def reason(self) -> str:
        return self._watch.reason

    def look(self, *, headroom_share: float, running: int) -> ThrashState:
        """After each sample. ``headroom_share``: headroom of the tightest level as a share of its limit."""
        now_s, session = self._clock(), self._session
        if now_s < self._next_s:
            return self._state
        self._next_s = now_s + LOOK_EVERY_S
        ended = session.accounts.phases_done + session.accounts.requeued
        self._state = self._watch.look(
            self._sensor.read(), headroom_share=headroom_share, ended=ended, running=running, now_s=now_s
        )
        if self._state is ThrashState.ACT and not self._told:
            self._told = True
            session.tell(f"the build hangs for memory: {self.reason}; nothing new starts", warning=True)
        return self._state
