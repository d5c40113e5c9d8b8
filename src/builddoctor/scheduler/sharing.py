"""Sharing memory among several supervised builds of one machine: what each may promise to its phases. Pure.

Covers: what one build tells the others, read as data of unknown origin; the other builds, watched from look to look;
the lease of one build beside the others' records; whose turn it is; which build ends a phase when memory runs out.
Does *not* cover: keeping the records (``runtime.sharing``); builds in containers with folders and processes of their
own: what those hold is missing from headroom all the same, what they promised is not known.

A build admits phases within its lease and nothing else, so that nothing need be asked between two looks. For each limit
that several builds live under:

- The pool is what is free there, less the reserve, and what the phases of all of them hold. Leases fit into it.
- A lease is lowered at will. To raise it, a build writes its wish, then reads the others, and takes only what fits
  beside all their leases and wishes: of two that wish at the same moment at least one sees the other. The one that
  was served longer takes its wish back, and the other has its wish at its next look. A lease that no longer fits is
  lowered.
- Each may lease an equal part, and what the others do not want of theirs. A build that has promised more starts
  nothing until it is back at its part; nothing is ever ended for that.
- A build of which nothing runs claims what its first phase needs, even if that is more than its part, and builds that
  were served longer keep it free. What fits beside nothing starts when no other build has promised anything. Service
  is counted in seconds, not in memory or phases: after a long phase that left the others no room they have as long.
- A claim that waits only for promises that are not taken up is no longer kept waiting after a while.

Silence of another build is measured on our own clock, by a beat that stands still: no clock of another build is
believed. It counts while we look ourselves: when the whole machine stood still no build has said anything. A build
whose supervisor was stopped, or hangs, counts for what its processes visibly use, which is missing from headroom
anyway, and for no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

MOST_MIB = 1e9
"""A figure beyond 1000 TB is no figure. As a lease: everything there is."""

MOST_SCOPES = 32

Size = Annotated[float, msgspec.Meta(ge=0, le=MOST_MIB)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Name = Annotated[str, msgspec.Meta(max_length=64)]

SILENT_S = 3.0
"""A build says something ten times a second, four times where it is alone."""

LONGEST_LOOK_S = 1.0
"""Of the time between two looks of ours no more counts: we stood still ourselves."""

LAPSED_S = 1.5
"""A build that has not looked for this long may have been taken for silent, and its lease by others: half of
``SILENT_S``."""

IDLE_S = 10.0
"""A build that wanted nothing for this long comes back without a lead over those that went on."""

LINGER_S = 0.3
"""Between two phases of a unit nothing is wanted for some 30 ms; what was wanted is kept, within one's part."""

PATIENCE_S = 60.0
"""Promises that are not taken up keep another's first phase waiting no longer than this."""

CLAIM_SLACK_MIB = 64.0
"""Left free beside a claim: two builds never see quite the same memory."""

LEAST_WORTH_MIB = 32.0
"""Ending a phase that holds less frees nothing."""

ROUNDING_MIB = 1.0


class BuildRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One build at one moment. All sizes in MiB."""

    build_id: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{16}\Z")]
    pid: Annotated[int, msgspec.Meta(ge=0, le=2**31)] = 0
    start_ticks: Count = 0
    """with the pid, the identity of its supervisor"""
    boot_id: Name = ""
    pid_space: Name = ""
    """the namespace in which its pid is counted"""
    beat: Count = 0
    """rises with every word of it: a record that stands still says nothing any more"""
    scopes: Annotated[tuple[Name, ...], msgspec.Meta(max_length=MOST_SCOPES)] = ()
    """the limits that it lives under (``system.cgroup``): two builds share those that both name"""
    lease_mib: Size = 0.0
    """what it may promise to its phases together, or has promised, whichever is more"""
    wish_mib: Size = 0.0
    """the lease that it is about to take; 0 for none"""
    claim_mib: Size = 0.0
    """what its first phase needs, while nothing of it runs; 0 for none"""
    wants_mib: Size = 0.0
    """what is promised to its running phases and would be to its waiting ones, as many as it may run at once"""
    use_mib: Size = 0.0
    """what its phases hold"""
    over_mib: Size = 0.0
    """what they hold beyond what they were promised"""
    yields_mib: Size = 0.0
    """what its largest phase that can be run again holds"""
    growth_mib_s: Size = 0.0
    """how fast its phases grow, from one of its looks to the next at the same ones"""
    running: Count = 0
    changes: Count = 0
    """rises whenever another set of phases runs"""
    ending: bool = False
    """it has ended a phase, whose memory is not back yet"""
    served_s: Annotated[float, msgspec.Meta(ge=0, le=1e12)] = 0.0
    """how long something of it ran while others were there: whoever had least goes first"""


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """Another build that lives."""

    record: BuildRecord
    silent: bool = False
    """it has said nothing for a while: it claims nothing, and nothing is kept for it"""
    active: bool = False
    """a phase of it runs, or did since the last look"""


class _Seen(msgspec.Struct):
    record: BuildRecord
    silent_s: float
    """how long we have watched since its beat last rose"""


class Peers:
    """All others, as they were at the last look."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        self._looked_s: float | None = None

    def look(self, records: Sequence[BuildRecord], now_s: float) -> tuple[Peer, ...]:
        """Take in what they say now; a build that has no record any more is gone."""
        passed_s = min(now_s - self._looked_s, LONGEST_LOOK_S) if self._looked_s is not None else 0.0
        self._looked_s = now_s
        self._seen, before = {}, self._seen
        found: list[Peer] = []
        for record in records:
            last = before.get(record.build_id)
            stands = last is not None and last.record.beat == record.beat
            silent_s = last.silent_s + passed_s if last is not None and stands else 0.0
            self._seen[record.build_id] = _Seen(record, silent_s)
            found.append(
                Peer(
                    record=record,
                    silent=silent_s > SILENT_S,
                    active=record.running > 0 or (last is not None and last.record.changes != record.changes),
                )
            )
        return tuple(found)


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """What this build wants at one look, as its scheduler says it."""

    committed_mib: float = 0.0
    """what its running phases hold or may still take"""
    wants_mib: float = 0.0
    """that, and what waits, as much as it may run at once and could ever have"""
    first_mib: float = 0.0
    """what the first in line needs, while nothing runs; 0 for none"""
    over_mib: float = 0.0
    """what phases hold beyond what was set aside for them"""
    yields_mib: float = 0.0
    """what the largest phase that can be run again holds"""
    running: int = 0
    ending: bool = False
    """a phase was ended, and its memory is not back yet"""


class Own(Demand, frozen=True, kw_only=True):
    """The same with what was seen of its phases."""

    use_mib: float = 0.0
    growth_mib_s: float = 0.0
    changes: int = 0


class SharedLevel(msgspec.Struct, frozen=True, kw_only=True):
    """A limit, as this build last saw it."""

    source: str
    scope: str
    free_mib: float
    """headroom less the reserve, and what this build itself holds: its budget there if it were alone"""


class _Pool(msgspec.Struct):
    """A limit, and the builds there that speak."""

    level: SharedLevel
    mib: float
    present: list[BuildRecord]

    @property
    def raw_mib(self) -> float:
        return self.level.free_mib + sum(record.use_mib for record in self.present)


class Share:
    """One build's lease. Each look: read, ``propose``, write what it gives, read again, ``settle``, write that."""

    def __init__(self, build_id: str) -> None:
        self.lease_mib = 0.0
        """what may be promised; ``MOST_MIB`` when no other build is there"""
        self.wish_mib = 0.0
        self.impatient = False
        """the lease was taken without room for it: a build that did that gives way first"""
        self._build_id = build_id
        self._own = Own()
        self._service = Service()
        self._ticket_s = 0.0
        self._pools: list[_Pool] = []
        self._free_mib = 0.0
        self._kept = (0.0, 0.0)
        self._promised_mib = 0.0
        self._looked_s: float | None = None
        self._held_since_s: float | None = None

    @property
    def rivals(self) -> dict[str, BuildRecord]:
        """Builds that speak and share a limit with this one, as last read."""
        return {record.build_id: record for pool in self._pools for record in pool.present}

    def pool_mib(self, scope: str) -> float:
        """What all builds under a limit may have together; infinite when it is not known."""
        return min((pool.mib for pool in self._pools if pool.level.scope == scope), default=float("inf"))

    def propose(self, own: Own, levels: Sequence[SharedLevel], peers: Sequence[Peer], now_s: float) -> BuildRecord:
        """A look: lower the lease at once, or wish for a higher one."""
        if self._looked_s is not None and now_s - self._looked_s > LAPSED_S:
            self.lease_mib, self.wish_mib = min(self.lease_mib, own.committed_mib), 0.0
        self._looked_s = now_s
        self._own = msgspec.structs.replace(own, wants_mib=self._lingering(own.wants_mib, now_s))
        self._see(levels, peers)
        self.impatient = self.impatient and own.running > 0
        served_s = self._service.look(
            list(self.rivals.values()), running=own.running > 0, wanting=own.wants_mib > 0, now_s=now_s
        )
        if not self.wish_mib:
            self._ticket_s = served_s
        target_mib = self._target(now_s)
        if target_mib <= self.lease_mib:
            self.lease_mib, self.wish_mib = target_mib, 0.0
        else:
            within_mib = target_mib if self._fits(target_mib) else min(target_mib, self._room())
            self.wish_mib = within_mib if within_mib > self.lease_mib + ROUNDING_MIB else 0.0
        return self.record()

    def settle(self, peers: Sequence[Peer]) -> BuildRecord:
        """The others as they are now that they can see what was written: take the wish, or what fits of it."""
        wish_mib, alone = self.wish_mib, not self.rivals
        for pool in self._pools:
            pool.present = _speaking(peers, pool.level.scope)
            pool.mib = min(pool.mib, pool.raw_mib)
        if not self.rivals:
            self.lease_mib, self.wish_mib = max(wish_mib, self.lease_mib), 0.0
        elif alone:
            # Another build came this moment: what there is to share is not known yet.
            self.wish_mib = 0.0
        else:
            left_mib = max(0.0, min(_left(pool, wishes=True) for pool in self._pools))
            if not self.impatient and self.lease_mib > left_mib + ROUNDING_MIB:
                self.lease_mib = left_mib
            self._take(wish_mib, left_mib)
        return self.record()

    def less(self, use_mib: float) -> BuildRecord:
        """A phase has ended, between two looks: write this, read, and ``settle`` before another one starts."""
        self._own = msgspec.structs.replace(self._own, use_mib=use_mib, growth_mib_s=0.0)
        return self.record()

    def _take(self, wish_mib: float, left_mib: float) -> None:
        if all(min(wish_mib, pool.mib) <= _left(pool, wishes=True) + ROUNDING_MIB for pool in self._pools):
            self.lease_mib, self.wish_mib = max(self.lease_mib, wish_mib), 0.0
            return
        self.lease_mib = max(self.lease_mib, min(wish_mib, left_mib))
        in_the_way = [record for record in self.rivals.values() if record.wish_mib > record.lease_mib]
        if not in_the_way or any(self._outranked_by(record) for record in in_the_way):
            self.wish_mib = 0.0

    def record(self) -> BuildRecord:
        """How it stands with this build."""
        own = self._own
        # A lease that was lowered is kept to as phases end. Bounds of phases that peak one after the other may add up
        # to more than was ever leased for them.
        kept_mib = own.committed_mib if own.over_mib else min(own.committed_mib, self._promised_mib)
        self._promised_mib = max(self.lease_mib, own.use_mib, kept_mib)
        return BuildRecord(
            build_id=self._build_id,
            lease_mib=_size(self._promised_mib),
            wish_mib=_size(self.wish_mib),
            claim_mib=_size(own.first_mib),
            wants_mib=_size(max(own.wants_mib, own.committed_mib)),
            use_mib=_size(own.use_mib),
            over_mib=_size(own.over_mib + (own.use_mib if self.impatient else 0.0)),
            yields_mib=_size(own.yields_mib),
            growth_mib_s=_size(own.growth_mib_s),
            running=own.running,
            changes=own.changes,
            ending=own.ending,
            served_s=self._ticket_s,
        )

    def _see(self, levels: Sequence[SharedLevel], peers: Sequence[Peer]) -> None:
        last = {pool.level.source: pool.raw_mib for pool in self._pools}
        self._free_mib = min((level.free_mib for level in levels), default=float("inf"))
        self._pools = [_Pool(level, 0.0, _speaking(peers, level.scope)) for level in levels]
        for pool in self._pools:
            # A phase that ends is out of headroom a moment before its build says so: counted twice, for one look.
            pool.mib = min(pool.raw_mib, last.get(pool.level.source, pool.raw_mib))

    def _lingering(self, wants_mib: float, now_s: float) -> float:
        kept_mib, until_s = self._kept
        if wants_mib >= kept_mib or now_s > until_s:
            self._kept = (wants_mib, now_s + LINGER_S)
        return self._kept[0]

    def _target(self, now_s: float) -> float:
        """The lease that this build should have, whatever it has."""
        if not self.rivals:
            self._held_since_s = None
            return MOST_MIB
        own, rivals = self._own, self.rivals.values()
        short = any(max(record.wants_mib, record.claim_mib) > record.lease_mib + ROUNDING_MIB for record in rivals)
        target_mib = MOST_MIB
        for pool in self._pools:
            part_mib = _part(pool)
            equal_mib = pool.mib / (len(pool.present) + 1)
            wanted_mib = own.wants_mib if short else max(own.wants_mib, equal_mib)
            target_mib = max(0.0, min(target_mib, part_mib, pool.mib - self._ahead(pool), wanted_mib))
        if not own.first_mib or self._fits(own.first_mib):
            self._held_since_s = None
            return max(target_mib, own.first_mib)
        return own.first_mib if self._is_out_of_patience(now_s) else target_mib

    def _is_out_of_patience(self, now_s: float) -> bool:
        """Its first phase fits what is really free, and only promises kept it waiting, for too long."""
        if self._held_since_s is None:
            self._held_since_s = now_s
        waits = now_s - self._held_since_s > PATIENCE_S and self._own.first_mib <= self._free_mib
        if not waits or any(record.claim_mib and self._outranked_by(record) for record in self.rivals.values()):
            return False
        self._held_since_s, self.impatient = None, True
        self.lease_mib = self._own.first_mib
        return True

    def _ahead(self, pool: _Pool) -> float:
        """Claims of builds that go first."""
        claims = [record.claim_mib for record in pool.present if record.claim_mib and self._outranked_by(record)]
        return sum(claims) + CLAIM_SLACK_MIB * len(claims)

    def _fits(self, wish_mib: float) -> bool:
        """Beside all leases, and claims of builds that go first; what is more than the pool fits beside nothing."""
        return all(
            min(wish_mib, pool.mib) <= _left(pool) - self._still_to_come(pool) + ROUNDING_MIB for pool in self._pools
        )

    def _still_to_come(self, pool: _Pool) -> float:
        ahead = [record for record in pool.present if self._outranked_by(record)]
        return sum(max(0.0, record.claim_mib - record.lease_mib) for record in ahead)

    def _room(self) -> float:
        return min((_left(pool) for pool in self._pools), default=MOST_MIB)

    def _outranked_by(self, record: BuildRecord) -> bool:
        """It has been served less. A total order, the same for all that read the same records."""
        return (record.served_s, record.build_id) < (self._ticket_s, self._build_id)


class Service:
    """How long one build has been served, look by look."""

    def __init__(self) -> None:
        self.served_s = 0.0
        self._looked_s: float | None = None
        self._wanted_s = float("-inf")

    def look(self, rivals: Sequence[BuildRecord], *, running: bool, wanting: bool, now_s: float) -> float:
        """``running``: something of it runs; ``wanting``: that, or something waits."""
        busy = [record for record in rivals if record.running or record.wants_mib > 0]
        if wanting and now_s - self._wanted_s > IDLE_S:
            self.served_s = max(self.served_s, min((record.served_s for record in busy), default=0.0))
        if wanting:
            self._wanted_s = now_s
        if running and busy and self._looked_s is not None:
            self.served_s += max(0.0, now_s - self._looked_s)
        self._looked_s = now_s
        return self.served_s


def gives_way(me: BuildRecord, rivals: Sequence[BuildRecord]) -> bool:
    """Memory runs out: whether this build ends its only phase. ``rivals``: those at the limit that runs out.

    No build ends its only phase of itself, and beside others one of them has to: first the one that holds more than was
    promised, then the one that was served longest.
    """
    holding = [record for record in rivals if record.running and record.use_mib >= LEAST_WORTH_MIB]
    if me.running != 1 or me.ending or not holding or any(record.ending for record in rivals):
        return False
    able = [record for record in holding if record.yields_mib >= LEAST_WORTH_MIB]
    return me.yields_mib >= LEAST_WORTH_MIB and all(_gives_first(me) > _gives_first(record) for record in able)


def _gives_first(record: BuildRecord) -> tuple[bool, float, str]:
    return record.over_mib > 0, record.served_s, record.build_id


def _speaking(peers: Sequence[Peer], scope: str) -> list[BuildRecord]:
    return [peer.record for peer in peers if not peer.silent and scope in peer.record.scopes]


def _left(pool: _Pool, *, wishes: bool = False) -> float:
    """Of the pool: leased by none; with ``wishes`` nor about to be."""
    return pool.mib - sum(
        max(record.lease_mib, record.wish_mib) if wishes else record.lease_mib for record in pool.present
    )


def _part(pool: _Pool) -> float:
    """An equal part, and what the others do not want of theirs (max-min fairness)."""
    left_mib, wanting = max(0.0, pool.mib), len(pool.present) + 1
    for demand_mib in sorted(record.wants_mib for record in pool.present):
        if demand_mib * wanting > left_mib:
            break
        left_mib -= demand_mib
        wanting -= 1
    return left_mib / wanting


def _size(mib: float) -> float:
    return min(max(0.0, mib), MOST_MIB)
