"""What is kept of a failure: how it looked around it, and what one phase needs to be run again.

Covers: snapshots, which are taken when something went wrong and once at the start: when, how often, which folders; each
unit's command, and copies of the inputs of phases that are worth it (given up, or crashed by themselves): which, their
bounds, the folder beside the trace. Inputs are copied while the phase's gate still holds its compiler driver: nvcc
deletes its temporary files when it ends.
Does *not* cover: looking (``system.scene_reader``), copying (``gates.phase_replay``), what follows (``diagnose``), or
making a folder to send away (``repro.folder``).

A build that goes well pays for the look at its start. Whatever goes wrong with a copy is a line in the trace, and never
changes how the build ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

from builddoctor.core.events import Event, InputsKept, KeptFile, Note, SceneMoment, SceneSeen, UnitCommand
from builddoctor.core.evidence import Scene
from builddoctor.core.phase import Outcome, Unit, describe
from builddoctor.core.units import MIB, format_mib
from builddoctor.gates.phase_replay import Copies, PhaseCall, TooLargeError, copy_inputs
from builddoctor.runtime.kill_evidence import KillEvidence
from builddoctor.runtime.phases import LivePhase
from builddoctor.system.probes import Deadline
from builddoctor.system.root import Clock, SystemRoot
from builddoctor.system.scene_reader import SceneReader
from builddoctor.trace.commands import Command, CommandWriter
from builddoctor.trace.masking import mask_argv

LAST_FOLDERS = 4
"""that objects went to last, looked at when the build has failed: what failed may be no phase (``as``, ``ld``)"""

MOST_LOOKS = 20
"""at phases: of a build that goes on after errors the first ones count"""

SLOW_S = 0.25
"""Two looks in a row that took so long are the last at phases: something here answers slowly (a file server), and
gates wait. One may be a machine that stood still."""

MOST_PHASES = 3
MOST_MIB = 64.0
"""Phases of one build whose inputs are kept, and the size of all those, packed."""

SPARE_MIB = 256.0
"""Left free on the disk."""

FREE_SHARE = 0.6
"""Of what is free, the address space that a preprocessor may have: the phase before it needed more."""

MOST_S = 90.0
"""Copying may take no longer."""

_CRASHES = frozenset((signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGSYS))
_CRASH_CODES = {"cc1": 4, "cc1plus": 4, "cudafe++": 4}
"""gcc catches its own crash ("internal compiler error"); EDG calls it a catastrophic error."""


class FailureSnapshots:
    """All looks of one build. ``traces``: the folder that its trace lies in."""

    def __init__(self, surveyor: SceneReader, evidence: KillEvidence, *, traces: str, cwd: str, clock: Clock) -> None:
        self._surveyor = surveyor
        self._evidence = evidence
        self._traces = traces
        self._cwd = cwd
        self._clock = clock
        self._left = MOST_LOOKS
        self._was_slow = False
        self._written: dict[str, None] = {}

    def begin(self) -> SceneSeen:
        """Before anything runs."""
        return SceneSeen(when=SceneMoment.START, scene=self._look_at_build())

    def phase_ended(
        self, live: LivePhase, unit: Unit | None, *, tool_pid: int | None, ours_mib: float, at_s: float
    ) -> SceneSeen | None:
        """A phase is over, and its gate still waits for our answer; None where nothing went wrong, or enough was seen.

        ``ours_mib``: what all phases held, this one among them.
        """
        objects = self._objects(live, unit)
        if live.outcome in (None, Outcome.OK) or (unit is not None and not unit.counted) or self._left <= 0:
            # What configure steps try out may fail, and does so by the dozen.
            return None
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
        return SceneSeen(at_s=at_s, when=SceneMoment.PHASE, phase_id=live.phase.phase_id, scene=scene)

    def end(self, *, failed: bool, named: Sequence[str], at_s: float) -> SceneSeen | None:
        """The build is over. ``named``: folders that were named where something could not be written."""
        seen = SceneSeen(at_s=at_s, when=SceneMoment.END, scene=self._look_at_build(*named)) if failed else None
        self._surveyor.close()
        return seen

    def _look_at_build(self, *named: str) -> Scene:
        before = self._evidence.start
        written = [each for each in self._written if each != self._cwd]
        folders = [("folder", each) for each in named] + [("objects", each) for each in (*written, self._cwd)]
        return self._surveyor.look(
            place=before.place, before=before.evidence, folders=[*folders, ("trace", self._traces)]
        )

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


def repro_folder(trace: Path) -> Path:
    """Where a trace's kept inputs lie: beside it."""
    return trace.with_name(trace.name.removesuffix(".jsonl") + ".repro")


class InputCapture:
    """One build's. All methods are called in the event loop."""

    def __init__(
        self,
        root: SystemRoot,
        *,
        trace: Path,
        free_mib: Callable[[], float],
        versions: Callable[[], list[str]] = list,
    ) -> None:
        self._root = root
        self._trace = trace
        self._free_mib = free_mib
        self._versions = versions
        self._commands = CommandWriter()
        self._deadline: Deadline | None = None
        self._phases_left = MOST_PHASES
        self._bytes_left = int(MOST_MIB * MIB)

    def unit_called(self, unit: Unit, argv: Sequence[str], cwd: str, *, at_s: float) -> UnitCommand | None:
        """A unit's driver begins. What a configure step tries out, and questions, are passed over."""
        if not unit.counted:
            return None
        # Where no gate named it, argv is the process's own, with its program first.
        at_gate = unit.unit_id.startswith("u")
        tool, rest = ("nvcc", argv) if at_gate else (argv[0], argv[1:])
        command = Command(tool=tool, cwd=cwd, argv=tuple(mask_argv(rest)))
        return self._commands.record(at_s, unit.unit_id, command)

    async def keep(self, live: LivePhase, status: int, *, given_up: bool) -> list[Event]:
        """A phase has ended for good, and its gate waits for our answer: copy its inputs, if it is worth it. Gives what
        is to be said of that, without its time."""
        if not live.trusted or not self._phases_left or not (given_up or crashed(live, status)):
            return []
        self._phases_left -= 1
        try:
            call = call_of(live.gate_pid, self._root)
            if call is None:
                return []
            self._deadline = Deadline(MOST_S)
            memory_mib = FREE_SHARE * self._free_mib()
            work = asyncio.to_thread(self._copy, call, live.phase.phase_id, self._deadline, memory_mib)
            copies = await asyncio.wait_for(work, MOST_S)
        except Exception as error:  # noqa: BLE001 - whatever it is, the build goes on
            why = getattr(error, "strerror", None) or str(error) or "it took too long"
            return [Note(text=f"could not keep the input of {describe(live.phase)}: {why}")]
        self._bytes_left -= copies.written_bytes
        kept: list[Event] = [self._kept(live.phase.phase_id, call, copies)]
        if copies.files:
            packed = format_mib(max(1.0, copies.written_bytes / MIB))
            kept.append(
                Note(text=f"keeps the input of {describe(live.phase)} ({packed}), for `builddoctor trace repro`")
            )
        return kept

    def close(self) -> None:
        """The build has ended: what is still being copied need not be."""
        if self._deadline is not None:
            self._deadline.end()

    def _copy(self, call: PhaseCall, phase_id: int, deadline: Deadline, memory_mib: float) -> Copies:
        """In a thread."""
        if not self._trace.is_file():
            raise TooLargeError("the trace is no file that it could lie beside")
        disk = os.statvfs(self._trace.parent)
        room_bytes = min(self._bytes_left, disk.f_bavail * disk.f_frsize - int(SPARE_MIB * MIB))
        if room_bytes <= 0:
            raise TooLargeError("no room for it on the disk, or in what is kept of one build")
        folder = self._folder(phase_id)
        whole = False
        try:
            copies = copy_inputs(
                call, folder, packed=True, most_bytes=room_bytes, deadline=deadline, memory_mib=memory_mib
            )
            whole = bool(copies.files)
            return copies
        finally:
            if not whole:
                shutil.rmtree(folder, ignore_errors=True)
                with contextlib.suppress(OSError):
                    # Only where it is empty.
                    folder.parent.rmdir()

    def _folder(self, phase_id: int) -> Path:
        """The phase's folder, new: 0700, and of this user. What an earlier build left under its name is removed."""
        above = repro_folder(self._trace)
        above.mkdir(mode=0o700, exist_ok=True)
        if above.is_symlink() or above.stat().st_uid != os.geteuid():
            raise OSError(0, f"{above} belongs to another user")
        above.chmod(0o700)
        if self._phases_left == MOST_PHASES - 1:
            for old in above.iterdir():
                if old.name.isdigit() and old.is_dir() and not old.is_symlink():
                    shutil.rmtree(old, ignore_errors=True)
        folder = above / str(phase_id)
        folder.mkdir(mode=0o700)
        return folder

    def _kept(self, phase_id: int, call: PhaseCall, copies: Copies) -> InputsKept:
        return InputsKept(
            phase_id=phase_id,
            tool=call.tool,
            argv=mask_argv(call.argv),
            cwd=call.cwd,
            files=[KeptFile(name=file.name, path=file.path, size_bytes=file.size_bytes) for file in copies.files],
            preprocessed=copies.preprocessed,
            versions=self._versions(),
            note=copies.note,
        )


def crashed(live: LivePhase, status: int) -> bool:
    """It ended by a signal of its own making, or said that it crashed."""
    if live.outcome is not Outcome.FAILED:
        return False
    if os.WIFSIGNALED(status):
        return os.WTERMSIG(status) in _CRASHES
    return os.WIFEXITED(status) and os.WEXITSTATUS(status) == _CRASH_CODES.get(live.phase.tool)


def call_of(gate_pid: int, root: SystemRoot) -> PhaseCall | None:
    """The program that a waiting gate stands for, from the gate's own process; None when it is gone, or no gate.

    Read there and not kept from when it asked: a thousand gates may wait, each with its command line.
    """
    words = (root.path_text(f"/proc/{gate_pid}/cmdline") or "").removesuffix("\0").split("\0")
    try:
        place = words.index("phase")
        cwd = os.readlink(root.at(f"/proc/{gate_pid}/cwd"))
    except (ValueError, OSError):
        return None
    if len(words) < place + 3:
        return None
    settings = (root.path_text(f"/proc/{gate_pid}/environ") or "").split("\0")
    env = {name: value for name, equals, value in (each.partition("=") for each in settings) if equals and name}
    return PhaseCall(tool=words[place + 1], argv=tuple(words[place + 3 :]), cwd=cwd, env=env)
