"""Phases that gates announced: their state beside the governor's, and their processes.

Covers: one live phase with its pidfd, its memory probe and what the screen shows of it.
Does *not* cover: deciding (``policy``) or talking to gates (``supervise.session``).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable

from builddoctor.intercept.guardian import PidHandle
from builddoctor.model.evidence import KillCause
from builddoctor.model.phase import Estimate, Outcome, Phase, PhaseKind
from builddoctor.policy.actions import Hold
from builddoctor.sensors.process import Processes, RssProbe
from builddoctor.sensors.root import SystemRoot
from builddoctor.supervise.kill_evidence import Baseline
from builddoctor.supervise.resting import Resting

CURVE_STEP_MIB = 16.0
CURVE_STEP_SHARE = 0.05


class LivePhase:
    """One phase from its question to its end."""

    def __init__(self, phase: Phase, *, gate_pid: int, trusted: bool, asked_at_s: float) -> None:
        self.phase = phase
        self.gate_pid = gate_pid
        self.trusted = trusted
        """the kernel confirmed the gate's pid: its tool may be signalled"""
        self.asked_at_s = asked_at_s
        self.argv_digest = ""
        self.cwd = ""
        """where its gate was started"""
        self.admitted_at_s: float | None = None
        self.estimate: Estimate | None = None
        self.granted: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        """True: start (again); False: give up"""
        self.killed_by_us = False
        self.hold: Hold | None = None
        """why it waits, as the governor said it last"""
        self.outcome: Outcome | None = None
        """of its last run"""
        self.before: Baseline | None = None
        """kill counters when it was admitted"""
        self.cause: KillCause | None = None
        """who killed it, when it was not us"""
        self.extra: tuple[str, ...] = ()
        """arguments that its gate adds (``supervise.remedying``)"""
        self.excused = 0
        """times that a kill of it was put down to others, which no gate caught"""
        self.reported_mib = 0.0
        """by the kernel, when it was last looked at"""
        self.rss_mib = 0.0
        self.peak_mib = 0.0
        self.look_again_s = 0.0
        """it rests, and need not be looked at before"""
        self._resting = Resting(phase.phase_id)
        self._has_family = phase.kind is PhaseKind.LINK or phase.tool.startswith("clang")
        """collect2 and clang do their work in children"""
        self._curve_mib = 0.0
        self._handle: PidHandle | None = None
        self._start_ticks: int | None = None
        self._probe: RssProbe | None = None
        self._children: dict[int, RssProbe] = {}

    def tool_started(self, pid: int, root: SystemRoot, processes: Processes, page_bytes: int) -> None:
        """Hold the tool by pidfd, if it really is the gate's child, and watch its memory."""
        self.tool_gone()
        if not self.trusted:
            # A gate in a pid namespace of its own: its numbers are somebody else's here.
            return
        self._handle = _held_child(pid, {self.gate_pid}, processes)
        if self._handle is None:
            return
        self._start_ticks = processes.start_ticks(pid)
        self._probe = RssProbe(root, pid, page_bytes=page_bytes)
        self._resting, self.look_again_s = Resting(self.phase.phase_id), 0.0

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
        self.look_again_s = self._resting.saw(self.rss_mib, now_s, rest_s=rest_s)

    @property
    def tool_pid(self) -> int | None:
        """The tool whose memory is watched."""
        return None if self._probe is None else self._probe.pid

    def take(self, size_mib: float) -> None:
        """Count this much instead of what ``sample`` found (``supervise.rereading``)."""
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

    def curve_moved(self) -> bool:
        """Memory changed enough since the last time for another point of the curve."""
        step_mib = abs(self.rss_mib - self._curve_mib)
        if step_mib < CURVE_STEP_MIB or step_mib < CURVE_STEP_SHARE * self._curve_mib:
            return False
        self._curve_mib = self.rss_mib
        return True

    def kill(self, processes: Processes) -> bool:
        """End the tool and its children; False when it is not ours to signal, or no longer there."""
        if self._handle is None:
            return False
        ticks = processes.start_ticks(self._handle.pid)
        if ticks is None or (self._start_ticks is not None and ticks != self._start_ticks):
            # The tool is gone and its number may be another's by now, and so may be that one's children.
            return False
        self.killed_by_us = True
        family = {self._handle.pid}
        held: list[PidHandle] = []
        for pid in processes.descendants(self._handle.pid):
            if (child := _held_child(pid, family, processes)) is not None:
                family.add(pid)
                held.append(child)
        for child in reversed(held):
            child.kill()
            child.close()
        self._handle.kill()
        return True

    def again(self) -> None:
        """Wait for another admission."""
        self.granted = asyncio.get_running_loop().create_future()
        self.admitted_at_s = None
        self.hold = None
        self.killed_by_us = False
        self.cause = None
        # What a run took that had to be ended is not what the phase needs.
        self.peak_mib = 0.0

    def tool_gone(self) -> None:
        """Let go of the tool's process."""
        for closable in (self._handle, self._probe, *self._children.values()):
            if closable is not None:
                closable.close()
        self._handle = self._probe = self._start_ticks = None
        self._children = {}
        self.rss_mib = self.reported_mib = 0.0
        self._curve_mib = 0.0


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


def only_holding(lives: Iterable[LivePhase], least_mib: float) -> LivePhase | None:
    """The phase that alone holds as much; None where there is none, or several. The governor chooses among several, and
    ends none that has hardly begun: it frees nothing."""
    holding = [live for live in lives if live.admitted_at_s is not None and live.rss_mib >= least_mib]
    return holding[0] if len(holding) == 1 else None


def was_killed(status: int) -> bool:
    """The wait status says SIGKILL."""
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == 9


def describe(phase: Phase) -> str:
    """``cicc sm_90 of src/gelu.cu``."""
    arch = f" {phase.arch}" if phase.arch else ""
    return f"{phase.kind.value}{arch} of {phase.source}" if phase.source else f"{phase.kind.value}{arch}"
