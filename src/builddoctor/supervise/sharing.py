"""This build among the others of its machine: tells them how it stands, and learns what it may promise beside them.

Covers: our record, look by look; the share that the governor admits within; ends that another build had a part in; the
last phase that gives way; what the user hears of it.
Does *not* cover: the rules (``policy.sharing``), the files (``supervise.ledger``).

Nothing in here ends a build: whatever goes wrong, sharing is switched off, with one warning, and the build goes on as
if it were alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from itertools import islice

import msgspec

from builddoctor.model.build_record import MOST_MIB, MOST_SCOPES, BuildRecord
from builddoctor.model.limits import MemoryReading
from builddoctor.model.phase import Outcome
from builddoctor.policy.actions import Kill
from builddoctor.policy.budget import level_reserve_mib
from builddoctor.policy.danger import DANGER_SHARE, KILL_LATENCY_S
from builddoctor.policy.events import PhaseEnded, Sampled
from builddoctor.policy.peers import Peer, Peers
from builddoctor.policy.sharing import LAPSED_S, LEAST_WORTH_MIB, Own, Share, SharedLevel, gives_way
from builddoctor.sensors.root import Clock, SystemRoot
from builddoctor.sensors.scopes import Scopes
from builddoctor.supervise.ledger import Ledger
from builddoctor.supervise.phases import LivePhase, only_holding
from builddoctor.supervise.session import Session

ALONE_S, BESIDE_S, CONTENDED_S = 0.25, 0.1, 0.05
"""The longest time between two looks: so that a newcomer is seen; beside others; while anybody waits."""

MOST_EXCUSED = 3
"""A phase that the kernel ends beside other builds' is not called too big, this many times."""

EVERYTHING = float("inf")


def open_sharing(session: Session, env: Mapping[str, str], *, slots: int, root: SystemRoot, clock: Clock) -> Sharing:
    """This build's side; without a ledger, which is said, when there is no place for one."""
    try:
        ledger = Ledger(env, root)
    except Exception as error:  # noqa: BLE001 - a build does not depend on others
        sharing = Sharing(session, None, slots=slots, root=root, clock=clock)
        sharing.tell_off(error)
        return sharing
    return Sharing(session, ledger, slots=slots, root=root, clock=clock)


class Sharing:
    """One build's side. All methods are called in the event loop, and none raises."""

    def __init__(self, session: Session, ledger: Ledger | None, *, slots: int, root: SystemRoot, clock: Clock) -> None:
        self._session = session
        self._ledger = ledger
        self._slots = slots
        self._clock = clock
        self._scopes = Scopes(root)
        self._share = Share(ledger.build_id if ledger is not None else "0" * 16)
        self._watch = Peers()
        self._peers: tuple[Peer, ...] = ()
        self._names: tuple[str, ...] = ()
        self._tight = ""
        self._company_s: dict[str, float] = {}
        self._excused: dict[int, int] = {}
        self._running: tuple[tuple[int, float], ...] = ()
        self._changes = 0
        self._used = (clock(), 0.0)
        self._told = 0
        session.as_seen = self._as_seen

    @property
    def period_s(self) -> float:
        """Looks at memory come no later than this."""
        if self._ledger is None:
            return EVERYTHING
        rivals = self._share.rivals.values()
        waits = self._session.governor.waiting and rivals
        return CONTENDED_S if waits or any(each.claim_mib for each in rivals) else BESIDE_S if rivals else ALONE_S

    def look(self, reading: MemoryReading, own_use_mib: float, *, own_budget_mib: float) -> float:
        """What our phases may be promised together; says how we stand. ``own_budget_mib``: were we alone."""
        if self._ledger is None:
            return EVERYTHING
        try:
            return self._look(self._ledger, reading, own_use_mib, own_budget_mib)
        except Exception as error:  # noqa: BLE001 - see above
            self._off(error)
            return EVERYTHING

    def looked(self, sampled: Sampled) -> None:
        """The governor has dealt with it: the only phase of a build may have to end for another's."""
        if self._ledger is None:
            return
        try:
            self._give_way(sampled)
        except Exception as error:  # noqa: BLE001 - see above
            self._off(error)

    def close(self) -> None:
        """The build is over."""
        ledger, self._ledger = self._ledger, None
        if ledger is not None:
            with contextlib.suppress(Exception):
                ledger.close()

    def tell_off(self, error: Exception) -> None:
        """Sharing is off."""
        self._session.tell(f"does not share memory with other builds of this machine ({error})", warning=True)

    def _off(self, error: Exception) -> None:
        self.close()
        self.tell_off(error)

    def _look(self, ledger: Ledger, reading: MemoryReading, own_use_mib: float, own_budget_mib: float) -> float:
        now_s = self._clock()
        levels = self._levels(reading, own_use_mib)
        self._read(ledger, now_s)
        own = self._own(own_use_mib, own_budget_mib, now_s)
        self._settle(ledger, self._share.propose(own, levels, self._peers, now_s))
        if not self._share.rivals:
            self._told = 0
            return EVERYTHING if self._share.lease_mib >= MOST_MIB else self._share.lease_mib
        if self._session.governor.waiting and self._share.lease_mib < own.wants_mib:
            self._tell()
        # Stopped between reading and now, we may know nothing any more.
        return self._share.lease_mib if self._clock() - now_s < LAPSED_S else 0.0

    def _settle(self, ledger: Ledger, record: BuildRecord) -> None:
        """Whoever decides at this very moment sees what is written here, or we see what he has written."""
        ledger.write(msgspec.structs.replace(record, scopes=self._names))
        self._read(ledger, self._clock())
        settled = self._share.settle(self._peers)
        if settled != record:
            ledger.write(msgspec.structs.replace(settled, scopes=self._names))

    def _read(self, ledger: Ledger, now_s: float) -> None:
        self._peers = self._watch.look(ledger.others(), now_s)
        for peer in self._peers:
            if peer.active:
                self._company_s.update(dict.fromkeys(peer.record.scopes, now_s))

    def _levels(self, reading: MemoryReading, own_use_mib: float) -> list[SharedLevel]:
        found = [
            SharedLevel(
                source=level.source,
                scope=scope,
                free_mib=level.headroom_mib - level_reserve_mib(level, reading) + own_use_mib,
            )
            for level in reading.levels
            if (scope := self._scopes.of(level))
        ]
        self._names = tuple(dict.fromkeys(level.scope for level in found))[:MOST_SCOPES]
        self._tight = self._scopes.of(reading.tightest)
        return found

    def _own(self, own_use_mib: float, own_budget_mib: float, now_s: float) -> Own:
        governor = self._session.governor
        running = [live for live in self._session.live.values() if live.admitted_at_s is not None]
        now = tuple((live.phase.phase_id, live.admitted_at_s or 0.0) for live in running)
        changed, self._running = now != self._running, now
        self._changes += changed
        (last_s, last_mib), self._used = self._used, (now_s, own_use_mib)
        grown_mib = 0.0 if changed else max(0.0, own_use_mib - last_mib)
        waiting = [each.estimate.reserve_mib for each in islice(governor.line, max(1, self._slots - len(running)))]
        committed_mib = governor.committed_mib
        wants_mib = committed_mib + sum(waiting[: max(0, self._slots - len(running))])
        return Own(
            committed_mib=committed_mib,
            wants_mib=max(committed_mib, min(wants_mib, own_budget_mib)),
            first_mib=waiting[0] if waiting and not running else 0.0,
            use_mib=own_use_mib,
            over_mib=sum(
                max(0.0, live.rss_mib - live.estimate.reserve_mib) for live in running if live.estimate is not None
            ),
            yields_mib=max((live.rss_mib for live in running if live.phase.redoable), default=0.0),
            growth_mib_s=grown_mib / max(now_s - last_s, CONTENDED_S),
            running=len(running),
            changes=self._changes,
            ending=any(live.killed_by_us for live in running),
        )

    def _give_way(self, sampled: Sampled) -> None:
        """The governor never ends the only phase of its build; beside other builds one of them has to."""
        here = [peer.record for peer in self._peers if not peer.silent and self._tight in peer.record.scopes]
        me = self._share.record()
        growth_mib_s = me.growth_mib_s + sum(record.growth_mib_s for record in here)
        danger_mib = max(DANGER_SHARE * sampled.reserve_mib, KILL_LATENCY_S * growth_mib_s)
        if sampled.headroom_mib >= danger_mib:
            return
        only = only_holding(self._session.live.values(), LEAST_WORTH_MIB)
        if only is None or only.killed_by_us or not only.phase.redoable:
            return
        if not gives_way(msgspec.structs.replace(me, running=1), here):
            return
        reason = f"{sampled.headroom_mib:.0f} MiB left beside another build, which goes on"
        self._session.carry_out(Kill(phase_id=only.phase.phase_id, reason=reason))

    def _as_seen(self, live: LivePhase, ended: PhaseEnded) -> PhaseEnded:
        """An end, as the governor hears of it: before another phase starts, the others hear that memory came free."""
        if self._ledger is None or live.admitted_at_s is None:
            return ended
        try:
            if self._share.rivals:
                held_mib = sum(each.rss_mib for each in self._session.live.values() if each is not live)
                self._settle(self._ledger, self._share.less(held_mib))
                ended = msgspec.structs.replace(ended, share_mib=self._share.lease_mib)
        except Exception as error:  # noqa: BLE001 - see above
            self._off(error)
            return ended
        return self._excuse(live, ended) if ended.outcome is Outcome.KILLED_BY_KERNEL else ended

    def _excuse(self, live: LivePhase, ended: PhaseEnded) -> PhaseEnded:
        """What the kernel ends beside another build's phases was not alone, and need not be too big."""
        company = self._company_s.get(self._tight, float("-inf")) >= (live.admitted_at_s or 0.0)
        excused = self._excused.get(ended.phase_id, 0)
        if not company or excused >= MOST_EXCUSED or ended.peak_mib >= self._share.pool_mib(self._tight):
            return ended
        self._excused[ended.phase_id] = excused + 1
        return msgspec.structs.replace(ended, outcome=Outcome.KILLED_BY_US)

    def _tell(self) -> None:
        rivals = list(self._share.rivals.values())
        if self._told == len(rivals):
            return
        self._told = len(rivals)
        pids = ", ".join(str(each.pid) for each in rivals[:4])
        others = "another build" if len(rivals) == 1 else f"{len(rivals)} other builds"
        self._session.tell(f"shares memory with {others} (pid {pids}): each of the {1 + len(rivals)} has its part")
