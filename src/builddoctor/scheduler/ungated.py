"""Pauses of ungated processes: which are stopped for a while when memory runs short, and when they go on. Pure.

Such a process cannot be held back before it starts, nor be run again: stopping it (SIGSTOP) loses no work. It keeps the
memory that it holds, so it has to happen early: while what is free is still as much as those that grow hold already,
each of which may yet double.

Rules: the youngest that grows is stopped first, and the oldest that makes progress only while phases with gates make
progress too, so something always runs; when nothing makes progress, the oldest that is stopped goes on at once. Else
one goes on, oldest first, when there is room for it and half as much again, after a few seconds at least, and in any
case after some minutes.
Does *not* cover: finding processes (``system.process``), or sending signals.
"""

from __future__ import annotations

from collections.abc import Sequence

from builddoctor.core.events import Continue, ContinueReason, Pause, UngatedProcess, UngatedSeen

LEAST_MIB = 64.0
"""A process that holds less is not looked at."""

CALM_S = 3.0
"""A process whose memory has not risen for this long has stopped growing."""

STEP_MIB = 4.0
STEP_SHARE = 0.02
"""What counts as rising."""

IDLE_S = 5.0
"""A process that took no processor time and no memory for this long makes no progress: it waits for another, or it is
a server."""

LEAST_STOPPED_S = 3.0
GAP_S = 1.0
"""Between one that goes on and the next: what the first takes must show."""

ROOM = 1.5
"""Room for one that goes on, by what it holds. More than what made it stop: else it would stop again at once."""

LEAST_RUN_S = 3.0
"""One that goes on is left to run for this long, unless memory is very short."""

MOST_STOPPED_S = 300.0
"""Timeouts around it go on counting while a process is stopped."""

_TOOLS = """
sh bash dash ash zsh ksh mksh fish tcsh csh busybox env nice nohup time timeout xargs parallel setsid
make gmake ninja samu cmake ctest cpack cargo go bazel scons meson waf node java perl perl5 ruby tclsh
git ssh sudo su docker podman rsync curl wget ccache sccache distcc distccd icecc tmux screen
"""
_PIPED = "as cat tee sed awk gawk mawk grep head tail tar gzip xz zstd c++filt"
"""They read what another writes into a pipe: stopped, they would hold that one up."""

_NEARLY_DONE = "fatbinary bin2c"
"""nvcc runs them for a second at a unit's end. Two of some 80 MiB that were stopped held that, and their units, for 20
and 15 s (mamba-ssm in 2200 MiB)."""

_NEVER = frozenset((*_TOOLS.split(), *_PIPED.split(), *_NEARLY_DONE.split()))


def may_be_stopped(name: str, program: str = "") -> bool:
    """Not a shell, a build tool, a server, what stands at the end of a pipe, or what is about to end.

    ``program``: the file that it runs. Those that serve a model are Python, whatever they call themselves
    (``VLLM::Worker_TP0``, ``sglang::scheduler``, ``pt_main_thread``), and a server that is stopped is a server that
    is down.
    """
    return name not in _NEVER and not any(each.startswith(("python", "pypy")) for each in (name, program))


class UngatedPauses:
    """One build's pauses. A decision counts as done: say ``refused`` when a signal could not be sent."""

    def __init__(self) -> None:
        self._tracks: dict[tuple[int, int], _Track] = {}
        self._continued_s = float("-inf")
        self._phases = (0.0, float("-inf"))
        self.working = False
        """one of them makes progress, or will when it goes on: the build gets on without a phase with a gate"""
        self.need_mib = 0.0
        """what they may still take, and what the first in line needs to go on: not to be given to others"""

    @property
    def paused(self) -> frozenset[tuple[int, int]]:
        """Keys of those that are stopped by us."""
        return frozenset(key for key, track in self._tracks.items() if track.stopped_s is not None)

    def look(self, seen: UngatedSeen, *, free_mib: float) -> list[Pause | Continue]:
        """After each look at all of them. ``free_mib``: what is free beyond a reserve and what phases were promised."""
        now_s, phases_cpu_s = seen.at_s, seen.phases_cpu_s
        ordered = sorted(seen.processes, key=lambda each: each.key)
        self._follow(ordered, now_s)
        if phases_cpu_s != self._phases[0]:
            self._phases = (phases_cpu_s, now_s)
        phases_move = phases_cpu_s > 0 and now_s - self._phases[1] <= IDLE_S
        ours = [each for each in ordered if each.key in self._tracks]
        running = [each for each in ours if self._track(each).stopped_s is None]
        paused = [each for each in ours if self._track(each).stopped_s is not None]
        actions: list[Pause | Continue] = []
        last = next((each for each in running if self._track(each).moves(now_s)), None)
        if paused and last is None and not phases_move:
            last = paused.pop(0)
            running.append(last)
            actions.append(self._continue(last, ContinueReason.NOTHING_MOVES, now_s))
        elif paused and now_s - self._since_s(longest := min(paused, key=self._since_s)) >= MOST_STOPPED_S:
            last = longest
            paused.remove(last)
            running.append(last)
            actions.append(self._continue(last, ContinueReason.LONG_ENOUGH, now_s))
        growing = [each for each in sorted(running, key=lambda each: each.key) if self._track(each).grows(now_s)]
        need_mib = sum(each.rss_mib for each in growing)
        while need_mib > free_mib:
            urgent = need_mib / 2 > free_mib
            victim = self._victim(growing, urgent, now_s, spared=None if urgent and phases_move else last)
            if victim is None:
                break
            growing.remove(victim)
            need_mib -= victim.rss_mib
            self._track(victim).stopped_s = now_s
            actions.append(Pause(at_s=now_s, process=victim, free_mib=round(max(0.0, free_mib), 1)))
        if not actions and paused and now_s - self._continued_s >= GAP_S:
            first = paused[0]
            if now_s - self._since_s(first) >= LEAST_STOPPED_S and need_mib + ROOM * first.rss_mib <= free_mib:
                need_mib += first.rss_mib
                actions.append(self._continue(first, ContinueReason.MEMORY_BACK, now_s))
        self.working = last is not None or bool(self.paused)
        first_mib = next((each.rss_mib for each in ordered if each.key in self.paused), 0.0)
        self.need_mib = need_mib + ROOM * first_mib
        return actions

    def _victim(
        self, growing: Sequence[UngatedProcess], urgent: bool, now_s: float, *, spared: UngatedProcess | None
    ) -> UngatedProcess | None:
        """The youngest that may be stopped. One that goes on just now is left to."""
        for each in reversed(growing):
            track = self._track(each)
            if each is not spared and track.continued_s != now_s and track.may_stop(now_s, urgent):
                return each
        return None

    def refused(self, process: UngatedProcess) -> None:
        """It could not be stopped: it is not tried again."""
        track = self._tracks.get(process.key)
        if track is not None:
            track.stopped_s, track.refused = None, True

    def end(self, reason: ContinueReason, now_s: float) -> list[Continue]:
        """None stays stopped: those that are go on, and nothing is known of any."""
        stopped = [track.process for track in self._tracks.values() if track.stopped_s is not None]
        continued = [self._continue(each, reason, now_s) for each in stopped]
        self.forget_all()
        return continued

    def forget_all(self) -> None:
        """Nothing is known of any; none is stopped."""
        self._tracks = {}
        self.working = False
        self.need_mib = 0.0

    def _follow(self, ordered: Sequence[UngatedProcess], now_s: float) -> None:
        """Take the figures of those that are there, and forget the others."""
        tracks: dict[tuple[int, int], _Track] = {}
        for each in ordered:
            track = self._tracks.get(each.key)
            if track is not None and track.stopped_s is not None:
                if not each.stopped and now_s - track.stopped_s >= GAP_S:
                    # Something else let it go on.
                    track.goes_on(now_s)
            elif each.stopped:
                # Stopped by something else, for reasons of its own.
                continue
            tracks[each.key] = track = track or _Track(each, now_s)
            track.take(each, now_s)
        self._tracks = tracks

    def _track(self, process: UngatedProcess) -> _Track:
        return self._tracks[process.key]

    def _since_s(self, process: UngatedProcess) -> float:
        since_s = self._track(process).stopped_s
        return float("inf") if since_s is None else since_s

    def _continue(self, process: UngatedProcess, reason: ContinueReason, now_s: float) -> Continue:
        stopped_s = now_s - self._since_s(process)
        self._track(process).goes_on(now_s)
        self._continued_s = now_s
        return Continue(at_s=now_s, process=process, stopped_s=round(stopped_s, 3), reason=reason)


class _Track:
    """What was seen of one process so far."""

    __slots__ = ("continued_s", "cpu_s", "mark_mib", "moved_s", "process", "refused", "rose_s", "stopped_s")

    def __init__(self, process: UngatedProcess, now_s: float) -> None:
        self.process = process
        self.mark_mib = process.rss_mib
        self.cpu_s = process.cpu_s
        self.rose_s = self.moved_s = now_s
        self.stopped_s: float | None = None
        self.continued_s = float("-inf")
        self.refused = False

    def take(self, process: UngatedProcess, now_s: float) -> None:
        self.process = process
        if process.cpu_s != self.cpu_s:
            self.cpu_s, self.moved_s = process.cpu_s, now_s
        if process.rss_mib >= self.mark_mib + max(STEP_MIB, STEP_SHARE * self.mark_mib):
            self.mark_mib = process.rss_mib
            self.rose_s = self.moved_s = now_s
        self.mark_mib = min(self.mark_mib, process.rss_mib)

    def goes_on(self, now_s: float) -> None:
        self.stopped_s = None
        self.continued_s = self.rose_s = self.moved_s = now_s

    def grows(self, now_s: float) -> bool:
        return now_s - self.rose_s <= CALM_S

    def moves(self, now_s: float) -> bool:
        return now_s - self.moved_s <= IDLE_S

    def may_stop(self, now_s: float, urgent: bool) -> bool:
        return not self.refused and (urgent or now_s - self.continued_s >= LEAST_RUN_S)
