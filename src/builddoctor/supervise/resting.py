"""Whose memory is worth a look: a phase that rests is looked at less often than one that moves.

A look at one process costs 3 us where it was not in the processor's caches; with hundreds of phases that is most of
what sampling costs, and most of them hold still for most of their time. Only where samples follow each other quickly:
at a period of the resting time or more, every phase is looked at each time.
Does *not* cover: when all are looked at whatever they do, because memory is short (``supervise.sampler``).
"""

from __future__ import annotations

STILL_MIB_S = 2.5
"""Who moves by no more than this holds still."""

STILL_FOR_S = 0.5
"""And rests, when that has been so for this long."""

LONG_S = 5.0
"""Who has held still for this long is looked at half as often. While memory is not short, all that hangs on it is how
finely its curve is drawn where it moves again."""

EARLY = 0.9
"""Samples come a little early or late: this share of the resting time is enough."""

PLACES = 8
"""Those that begin to rest together, as at the start of a build, are spread over so many samples."""


class Resting:
    """One phase's course, as far as that decides on the next look. Times are of any one clock."""

    __slots__ = ("_moved_s", "_place", "_rests", "_seen_s", "_size_mib")

    def __init__(self, place: int) -> None:
        """``place``: any number; those that are the same beyond ``PLACES`` are looked at together."""
        self._place = place % PLACES
        self._seen_s: float | None = None
        self._moved_s = self._size_mib = 0.0
        self._rests = False

    def saw(self, size_mib: float, now_s: float, *, rest_s: float) -> float:
        """It was looked at, and holds this much. Gives the time before which it need not be looked at again.

        ``rest_s``: how long a phase that rests is left alone at first.
        """
        if self._seen_s is None or abs(size_mib - self._size_mib) > STILL_MIB_S * (now_s - self._seen_s):
            self._moved_s = now_s
        self._size_mib, self._seen_s = size_mib, now_s
        if now_s - self._moved_s < STILL_FOR_S:
            self._rests = False
            return now_s
        if self._rests:
            return now_s + EARLY * rest_s * (2 if now_s - self._moved_s >= LONG_S else 1)
        self._rests = True
        return now_s + EARLY * rest_s * (self._place + 1) / PLACES
