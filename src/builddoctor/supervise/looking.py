"""Looks around when something goes wrong, and once at the start; the trace keeps what was seen.

Covers: when, how often, and which folders. A build that goes well pays for the look at its start.
Does *not* cover: looking (``sensors.surroundings``), or what follows from it (``diagnose``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from builddoctor.model.phase import Outcome, Unit
from builddoctor.model.surroundings import Scene
from builddoctor.sensors.root import Clock
from builddoctor.sensors.surroundings import Surveyor
from builddoctor.supervise.kill_evidence import KillEvidence
from builddoctor.supervise.phases import LivePhase
from builddoctor.trace.records import Seen
from builddoctor.trace.writer import TraceWriter

LAST_FOLDERS = 4
"""that objects went to last, looked at when the build has failed: what failed may be no phase (``as``, ``ld``)"""

MOST_LOOKS = 20
"""at phases: of a build that goes on after errors the first ones count"""

SLOW_S = 0.25
"""Two looks in a row that took so long are the last at phases: something here answers slowly (a file server), and
gates wait. One may be a machine that stood still."""


class Looking:
    """All looks of one build."""

    def __init__(
        self,
        surveyor: Surveyor,
        trace: TraceWriter,
        evidence: KillEvidence,
        *,
        units: Mapping[str, Unit],
        cwd: str,
        clock: Clock,
        at_s: Callable[[], float],
    ) -> None:
        self._surveyor = surveyor
        self._trace = trace
        self._evidence = evidence
        self._units = units
        self._cwd = cwd
        self._clock = clock
        self._at_s = at_s
        self._left = MOST_LOOKS
        self._was_slow = False
        self._written: dict[str, None] = {}

    def begin(self) -> None:
        """Before anything runs."""
        self._keep(self._look_at_build(), when="start")

    def phase_ended(self, live: LivePhase, tool_pid: int | None, ours_mib: float) -> None:
        """A phase is over; its gate still waits for what we say. ``ours_mib``: what all phases held, it among them."""
        unit = self._units.get(live.phase.unit_id)
        objects = self._objects(live, unit)
        if live.outcome in (None, Outcome.OK) or (unit is not None and not unit.counted) or self._left <= 0:
            # What configure steps try out may fail, and does so by the dozen.
            return
        began_s = self._clock()
        before = live.before or self._evidence.start
        scene = self._surveyor.look(
            place=before.place,
            before=before.evidence,
            pid=live.gate_pid if live.trusted else None,
            folders=[("objects", objects), ("trace", self._traces)],
            names=(os.path.basename(live.phase.tool),),
            pids=() if tool_pid is None else (tool_pid,),
            ours_mib=ours_mib,
        )
        slow = self._clock() - began_s >= SLOW_S
        self._left = 0 if slow and self._was_slow else self._left - 1
        self._was_slow = slow
        self._keep(scene, when="phase", phase_id=live.phase.phase_id)

    def end(self, *, failed: bool, named: Sequence[str] = ()) -> None:
        """The build is over. ``named``: folders that were named where something could not be written."""
        if failed:
            self._keep(self._look_at_build(*named), when="end")
        self._surveyor.close()

    def _look_at_build(self, *named: str) -> Scene:
        before = self._evidence.start
        written = [each for each in self._written if each != self._cwd]
        folders = [("folder", each) for each in named] + [("objects", each) for each in (*written, self._cwd)]
        return self._surveyor.look(
            place=before.place, before=before.evidence, folders=[*folders, ("trace", self._traces)]
        )

    @property
    def _traces(self) -> str:
        return str(self._trace.path.absolute().parent)

    def _objects(self, live: LivePhase, unit: Unit | None) -> str:
        """The folder that its unit's object goes to, kept as one of the last."""
        folder = os.path.dirname(unit.output) if unit is not None else ""
        folder = os.path.normpath(os.path.join(live.cwd, folder))
        if not os.path.isabs(folder):
            return self._cwd
        if unit is not None and unit.output and unit.counted:
            self._written.pop(folder, None)
            self._written[folder] = None
            while len(self._written) > LAST_FOLDERS:
                del self._written[next(iter(self._written))]
        return folder

    def _keep(self, scene: Scene, *, when: str, phase_id: int | None = None) -> None:
        self._trace.write(Seen(at_s=self._at_s(), phase_id=phase_id, when=when, scene=scene))
