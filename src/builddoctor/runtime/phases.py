"""Live phases: the processes of phases that gates announced, and when each is worth a look.

Covers: one live phase with its pidfd and its memory probe; ending it; the sampling backoff of phases that hold still.
Does *not* cover: deciding (``scheduler``), talking to gates (``runtime.session``), or what the build adds up to
(``trace.state``).

A look at one process costs 3 us where it was not in the processor's caches; with hundreds of phases that is most of
what sampling costs, and most of them hold still for most of their time. So a phase that rests is looked at less often
than one that moves, as long as memory is not short and samples follow each other quickly.
"""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING

from builddoctor.core.evidence import KillCause
from builddoctor.core.phase import Outcome, Phase, PhaseKind
from builddoctor.gates.guardian import PidHandle
from builddoctor.runtime.kill_evidence import Baseline
from builddoctor.runtime.sent_phases import Load
from builddoctor.system.process import Processes, RssProbe
from builddoctor.system.root import SystemRoot

if TYPE_CHECKING:
    # With it comes zstandard, which builds without a store need not have.
    from builddoctor.runtime.stored_phases import Sought

STILL_MIB_S = 2.5
"""A phase that moves by no more than this holds still."""

STILL_FOR_S = 0.5
"""And rests, when that has been so for this long."""

LONG_S = 5.0
"""One that has held still for this long is looked at half as often. While memory is not short, all that depends on it
is how finely its curve is drawn where it moves again."""

EARLY = 0.9
"""Samples come a little early or late: this share of the resting time is enough."""

PLACES = 8
"""Phases that begin to rest together, as at the start of a build, are spread over so many samples."""


class LivePhase:
    """One phase from its question to its end."""

    def __init__(self, phase: Phase, *, gate_pid: int, trusted: bool, cwd: str = "") -> None:
        self.phase = phase
        self.gate_pid = gate_pid
        self.trusted = trusted
        """the kernel confirmed the gate's pid: its tool may be signalled"""
        self.cwd = cwd
        """where its gate was started"""
        self.admitted_at_s: float | None = None
        self.node = ""
        """the other machine that it was sent to, when it was admitted last; ``STORE``; or empty for this one"""
        self.load: Load | None = None
        """what is sent of it, or looked for in the store, once its source is preprocessed"""
        self.warned = b""
        """what its preprocessing said, which a compile of the preprocessed source will not say again"""
        self.to_remove = ""
        """its preprocessed source, which nobody else wants"""
        self.sought: Sought | None = None
        """what the store says of it"""
        self.granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """it may start (again)"""
        self.stood_s = 0.0
        """how long it stood still since it was admitted; so long it did not work"""
        self.killed_by_us = False
        self.outcome: Outcome | None = None
        """of its last run"""
        self.before: Baseline | None = None
        """kill counters when it was admitted"""
        self.cause: KillCause | None = None
        """what killed it, when it was not us"""
        self.given_up = False
        self.thrift = False
        """its gate tells the compiler to collect garbage earlier"""
        self.gives_way = False
        """its gate runs it at a lower priority"""
        self.reported_mib = 0.0
        """by the kernel, when it was last looked at"""
        self.rss_mib = 0.0
        self.peak_mib = 0.0
        self.look_again_s = 0.0
        """it rests, and need not be looked at before"""
        self._backoff = SamplingBackoff(phase.phase_id)
        self._has_family = phase.kind is PhaseKind.LINK or phase.tool.startswith("clang")
        """collect2 and clang do their work in children"""
        self._handle: PidHandle | None = None
        self._start_ticks: int | None = None
        self._probe: RssProbe | None = None
        self._children: dict[int, RssProbe] = {}
        self._suspended: tuple[float, list[PidHandle]] | None = None
        """since when, and what of it was stopped"""

    def tool_started(self, pid: int, root: SystemRoot, processes: Processes, page_bytes: int) -> None:
        """Hold the tool by pidfd, if it really is the gate's child, and watch its memory."""
        self.tool_gone()
        if not self.trusted:
            # A gate in a pid namespace of its own: its pids mean other processes here.
            return
        self._handle = _held_child(pid, {self.gate_pid}, processes)
        if self._handle is None:
            return
        self._start_ticks = processes.start_ticks(pid)
        self._probe = RssProbe(root, pid, page_bytes=page_bytes)
        self._backoff, self.look_again_s = SamplingBackoff(self.phase.phase_id), 0.0

    def sample(self, root: SystemRoot, processes: Processes, page_bytes: int) -> float:
        """Memory of the tool, and of its children where it has any (collect2, clang)."""
        if self._probe is None:
            return 0.0
        total_mib = self._probe.anon_mib()
        if self._has_family:
            for pid in processes.descendants(self._probe.pid):
                if pid not in self._children:
                    self._children[pid] = RssProbe(root, pid, page_bytes=page_bytes)
            total_mib += sum(probe.anon_mib() for probe in self._children.values())
        self.rss_mib = self.reported_mib = total_mib
        if total_mib > self.peak_mib:
            self.peak_mib = total_mib
        return total_mib

    def looked(self, now_s: float, *, rest_s: float) -> None:
        """It has been looked at just now; if it rests, it is left alone for ``rest_s``."""
        self.look_again_s = self._backoff.saw(self.rss_mib, now_s, rest_s=rest_s)

    @property
    def tool_pid(self) -> int | None:
        """The tool whose memory is watched."""
        return None if self._probe is None else self._probe.pid

    def take(self, size_mib: float) -> None:
        """Count this much instead of what ``sample`` found (``runtime.rss_recheck``)."""
        self.rss_mib = size_mib
        self.peak_mib = max(self.peak_mib, size_mib)

    def cpu_s(self, processes: Processes) -> float | None:
        """Processor time that the tool and its children had or waited for so far; None when not watched, or gone.

        On a machine that is full, a compiler in an endless loop has half a core; that it always wants one tells it.
        """
        times_s = [(processes.cpu_s(pid), processes.run_delay_s(pid)) for pid in self._watched()]
        if not times_s or times_s[0][0] is None:
            return None
        return sum(had_s + waited_s for had_s, waited_s in times_s if had_s is not None)

    def anon_by_rollup_mib(self, processes: Processes) -> float | None:
        """Memory of the tool and its children by their page tables: dear. None when it is not watched, or gone."""
        sizes_mib = [processes.anon_by_rollup_mib(pid) for pid in self._watched()]
        return None if not sizes_mib or sizes_mib[0] is None else sum(each for each in sizes_mib if each is not None)

    def _watched(self) -> list[int]:
        return [] if self._probe is None else [self._probe.pid, *self._children]

    def kill(self, processes: Processes) -> bool:
        """End the tool and its children; False when it is not ours to signal, or no longer there."""
        if self._handle is None or not self._is_there(processes):
            return False
        self.killed_by_us = True
        for child in reversed(self._held_children(processes)):
            child.kill()
            child.close()
        self._handle.kill()
        return True

    def suspend(self, processes: Processes, now_s: float) -> bool:
        """Stop the tool, then its children; False when it is not ours to signal, or no longer there."""
        if self._suspended is not None or not self._is_there(processes):
            return False
        assert self._handle is not None, "it is there"
        if not self._handle.send(signal.SIGSTOP):
            return False
        children = self._held_children(processes)
        for child in children:
            child.send(signal.SIGSTOP)
        self._suspended = now_s, children
        return True

    def resume(self, now_s: float) -> None:
        """Let it go on; nothing where it was not suspended, or has ended."""
        if self._suspended is not None:
            self.stood_s += now_s - self._suspended[0]
        self._go_on()

    def _go_on(self) -> None:
        """Children first: the tool may wait for them."""
        if self._suspended is None:
            return
        for child in self._suspended[1]:
            child.send(signal.SIGCONT)
            child.close()
        if self._handle is not None:
            self._handle.send(signal.SIGCONT)
        self._suspended = None

    def _is_there(self, processes: Processes) -> bool:
        """The tool, and not another process that got its number: that one's children are not ours."""
        if self._handle is None:
            return False
        ticks = processes.start_ticks(self._handle.pid)
        return ticks is not None and (self._start_ticks is None or ticks == self._start_ticks)

    def _held_children(self, processes: Processes) -> list[PidHandle]:
        """All below the tool, parents first."""
        assert self._handle is not None, "it is there"
        family = {self._handle.pid}
        held: list[PidHandle] = []
        for pid in processes.descendants(self._handle.pid):
            if (child := _held_child(pid, family, processes)) is not None:
                family.add(pid)
                held.append(child)
        return held

    def again(self) -> None:
        """Wait for another admission."""
        self.granted = asyncio.get_running_loop().create_future()
        self.admitted_at_s = None
        self.stood_s = 0.0
        self.killed_by_us = False
        self.cause = None
        # What a run took that had to be ended is not what the phase needs.
        self.peak_mib = 0.0

    def tool_gone(self) -> None:
        """Let go of the tool's process."""
        self._go_on()
        for closable in (self._handle, self._probe, *self._children.values()):
            if closable is not None:
                closable.close()
        self._handle = self._probe = self._start_ticks = None
        self._children = {}
        self.rss_mib = self.reported_mib = 0.0


def _held_child(pid: int, parents: set[int], processes: Processes) -> PidHandle | None:
    """A child of one of ``parents``, held; None when it is not there, or not theirs.

    Held first and looked at afterwards: what has the number then is either what is held, or came after its death.
    """
    try:
        handle = PidHandle(pid, by_number=True)
    except OSError:
        return None
    if processes.parent(pid) in parents:
        return handle
    handle.close()
    return None


def was_killed(status: int) -> bool:
    """The wait status says SIGKILL."""
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == 9


class LivePhases(dict[int, LivePhase]):
    """By phase id: all that asked and have not ended."""

    @property
    def running(self) -> list[LivePhase]:
        return [live for live in self.values() if live.admitted_at_s is not None]

    @property
    def held_mib(self) -> float:
        # Hundreds, twenty times a second: a list costs half of a loop.
        return sum([live.rss_mib for live in self.values()])


class SamplingBackoff:
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
