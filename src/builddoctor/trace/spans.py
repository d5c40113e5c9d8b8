"""The fullest moment of each span of time, for a bounded number of spans whatever the length of the whole. Pure.

Spans begin at 50 ms; when there are too many, neighbours are joined in pairs, and each is twice as long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

FIRST_S = 0.05

State = TypeVar("State")


class Spans(Generic[State]):
    """Before a change ``advance``, after it ``offer``. Making a state costs: only those worth keeping are made."""

    def __init__(self, most: int) -> None:
        self._most = max(2, most)
        self._width_s = FIRST_S
        self._kept: list[tuple[float, float, State]] = []
        """time, total and state of each span that is over"""
        self._span = 0
        self._best: tuple[float, float, State] | None = None
        self._at_s = 0.0

    def advance(self, at_s: float, total: float, state: Callable[[], State]) -> None:
        """Time has come this far, and nothing has changed up to now: what lies over a border begins the next span."""
        at_s = self._at_s = max(self._at_s, at_s)
        span = int(at_s / self._width_s)
        if span <= self._span:
            return
        border_s = (self._span + 1) * self._width_s
        for begins_s in (border_s, span * self._width_s) if span > self._span + 1 else (border_s,):
            if self._best is not None:
                self._kept.append(self._best)
            self._best = (begins_s, total, state())
        self._span = span
        if len(self._kept) > 2 * self._most:
            self._join()

    def offer(self, total: float, state: Callable[[], State]) -> None:
        """A change, at the time of the last ``advance``."""
        if self._best is None or total > self._best[1]:
            self._best = (self._at_s, total, state())

    def kept(self, total: float, state: Callable[[], State]) -> list[tuple[float, State]]:
        """All kept moments in order of time, and the state at the end."""
        moments = [*self._kept, *([self._best] if self._best is not None else [])]
        moments.append((self._at_s, total, state()))
        return [(at_s, kept) for at_s, _, kept in moments]

    def _join(self) -> None:
        while len(self._kept) > self._most:
            self._width_s *= 2
            self._span //= 2
            joined: list[tuple[float, float, State]] = []
            for moment in self._kept:
                if not joined or int(joined[-1][0] / self._width_s) != int(moment[0] / self._width_s):
                    joined.append(moment)
                elif moment[1] > joined[-1][1]:
                    joined[-1] = moment
            self._kept = joined
