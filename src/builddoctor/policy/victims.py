"""Which running phase to end when memory runs out. Pure.

Rules: one that grows beyond all expectation first, for the others would be ended for nothing; else never the oldest
while another will do, and among the rest the one that frees most memory for the least lost work.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A running phase as a possible victim."""

    phase_id: int
    rss_mib: float
    age_s: float
    suspect: bool = False
    """it may be a runaway (``policy.runaway``)"""
    redoable: bool = True
    """ended, it can be run again: nothing else is ever ended for memory"""


def choose(candidates: Sequence[Candidate], *, needed_mib: float = 0.0) -> Candidate | None:
    """The victim, or None when fewer than two run: the only running phase is never ended for memory.

    Where none frees ``needed_mib``, the one that frees most; the next look decides on another.
    """
    if len(candidates) < 2:
        return None
    redoable = [each for each in candidates if each.redoable]
    if suspects := [each for each in redoable if each.suspect]:
        return max(suspects, key=lambda each: (each.rss_mib, each.phase_id))
    oldest = max(candidates, key=lambda each: (each.age_s, -each.phase_id))
    # Beside one that cannot be redone the oldest has to go when nobody else may: the kernel would take either.
    others = [each for each in redoable if each.phase_id != oldest.phase_id] or redoable
    enough = [each for each in others if each.rss_mib >= needed_mib]
    if not enough:
        return max(others, key=lambda each: (each.rss_mib, each.phase_id), default=None)
    return max(enough, key=lambda each: (each.rss_mib / (each.age_s + 1.0), each.phase_id))
