"""Several supervised builds on one machine: what each may promise to its phases. Pure.

Covers: the budget of one build beside the others' records, whether one phase may start now, and whose turn it is.
Does *not* cover: keeping the records (``supervise.ledger``); builds that nobody sees, as in containers with folders and
processes of their own: what those hold is missing from headroom all the same, what they promised is not.

Rules, for each limit that several builds live under:

- The pool is what is free there, less the reserve, and what all of them hold. What they promised to their phases never
  exceeds it, though nobody holds it yet (free memory alone is promised twice: shakenfist#3636).
- Each may promise an equal part of the pool, and what the others do not want of theirs. Who has more starts nothing
  until he is back at his part; nothing is ever ended for it.
- A build of which nothing runs claims what its next phase needs, and those who were served longer keep that free: they
  start less, until it fits. What does not fit beside anything starts when nothing else runs. Served is counted in
  seconds, not in memory or phases: after a long phase that left the others no room they have as long in return.
- When memory runs out all the same, and each has one phase left, which no build ends of itself, the build that was
  served longest ends its own: one of all goes on.
- No two start on the same memory: each first writes what it is about to start, then reads, and only then starts. Of two
  that see each other the one served longer steps back, and the other looks again.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Sequence

import msgspec

from builddoctor.model.build_record import BuildRecord
from builddoctor.model.phase import Estimate
from builddoctor.policy.governor import LEAST_WORTH_MIB
from builddoctor.policy.running import OVERRUN_FACTOR

SILENT_S = 5.0
"""A build that wrote nothing for this long is stopped: it claims nothing and gets no part, but keeps its promises."""

FORGOTTEN_S = 120.0
"""Nor does it keep those after this long: what its phases hold by now is seen, and nothing new starts there."""

IDLE_S = 10.0
"""A build that wanted nothing for this long comes back without a lead over those that went on."""

ROUNDING_MIB = 1e-3


class SharedLevel(msgspec.Struct, frozen=True, kw_only=True):
    """A limit, as this build last saw it."""

    scope: str
    free_mib: float
    """headroom less the reserve, and what this build itself held: its budget there if it were alone"""
    held: tuple[tuple[str, float], ...] = ()
    """(build_id, MiB): what the others held at that moment"""


class Answer(enum.Enum):
    """May a phase start?"""

    START = "start"
    WAIT = "wait"
    LOOK_AGAIN = "look-again"
    """another build is deciding this very moment: read its record again"""


def committed_mib(running: Iterable[tuple[float, Estimate]]) -> float:
    """What phases hold or may still take, from what each holds and was promised: as ``Governor.committed_mib``.

    Not that figure itself: the governor also counts phases that it let start and that wait for another build.
    """
    expected_mib = squares = 0.0
    for rss_mib, estimate in running:
        if rss_mib > estimate.reserve_mib:
            expected_mib += rss_mib * OVERRUN_FACTOR
            continue
        needs_mib = max(rss_mib, estimate.peak_mib)
        expected_mib += needs_mib
        squares += (estimate.reserve_mib - needs_mib) ** 2
    return expected_mib + math.sqrt(squares)


def outranks(one: BuildRecord, other: BuildRecord) -> bool:
    """``one`` has been served less. A total order, the same for everybody who reads the same records."""
    return (one.served_s, one.build_id) < (other.served_s, other.build_id)


def sharing(scopes: Sequence[str], peers: Sequence[BuildRecord]) -> list[BuildRecord]:
    """Builds that live under one of these limits too."""
    wanted = set(scopes)
    return [peer for peer in peers if wanted.intersection(peer.scopes)]


def budget_mib(me: BuildRecord, peers: Sequence[BuildRecord], levels: Sequence[SharedLevel], now_s: float) -> float:
    """What this build's phases may be promised together; infinite without a level. May be below what they have."""
    return min((_at(level, me, peers, now_s) for level in levels), default=float("inf"))


def may_start(me: BuildRecord, peers: Sequence[BuildRecord], levels: Sequence[SharedLevel], now_s: float) -> Answer:
    """Whether the phase that ``me.claim_mib`` is for may start, beside what has been committed so far.

    ``me`` must have been written, and ``peers`` read after that. Levels that no other build shares are left to the
    governor, who knows when a build may overdraw them.
    """
    concerned = [
        (level, present) for level in levels if (present := [peer for peer in peers if level.scope in peer.scopes])
    ]
    if me.running:
        fits = all(
            me.committed_mib + me.claim_mib <= _at(level, me, present, now_s) + ROUNDING_MIB
            for level, present in concerned
        )
    else:
        # Its first phase may take more than its part: the turns see to it that everybody gets there.
        fits = all(me.claim_mib <= _left(level, me, present, now_s) + ROUNDING_MIB for level, present in concerned)
        fits = fits or _nobody_else(me, sharing([level.scope for level in levels], peers), now_s)
    if not fits:
        return Answer.WAIT
    for level, present in concerned:
        others = sum(peer.claim_mib for peer in _deciding(me, present, now_s))
        if others and me.committed_mib + me.claim_mib + others > _left(level, me, present, now_s) + ROUNDING_MIB:
            return Answer.LOOK_AGAIN
    return Answer.START


def gives_way(me: BuildRecord, peers: Sequence[BuildRecord], now_s: float) -> bool:
    """Memory runs out: whether this build ends its only phase. ``peers``: those it shares with."""
    going_on = [peer for peer in peers if peer.running and not _silent(peer, now_s) and peer.rss_mib >= LEAST_WORTH_MIB]
    return me.running == 1 and bool(going_on) and all(outranks(peer, me) for peer in going_on)


def _at(level: SharedLevel, me: BuildRecord, peers: Sequence[BuildRecord], now_s: float) -> float:
    present = [peer for peer in peers if level.scope in peer.scopes]
    return min(_left(level, me, present, now_s), _part(_pool(level, present), present, now_s))


def _pool(level: SharedLevel, present: Sequence[BuildRecord]) -> float:
    """What all builds there may commit together. One that died since the last look takes along what it held: its
    phases may not have gone yet."""
    ids = {peer.build_id for peer in present}
    return level.free_mib + sum(held_mib for build_id, held_mib in level.held if build_id in ids)


def _left(level: SharedLevel, me: BuildRecord, present: Sequence[BuildRecord], now_s: float) -> float:
    """Of the pool: neither promised by others nor claimed by one who goes first."""
    promised = sum(_promised(peer, now_s) for peer in present)
    claimed = sum(peer.claim_mib for peer in present if not _silent(peer, now_s) and outranks(peer, me))
    return _pool(level, present) - promised - claimed


def _part(pool_mib: float, present: Sequence[BuildRecord], now_s: float) -> float:
    """An equal part, and what the others do not want of theirs (max-min fairness)."""
    left_mib, wanting = max(0.0, pool_mib), len(present) + 1
    for demand_mib in sorted(_demand(peer, now_s) for peer in present):
        if demand_mib * wanting > left_mib:
            break
        left_mib -= demand_mib
        wanting -= 1
    return left_mib / wanting


def _nobody_else(me: BuildRecord, present: Sequence[BuildRecord], now_s: float) -> bool:
    """Nothing runs anywhere, and nobody goes first: then this one starts, whatever it takes."""
    return not any(
        _promised(peer, now_s) > 0
        or (not _forgotten(peer, now_s) and peer.running > 0)
        or (not _silent(peer, now_s) and peer.claim_mib > 0 and outranks(peer, me))
        for peer in present
    )


def _deciding(me: BuildRecord, present: Sequence[BuildRecord], now_s: float) -> list[BuildRecord]:
    """Those served longer who may not have seen our claim when they looked. The others count as claims anyway."""
    return [peer for peer in present if peer.trying and not _silent(peer, now_s) and outranks(me, peer)]


def _promised(peer: BuildRecord, now_s: float) -> float:
    return peer.rss_mib if _forgotten(peer, now_s) else max(peer.committed_mib, peer.rss_mib)


def _demand(peer: BuildRecord, now_s: float) -> float:
    return _promised(peer, now_s) + (0.0 if _silent(peer, now_s) else peer.waiting_mib)


def _silent(peer: BuildRecord, now_s: float) -> bool:
    return now_s - peer.beat_s > SILENT_S


def _forgotten(peer: BuildRecord, now_s: float) -> bool:
    return now_s - peer.beat_s > FORGOTTEN_S


class Service:
    """How long one build has been served, look by look."""

    def __init__(self) -> None:
        self.served_s = 0.0
        self._looked_s: float | None = None
        self._wanted_s = float("-inf")

    def look(self, peers: Sequence[BuildRecord], *, running: bool, wanting: bool, now_s: float) -> float:
        """``running``: something of it runs; ``wanting``: that, or something waits. ``peers``: those it shares with."""
        rivals = [peer for peer in peers if not _silent(peer, now_s) and (peer.running or peer.waiting_mib > 0)]
        if wanting and now_s - self._wanted_s > IDLE_S:
            self.served_s = max(self.served_s, min((peer.served_s for peer in rivals), default=0.0))
        if wanting:
            self._wanted_s = now_s
        if running and rivals and self._looked_s is not None:
            self.served_s += max(0.0, now_s - self._looked_s)
        self._looked_s = now_s
        return self.served_s
