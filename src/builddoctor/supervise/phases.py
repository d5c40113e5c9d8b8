"""Phases that gates announced: their state beside the governor's, and their processes.

Covers: one live phase with its pidfd, its memory probe and what the screen shows of it.
Does *not* cover: deciding (``policy``) or talking to gates (``supervise.session``).
"""

from __future__ import annotations

import asyncio
import os

from builddoctor.intercept.guardian import PidHandle
from builddoctor.model.phase import Estimate, Outcome, Phase, PhaseKind
from builddoctor.sensors.process import Processes, RssProbe
from builddoctor.sensors.root import SystemRoot

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
        self.admitted_at_s: float | None = None
        self.estimate: Estimate | None = None
        self.granted: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        """True: start (again); False: give up"""
        self.killed_by_us = False
        self.outcome: Outcome | None = None
        """of its last run"""
        self.rss_mib = 0.0
        self.peak_mib = 0.0
        self._curve_mib = 0.0
        self._handle: PidHandle | None = None
        self._probe: RssProbe | None = None
        self._children: dict[int, RssProbe] = {}

    def tool_started(self, pid: int, root: SystemRoot, processes: Processes, page_bytes: int) -> None:
        """Hold the tool by pidfd, if it really is the gate's child, and watch its memory."""
        self.tool_gone()
        if not self.trusted or processes.parent(pid) != self.gate_pid:
            # A gate in a pid namespace of its own: its numbers are somebody else's here.
            return
        try:
            self._handle = PidHandle(pid)
        except OSError:
            return
        self._probe = RssProbe(root, pid, page_bytes=page_bytes)

    def sample(self, root: SystemRoot, processes: Processes, page_bytes: int) -> float:
        """Memory of the tool, and of its children where it has any (collect2, clang)."""
        if self._probe is None:
            return 0.0
        total_mib = self._probe.anon_mib()
        if self.phase.kind is PhaseKind.LINK or self.phase.tool.startswith("clang"):
            for pid in processes.descendants(self._probe.pid):
                if pid not in self._children:
                    self._children[pid] = RssProbe(root, pid, page_bytes=page_bytes)
            total_mib += sum(probe.anon_mib() for probe in self._children.values())
        self.rss_mib = total_mib
        self.peak_mib = max(self.peak_mib, total_mib)
        return total_mib

    def curve_moved(self) -> bool:
        """Memory changed enough since the last time for another point of the curve."""
        if abs(self.rss_mib - self._curve_mib) < max(CURVE_STEP_MIB, CURVE_STEP_SHARE * self._curve_mib):
            return False
        self._curve_mib = self.rss_mib
        return True

    def kill(self, processes: Processes) -> bool:
        """End the tool and its children; False when it is not ours to signal."""
        if self._handle is None:
            return False
        self.killed_by_us = True
        for pid in reversed(processes.descendants(self._handle.pid)):
            try:
                child = PidHandle(pid)
            except OSError:
                continue
            child.kill()
            child.close()
        self._handle.kill()
        return True

    def again(self) -> None:
        """Wait for another admission."""
        self.granted = asyncio.get_running_loop().create_future()
        self.admitted_at_s = None
        self.killed_by_us = False

    def tool_gone(self) -> None:
        """Let go of the tool's process."""
        for closable in (self._handle, self._probe, *self._children.values()):
            if closable is not None:
                closable.close()
        self._handle = self._probe = None
        self._children = {}
        self.rss_mib = 0.0
        self._curve_mib = 0.0


def was_killed(status: int) -> bool:
    """The wait status says SIGKILL."""
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == 9
