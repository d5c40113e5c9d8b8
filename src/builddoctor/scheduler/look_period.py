"""How soon memory is looked at again: the sooner the less is left, and the faster it was seen to fill. Pure.

Covers: the period of looks, from 50 ms to 1 s: headroom over four times the fill that is feared, which is twice the
fastest that was seen; before anything was seen 6000 MiB/s, as earlyoom and nohang have it.
Does *not* cover: the looks (``runtime.sampler``), or those that are owed to other builds (``runtime.sharing``).
"""

from __future__ import annotations

SHORTEST_S, LONGEST_S = 0.05, 1.0
UNMEASURED_FILL_MIB_S = 6000.0
LEAST_FILL_MIB_S = 500.0
MEASURED_AFTER = 20
"""Looks at a build that runs something; then what was seen counts."""


class LookPeriod:
    """Of one build. It never forgets the fastest fill."""

    def __init__(self) -> None:
        self._fastest_mib_s = 0.0
        self._busy_looks = 0
        self._last: tuple[float, float] | None = None

    def saw(self, held_mib: float, now_s: float, *, busy: bool) -> None:
        """All phases together hold this much. ``busy``: some run."""
        if self._last is not None and now_s > self._last[0]:
            self._fastest_mib_s = max(self._fastest_mib_s, (held_mib - self._last[1]) / (now_s - self._last[0]))
        self._last = (now_s, held_mib)
        self._busy_looks += busy

    def next_s(self, headroom_mib: float, *, longest_s: float = LONGEST_S, quiet: bool = False) -> float:
        """Seconds to the next look. ``quiet``: nothing compiles, or is about to."""
        unmeasured = self._busy_looks < MEASURED_AFTER and not quiet
        fill_mib_s = UNMEASURED_FILL_MIB_S if unmeasured else max(2 * self._fastest_mib_s, LEAST_FILL_MIB_S)
        return min(longest_s, max(SHORTEST_S, headroom_mib / (4 * fill_mib_s)))
