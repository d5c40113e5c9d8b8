"""This build among the others of its machine: tells them how it stands, and holds back what they go first with.

Covers: our record, when it is written; the budget that is left beside the others; whether a phase that the governor let
start has to wait for another build all the same; what the user hears of it.
Does *not* cover: the rules (``policy.sharing``), the files (``supervise.ledger``).
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import msgspec

from builddoctor.model.build_record import MOST_MIB, MOST_SCOPES, BuildRecord
from builddoctor.model.limits import MemoryReading
from builddoctor.model.phase import Estimate, Outcome
from builddoctor.policy.actions import Admit, Kill
from builddoctor.policy.budget import level_reserve_mib
from builddoctor.policy.events import PhaseEnded, Sampled
from builddoctor.policy.governor import DANGER_SHARE, GROWTH_MEMORY, KILL_LATENCY_S, LEAST_WORTH_MIB
from builddoctor.policy.sharing import (
    Answer,
    Service,
    SharedLevel,
    budget_mib,
    committed_mib,
    gives_way,
    may_start,
    sharing,
)
from builddoctor.sensors.root import Clock, SystemRoot
from builddoctor.sensors.scopes import Scopes
from builddoctor.supervise.doorman import Doorman
from builddoctor.supervise.ledger import Ledger
from builddoctor.supervise.session import Session

LOOKS_AGAIN = 50
"""Another build decides within a few microseconds; each look takes as long."""

HANDOVER_S = 0.25
"""Looks at memory come no later than this while something waits beside another build."""


class Sharing(Doorman):
    """One build's side. All methods are called in the event loop; without a ledger nothing is shared."""

    def __init__(self, session: Session, ledger: Ledger | None, *, slots: int, root: SystemRoot, clock: Clock) -> None:
        super().__init__()
        self._session = session
        self._slots = slots
        self._ledger = ledger
        self._clock = clock
        self._scopes = Scopes(root)
        self._service = Service()
        self._names: tuple[str, ...] = ()
        self._levels: tuple[SharedLevel, ...] = ()
        self._peers: tuple[BuildRecord, ...] = ()
        self._served_s = 0.0
        self._waiting_mib = 0.0
        self._told = 0
        self._total = (clock(), 0.0)
        self._growth_mib_s = 0.0
        session.doorman = self

    @property
    def beside(self) -> list[BuildRecord]:
        """Builds that share a limit with this one."""
        return sharing(self._names, self._peers)

    def read(self) -> None:
        """Look at the others; before memory is looked at, so that what they hold is not counted as free too."""
        if self._ledger is not None:
            self._peers = self._ledger.peers()

    def budget_mib(self, reading: MemoryReading, own_use_mib: float) -> float:
        """What our phases may be promised together; says how we stand."""
        if self._ledger is None:
            return float("inf")
        self._see(reading, own_use_mib)
        session, now_s, beside = self._session, self._clock(), self.beside
        waits = [live.estimate for live in session.live.values() if live.admitted_at_s is None]
        running = len(session.live) - len(waits)
        self._waiting_mib = _demand(waits, self._slots - running)
        self._served_s = self._service.look(
            beside, running=running > 0, wanting=running > 0 or bool(waits), now_s=now_s
        )
        me = self._record(claim_mib=self._standing_claim(running))
        self._ledger.write(me)
        if not beside:
            self._told = 0
            return float("inf")
        allowed_mib = budget_mib(me, beside, self._levels, now_s)
        if waits and allowed_mib < min(level.free_mib for level in self._levels) - 1.0:
            self._tell(beside)
        return allowed_mib

    def may_start(self, action: Admit) -> bool:
        """Does no other build go first?"""
        ledger = self._ledger
        if ledger is None:
            return True
        # Whoever has to run alone has to be alone among all builds.
        now, then = self._record(), self._record(also=action.estimate)
        needs_mib = MOST_MIB if action.phase_id in self.solo else then.committed_mib - now.committed_mib
        me = msgspec.structs.replace(now, claim_mib=needs_mib, trying=True)
        ledger.write(me)
        answer = Answer.LOOK_AGAIN
        for _ in range(LOOKS_AGAIN):
            self._peers = ledger.peers()
            answer = may_start(me, self.beside, self._levels, self._clock())
            if answer is not Answer.LOOK_AGAIN:
                break
        if answer is Answer.START:
            ledger.write(then)
            return True
        ledger.write(msgspec.structs.replace(me, trying=False, claim_mib=0.0 if me.running else needs_mib))
        self._tell(self.beside)
        return False

    def phase_ended(self) -> None:
        """What it had is the others' at once."""
        if self._ledger is not None:
            self._ledger.write(self._record(claim_mib=self._standing_claim(self._running())))

    def as_seen(self, ended: PhaseEnded) -> PhaseEnded:
        """Alone in this build is not alone: what the kernel ends beside another build's phases need not be too big."""
        if ended.outcome is Outcome.KILLED_BY_KERNEL and any(peer.running for peer in self.beside):
            return msgspec.structs.replace(ended, outcome=Outcome.KILLED_BY_US)
        return ended

    def gives_way(self, sampled: Sampled) -> list[Kill]:
        """The governor never ends the only phase of its build; beside other builds one of them has to."""
        if not self._beside_danger(sampled):
            return []
        running = [live for live in self._session.live.values() if live.admitted_at_s is not None]
        (only,) = running if len(running) == 1 else (None,)
        if only is None or not only.phase.redoable or only.killed_by_us or only.rss_mib < LEAST_WORTH_MIB:
            return []
        if not gives_way(self._record(), self.beside, self._clock()):
            return []
        reason = f"{sampled.headroom_mib:.0f} MiB left beside another build, which goes on"
        return [Kill(phase_id=only.phase.phase_id, reason=reason)]

    def _beside_danger(self, sampled: Sampled) -> bool:
        """As the governor sees it, with what the others' phases grow."""
        now_s, beside = self._clock(), self.beside
        total_mib = sum(held_mib for _, held_mib in sampled.rss_mib) + sum(peer.rss_mib for peer in beside)
        last, self._total = self._total, (now_s, total_mib)
        self._growth_mib_s *= GROWTH_MEMORY
        if now_s > last[0]:
            self._growth_mib_s = max(self._growth_mib_s, (total_mib - last[1]) / (now_s - last[0]))
        danger_mib = max(DANGER_SHARE * sampled.reserve_mib, KILL_LATENCY_S * self._growth_mib_s)
        return bool(beside) and sampled.headroom_mib < danger_mib

    def close(self) -> None:
        """The build is over."""
        if self._ledger is not None:
            self._ledger.close()
            self._ledger = None

    def period_s(self, period_s: float) -> float:
        """How long until the next look, where ``period_s`` would do without other builds."""
        waits = self.withheld or self._session.governor.waiting
        return min(period_s, HANDOVER_S) if waits and self.beside else period_s

    def _see(self, reading: MemoryReading, own_use_mib: float) -> None:
        found: list[SharedLevel] = []
        for level in reading.levels:
            scope = self._scopes.of(level)
            if scope:
                free_mib = level.headroom_mib - level_reserve_mib(level, reading) + own_use_mib
                held = tuple((peer.build_id, peer.rss_mib) for peer in self._peers if scope in peer.scopes)
                found.append(SharedLevel(scope=scope, free_mib=free_mib, held=held))
        self._levels = tuple(found)
        self._names = tuple(dict.fromkeys(level.scope for level in found))

    def _running(self) -> int:
        return sum(live.admitted_at_s is not None for live in self._session.live.values())

    def _standing_claim(self, running: int) -> float:
        """While nothing of ours runs, the others keep free what our next phase needs."""
        if running or not self.withheld:
            return 0.0
        first = next(iter(self.withheld.values()))
        return MOST_MIB if first.phase_id in self.solo else first.estimate.reserve_mib

    def _record(self, *, claim_mib: float = 0.0, also: Estimate | None = None) -> BuildRecord:
        """How it stands with us; ``also``: as if one more phase ran."""
        running = [
            (live.rss_mib, live.estimate)
            for live in self._session.live.values()
            if live.admitted_at_s is not None and live.estimate is not None
        ]
        rss_mib = sum(held_mib for held_mib, _ in running)
        if also is not None:
            running.append((0.0, also))
        return BuildRecord(
            build_id=self._ledger.build_id if self._ledger is not None else "0" * 16,
            pid=os.getpid(),
            scopes=self._names[:MOST_SCOPES],
            beat_s=self._clock(),
            committed_mib=min(committed_mib(running), MOST_MIB),
            rss_mib=min(rss_mib, MOST_MIB),
            waiting_mib=min(self._waiting_mib, MOST_MIB),
            running=len(running),
            claim_mib=min(claim_mib, MOST_MIB),
            served_s=self._served_s,
        )

    def _tell(self, beside: list[BuildRecord]) -> None:
        if self._told == len(beside) or not beside:
            return
        self._told = len(beside)
        pids = ", ".join(str(peer.pid) for peer in beside[:4])
        others = "another build" if len(beside) == 1 else f"{len(beside)} other builds"
        self._session.tell(f"shares memory with {others} (pid {pids}): {1 + len(beside)} builds, each has its part")


def _demand(waiting: Iterable[Estimate | None], slots: int) -> float:
    """What may want to run at once beside what runs: no more than there are slots for."""
    sizes = sorted((estimate.reserve_mib for estimate in waiting if estimate is not None), reverse=True)
    return sum(sizes[: max(0, slots)])
