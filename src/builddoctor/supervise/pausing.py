"""Pauses for processes of the build that no gate asked for: looked for when memory goes where no phase explains it.

Covers: when to walk the tree, who in it may be stopped, the signals, and that none stays stopped.
Does *not* cover: the rules (``policy.pausing``). When this process dies before it could let them go on, the guardian
ends the build, and SIGCONT is a part of that (``intercept.guardian_program``).

While all memory is explained by phases, a look costs a few additions.
"""

from __future__ import annotations

import signal

import msgspec

from builddoctor.intercept.guardian import PidHandle
from builddoctor.model.limits import MemoryReading
from builddoctor.model.phase import Outcome
from builddoctor.policy.actions import Kill
from builddoctor.policy.budget import OPEN_UNIT_MIB, Allowance
from builddoctor.policy.events import PhaseEnded, Sampled
from builddoctor.policy.pausing import LEAST_MIB, Continue, Pauser, Stop, UngatedProcess, may_be_stopped
from builddoctor.sensors.root import Clock
from builddoctor.sensors.tree import own_pid, read_tree
from builddoctor.supervise.phases import LivePhase, only_holding
from builddoctor.supervise.session import Session
from builddoctor.trace import records
from builddoctor.units import format_mib

NOT_SHORT = 2.0
"""While twice of what is unexplained is free, beside twice the reserve, nothing has to be looked for."""

UNEXPLAINED_SHARE = 0.1
"""Of what phases hold, so much may be missing from our sum: page tables, counters that lag."""

KEPT_SHARE = 0.3
"""Of the reserve, this stays free: where the governor begins to end phases."""

LATENCY_S = 0.5
"""From deciding to end a phase to its memory being back."""

WATCHING_S = 0.1
"""Period of samples while such processes are there."""

BUSY_FACTOR, LONGEST_BUSY_S = 10.0, 0.2
IDLE_FACTOR, LONGEST_IDLE_S = 200.0, 2.0
"""Time between two walks by what one takes, but no longer than this: on a machine that is full all takes long. Where
the last one found nothing, it is half a percent of a core."""

MOST_HELD_S = 300.0
"""Phases with gates wait no longer than this for processes that work on and on: then the first starts all the same."""

MOST_EXCUSED = 3
"""A phase that the kernel ends beside such processes is not called too big, this many times."""

_COUNTED_BY_THE_KERNEL = frozenset(("host", "cgroup-v1", "cgroup-v2"))

HINT = "let the build take its compilers from PATH, $CC and $CXX, where gates are"
WHY = f"no gate caught it, so it could not wait for its memory before it started ({HINT})"


class Pausing:
    """One build's pauses. Silent and idle unless memory is short, and held by what no gate asked for."""

    def __init__(self, session: Session, *, clock: Clock) -> None:
        self.ungated_mib = 0.0
        """what processes without gates held at the last walk; 0 while there is no need to know"""
        self.why = WHY
        """why it was not held back before it started"""
        self._session = session
        self._clock = clock
        self._top = own_pid(session.root)
        self._pauser = Pauser()
        self._held: dict[tuple[int, int], PidHandle] = {}
        self._most_mib = float("-inf")
        self._next_s = float("-inf")
        self._held_since_s = clock()
        self._company_s = float("-inf")
        self._last = (float("-inf"), 0.0)
        self._seen_before, session.as_seen = session.as_seen, self._as_seen
        self._told = False
        self._over = False

    @property
    def watching(self) -> bool:
        """Such processes are there, and memory is short."""
        return self.ungated_mib > 0

    def look(self, reading: MemoryReading, allowed: Allowance, *, phases_mib: float) -> float:
        """After each sample: stop and continue as needed. MiB to keep out of the phases' budget for them."""
        unexplained_mib = self._unexplained_mib(reading, phases_mib)
        near_mib = NOT_SHORT * (unexplained_mib + allowed.reserve_mib)
        short = unexplained_mib >= LEAST_MIB and allowed.kill_headroom_mib < near_mib
        if self._over or self._top is None or not (short or self._held):
            if self.ungated_mib:
                self._pauser.forget_all()
            self.ungated_mib = 0.0
            return 0.0
        now_s = self._clock()
        if now_s >= self._next_s:
            self._walk(allowed, phases_mib, now_s)
            took_s = self._clock() - now_s
            idle_s, busy_s = min(IDLE_FACTOR * took_s, LONGEST_IDLE_S), min(BUSY_FACTOR * took_s, LONGEST_BUSY_S)
            self._next_s = now_s + (busy_s if self.ungated_mib else idle_s)
        return self._pauser.need_mib

    def share_mib(self, budget_mib: float) -> float:
        """What phases may be promised together, the first one included; infinite when they are alone.

        With nothing else, one phase always runs, whatever it needs. Beside these it would be one too many.
        """
        now_s, governor = self._clock(), self._session.governor
        if not self._pauser.working or governor.running or not governor.waiting:
            self._held_since_s = now_s
        if not self._pauser.working or now_s - self._held_since_s > MOST_HELD_S:
            return float("inf")
        return budget_mib

    def looked(self, sampled: Sampled) -> None:
        """The governor never ends the only phase of its build: beside these it has to give way, as it can be redone."""
        now_s, session = self._clock(), self._session
        (last_s, last_mib), self._last = self._last, (now_s, sampled.headroom_mib)
        if not self._pauser.working:
            return
        falls_mib_s = (last_mib - sampled.headroom_mib) / (now_s - last_s) if now_s > last_s else 0.0
        if sampled.headroom_mib >= max(KEPT_SHARE * sampled.reserve_mib, LATENCY_S * falls_mib_s):
            return
        only = only_holding(session.live.values(), LEAST_MIB)
        if only is None or only.killed_by_us or not only.phase.redoable:
            return
        reason = f"{sampled.headroom_mib:.0f} MiB left beside processes that no gate caught, which cannot be redone"
        session.carry_out(Kill(phase_id=only.phase.phase_id, reason=reason))

    def _as_seen(self, live: LivePhase, ended: PhaseEnded) -> PhaseEnded:
        """What the kernel ends beside such processes was not alone, and need not be too big."""
        ended = self._seen_before(live, ended)
        beside = live.admitted_at_s is not None and self._company_s >= live.admitted_at_s
        if not beside or ended.outcome is not Outcome.KILLED_BY_KERNEL or live.excused >= MOST_EXCUSED:
            return ended
        live.excused += 1
        return msgspec.structs.replace(ended, outcome=Outcome.KILLED_BY_US)

    def release(self) -> None:
        """All that are stopped go on."""
        for handle in self._held.values():
            handle.send(signal.SIGCONT)
            handle.close()
        self._held.clear()
        self._pauser.forget_all()
        self.ungated_mib = 0.0

    def end(self) -> None:
        """Likewise, and none is stopped any more: the build ends."""
        self._over = True
        self.release()

    def _unexplained_mib(self, reading: MemoryReading, phases_mib: float) -> float:
        """What is gone since the most was free, and held neither by phases nor by what opens them."""
        counted = [each.headroom_mib for each in reading.levels if each.kind in _COUNTED_BY_THE_KERNEL]
        if not counted:
            return 0.0
        free_mib = min(counted) + phases_mib
        self._most_mib = max(self._most_mib, free_mib)
        open_mib = OPEN_UNIT_MIB * len(self._session.units.open)
        return self._most_mib - free_mib - open_mib - UNEXPLAINED_SHARE * phases_mib

    def _walk(self, allowed: Allowance, phases_mib: float, now_s: float) -> None:
        session = self._session
        tools = {live.tool_pid for live in session.live.values() if live.tool_pid is not None}
        tree = read_tree(
            session.root, self._top or 0, page_bytes=session.page_bytes, least_mib=LEAST_MIB, without=tools
        )
        self.ungated_mib = sum(each.anon_mib for each in tree)
        processes = [
            UngatedProcess(
                pid=each.pid,
                start_ticks=each.start_ticks,
                name=each.name,
                rss_mib=each.anon_mib,
                cpu_s=each.cpu_s,
                stopped=each.state == "T",
            )
            for each in tree
            if each.anon_mib > 0 and each.is_leaf and not each.leads_session and may_be_stopped(each.name)
        ]
        if processes:
            self._company_s = now_s
        promised_mib = max(0.0, session.governor.committed_mib - phases_mib)
        free_mib = allowed.kill_headroom_mib - promised_mib - KEPT_SHARE * allowed.reserve_mib
        # Of phases whose processor time cannot be had, nobody knows whether they make progress.
        times_s = [live.cpu_s(session.processes) for live in session.live.values() if live.tool_pid is not None]
        cpu_s = sum(each for each in times_s if each is not None)
        for action in self._pauser.look(processes, free_mib=free_mib, now_s=now_s, phases_cpu_s=cpu_s):
            if isinstance(action, Stop):
                self._stop(action)
            else:
                self._continue(action)
        paused = self._pauser.paused
        for key in [key for key in self._held if key not in paused]:
            # It has ended, or somebody else let it go on; or it waits for a disk, and will stop when that has answered.
            handle = self._held.pop(key)
            handle.send(signal.SIGCONT)
            handle.close()

    def _stop(self, action: Stop) -> None:
        process, session = action.process, self._session
        handle = _held(process, session)
        if handle is None or not handle.send(signal.SIGSTOP):
            self._pauser.refused(process)
            return
        self._held[process.key] = handle
        session.accounts.paused += 1
        session.trace.write(
            records.Paused(
                at_s=session.at_s(),
                pid=process.pid,
                name=process.name,
                rss_mib=round(process.rss_mib, 1),
                free_mib=round(action.free_mib, 1),
            )
        )
        text = (
            f"stops {_name(process)} for a while at {format_mib(process.rss_mib)}: {format_mib(action.free_mib)} free"
        )
        if not self._told:
            self._told = True
            text += f"; {self.why}"
        session.tell(text, warning=True)

    def _continue(self, action: Continue) -> None:
        process, session = action.process, self._session
        handle = self._held.pop(process.key, None)
        if handle is None:
            return
        handle.send(signal.SIGCONT)
        handle.close()
        session.trace.write(
            records.Continued(
                at_s=session.at_s(),
                pid=process.pid,
                name=process.name,
                stopped_s=round(action.stopped_s, 3),
                reason=action.reason,
            )
        )
        session.tell(f"continues {_name(process)} after {action.stopped_s:.0f} s: {action.reason}")


def _name(process: UngatedProcess) -> str:
    return f"{process.name} (process {process.pid})"


def _held(process: UngatedProcess, session: Session) -> PidHandle | None:
    """The process, held; None when it is gone, or its number is another's by now.

    Held first and looked at afterwards. Without pidfds (before Linux 5.3) none is stopped: a number may be anyone's.
    """
    try:
        handle = PidHandle(process.pid)
    except OSError:
        return None
    if session.processes.start_ticks(process.pid) == process.start_ticks:
        return handle
    handle.close()
    return None
