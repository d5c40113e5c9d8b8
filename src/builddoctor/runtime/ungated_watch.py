"""The ungated watch: processes of the build that no gate asked for, looked for when memory is missing.

Covers: when to walk the process tree, which processes may be stopped, the signals, and that none stays stopped.
Does *not* cover: which are stopped and when they go on (``scheduler.ungated``). When this process dies before it could
let them go on, the guardian ends the build, and SIGCONT is a part of that (``gates.guardian_program``).

While all memory is explained by phases, a look costs a few additions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from builddoctor.core.events import Continue, Pause, PauseRefused, UngatedGone, UngatedProcess, UngatedSeen
from builddoctor.core.limits import COUNTED_BY_KERNEL, MemoryReading
from builddoctor.gates.stopping import Stopped
from builddoctor.runtime.phases import LivePhases
from builddoctor.scheduler.budget import OPEN_UNIT_MIB, Allowance
from builddoctor.scheduler.scheduler import Scheduler
from builddoctor.scheduler.ungated import LEAST_MIB, may_be_stopped
from builddoctor.system.process import Processes, read_tree
from builddoctor.system.root import Clock, SystemRoot

NOT_SHORT = 2.0
"""While twice of what is unexplained is free, beside twice the reserve, nothing has to be looked for."""

UNEXPLAINED_SHARE = 0.1
"""Of what phases hold, so much may be missing from our sum: page tables, counters that lag."""

WATCHING_S = 0.1
"""Period of samples while such processes are there."""

BUSY_FACTOR, LONGEST_BUSY_S = 10.0, 0.2
IDLE_FACTOR, LONGEST_IDLE_S = 200.0, 2.0
"""Time between two walks by what one takes, but no longer than this: on a machine that is full all takes long. Where
the last one found nothing, it is half a percent of a core."""


class UngatedWatch:
    """One build's. Silent and idle unless memory is short, and held by what no gate asked for."""

    def __init__(
        self,
        scheduler: Scheduler,
        phases: LivePhases,
        processes: Processes,
        *,
        root: SystemRoot,
        clock: Clock,
        top: int | None,
        apart: Callable[[], Collection[int]] = tuple,
    ) -> None:
        """``top``: the process below which they are; None: none is looked for. ``apart``: not these of them."""
        self._apart = apart
        self.ungated_mib = 0.0
        """what all processes without gates held at the last walk; 0 while there is no need to know"""
        self._scheduler = scheduler
        self._phases = phases
        self._processes = processes
        self._root = root
        self._clock = clock
        self._page_bytes = root.page_bytes()
        self._top = top
        self._stopped = Stopped(processes)
        self._most_mib = float("-inf")
        self._next_s = float("-inf")
        self._seen_s = float("-inf")
        self._found = False
        self._over = False

    @property
    def watching(self) -> bool:
        """Some that may be stopped are there, and memory is short."""
        return self._found

    def look(
        self, reading: MemoryReading, allowed: Allowance, *, phases_mib: float, open_units: int, at_s: float
    ) -> UngatedSeen | UngatedGone | None:
        """After each look at memory: what was seen in the tree, where it is time to look."""
        unexplained_mib = self._unexplained_mib(reading, phases_mib, open_units)
        near_mib = NOT_SHORT * (unexplained_mib + allowed.reserve_mib)
        short = unexplained_mib >= LEAST_MIB and allowed.kill_headroom_mib < near_mib
        if self._over or self._top is None or not (short or self._stopped):
            gone, self._found = self._found, False
            self.ungated_mib = 0.0
            return UngatedGone(at_s=at_s) if gone else None
        now_s = self._clock()
        if now_s < self._next_s:
            return None
        before, seen = self._found, self._walk(allowed, phases_mib, at_s)
        self._found = bool(seen.processes)
        took_s = self._clock() - now_s
        idle_s, busy_s = min(IDLE_FACTOR * took_s, LONGEST_IDLE_S), min(BUSY_FACTOR * took_s, LONGEST_BUSY_S)
        self._next_s = now_s + (busy_s if self._found else idle_s)
        # A server that holds most of the memory for days is none of them: nothing is said of it.
        return seen if self._found or before else None

    def seen_since(self, then_s: float) -> bool:
        """Such processes were there at that time or later (on the clock)."""
        return self._seen_s >= then_s

    def release(self) -> None:
        """All that are stopped go on, whatever is decided."""
        self._stopped.release()
        self.ungated_mib, self._found = 0.0, False

    def end(self) -> None:
        """Likewise, and none is looked for any more: the build ends."""
        self._over = True
        self.release()

    def _unexplained_mib(self, reading: MemoryReading, phases_mib: float, open_units: int) -> float:
        """What is gone since the most was free, and held neither by phases nor by what opens them."""
        counted = [each for each in reading.levels if each.kind in COUNTED_BY_KERNEL]
        if not counted:
            return 0.0
        # A phase that ended between the two looks is free and held, and the sum more than there is.
        free_mib = min(min(each.headroom_mib + phases_mib, each.limit_mib) for each in counted)
        self._most_mib = max(self._most_mib, free_mib)
        open_mib = OPEN_UNIT_MIB * open_units
        return self._most_mib - free_mib - open_mib - UNEXPLAINED_SHARE * phases_mib

    def _walk(self, allowed: Allowance, phases_mib: float, at_s: float) -> UngatedSeen:
        tools = {live.tool_pid for live in self._phases.values() if live.tool_pid is not None}
        tools.update(self._apart())
        tree = read_tree(self._root, self._top or 0, page_bytes=self._page_bytes, least_mib=LEAST_MIB, without=tools)
        self.ungated_mib = sum(each.anon_mib for each in tree)
        processes = tuple(
            UngatedProcess(
                pid=each.pid,
                start_ticks=each.start_ticks,
                name=each.name,
                rss_mib=round(each.anon_mib, 1),
                cpu_s=each.cpu_s,
                stopped=each.state == "T",
            )
            for each in tree
            if each.anon_mib > 0 and each.is_leaf and not each.leads_session and may_be_stopped(each.name, each.program)
        )
        if processes:
            self._seen_s = self._clock()
        # Of phases whose processor time cannot be read, it is not known whether they make progress.
        times_s = [live.cpu_s(self._processes) for live in self._phases.values() if live.tool_pid is not None]
        return UngatedSeen(
            at_s=at_s,
            processes=processes,
            headroom_mib=round(allowed.kill_headroom_mib, 1),
            reserve_mib=round(allowed.reserve_mib, 1),
            phases_mib=round(phases_mib, 1),
            phases_cpu_s=round(sum(each for each in times_s if each is not None), 2),
        )

    def let_go(self) -> None:
        """Processes that are no longer paused: ended, or let go on by something else; or they wait for a disk, and will
        stop when that has answered."""
        self._stopped.keep_only(self._scheduler.paused)

    def pause(self, action: Pause, at_s: float) -> PauseRefused | None:
        """Stop the process; what to say where that could not be done."""
        return None if self._stopped.stop(action.process) else PauseRefused(at_s=at_s, process=action.process)

    def go_on(self, action: Continue) -> None:
        """Let the process go on."""
        self._stopped.go_on(action.process)
