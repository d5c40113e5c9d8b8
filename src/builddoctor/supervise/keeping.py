"""What a trace keeps for whoever wants to run one phase again: each unit's command, and inputs of phases that died.

Inputs are copied while the phase's gate still holds its compiler driver: nvcc deletes its temporary files when it ends.
Covers: which phases are worth it (given up, or crashed by themselves), bounds, the folder beside the trace.
Does *not* cover: copying (``intercept.phase_inputs``); making a folder to send away (``cli.trace_repro``).

Whatever goes wrong here is a line in the trace, and never changes how the build ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

from builddoctor.intercept.phase_inputs import Copies, PhaseCall, TooLargeError, copy_inputs
from builddoctor.intercept.side_by_side import Patience
from builddoctor.model.phase import Outcome, Unit
from builddoctor.sensors.root import SystemRoot
from builddoctor.supervise.phases import LivePhase, describe
from builddoctor.trace.commands import Command, CommandWriter
from builddoctor.trace.masking import mask_argv
from builddoctor.trace.records import Kept, KeptFile, UnitCommand
from builddoctor.units import MIB, format_mib

MOST_PHASES = 3
MOST_MIB = 64.0
"""Of one build, packed."""

SPARE_MIB = 256.0
"""Left free on the disk."""

FREE_SHARE = 0.6
"""Of what is free, the address space that a preprocessor may have: the phase before it needed more."""

MOST_S = 90.0

_CRASHES = frozenset((signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGSYS))
_CRASH_CODES = {"cc1": 4, "cc1plus": 4, "cudafe++": 4}
"""gcc catches its own crash ("internal compiler error"); EDG calls it a catastrophic error."""


def repro_folder(trace: Path) -> Path:
    """Where a trace's kept inputs lie: beside it."""
    return trace.with_name(trace.name.removesuffix(".jsonl") + ".repro")


class Keeping:
    """One build's. All methods are called in the event loop."""

    def __init__(
        self,
        root: SystemRoot,
        *,
        trace: Path,
        write: Callable[[Kept | UnitCommand], None],
        tell: Callable[[str], None],
        at_s: Callable[[], float],
        free_mib: Callable[[], float],
        versions: Sequence[str] = (),
    ) -> None:
        self._root = root
        self._trace = trace
        self._write = write
        self._tell = tell
        self._at_s = at_s
        self._free_mib = free_mib
        self._versions = list(versions)
        self._commands = CommandWriter()
        self._patience: Patience | None = None
        self._phases_left = MOST_PHASES
        self._bytes_left = int(MOST_MIB * MIB)

    def unit_called(self, unit: Unit, argv: Sequence[str], cwd: str) -> None:
        """A unit's driver begins. What a configure step tries out, and questions, are passed over."""
        if not unit.counted:
            return
        # Where no gate named it, argv is the process's own, with its program first.
        at_gate = unit.unit_id.startswith("u")
        tool, rest = ("nvcc", argv) if at_gate else (argv[0], argv[1:])
        command = Command(tool=tool, cwd=cwd, argv=tuple(mask_argv(rest)))
        record = self._commands.record(self._at_s(), unit.unit_id, command)
        if record is not None:
            self._write(record)

    async def keep(self, live: LivePhase, status: int, given_up: bool) -> None:
        """A phase has ended for good, and its gate waits for our answer: copy its inputs, if it is worth it."""
        if not live.trusted or not self._phases_left or not (given_up or crashed(live, status)):
            return
        self._phases_left -= 1
        try:
            call = call_of(live.gate_pid, self._root)
            if call is None:
                return
            self._patience = Patience(MOST_S)
            memory_mib = FREE_SHARE * self._free_mib()
            work = asyncio.to_thread(self._copy, call, live.phase.phase_id, self._patience, memory_mib)
            copies = await asyncio.wait_for(work, MOST_S)
        except Exception as error:  # noqa: BLE001 - whatever it is, the build goes on
            why = getattr(error, "strerror", None) or str(error) or "it took too long"
            self._tell(f"could not keep the input of {describe(live.phase)}: {why}")
            return
        self._bytes_left -= copies.written_bytes
        self._write(self._record(live.phase.phase_id, call, copies))
        if copies.files:
            packed = format_mib(max(1.0, copies.written_bytes / MIB))
            self._tell(f"keeps the input of {describe(live.phase)} ({packed}), for `builddoctor trace repro`")

    def close(self) -> None:
        """The build has ended: what is still being copied need not be."""
        if self._patience is not None:
            self._patience.end()

    def _copy(self, call: PhaseCall, phase_id: int, patience: Patience, memory_mib: float) -> Copies:
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
                call, folder, packed=True, most_bytes=room_bytes, patience=patience, memory_mib=memory_mib
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
        """The phase's folder, new: 0700, and nobody else's. What an earlier build left under its name is removed."""
        above = repro_folder(self._trace)
        above.mkdir(mode=0o700, exist_ok=True)
        if above.is_symlink() or above.stat().st_uid != os.geteuid():
            raise OSError(0, f"{above} is somebody else's")
        above.chmod(0o700)
        if self._phases_left == MOST_PHASES - 1:
            for old in above.iterdir():
                if old.name.isdigit() and old.is_dir() and not old.is_symlink():
                    shutil.rmtree(old, ignore_errors=True)
        folder = above / str(phase_id)
        folder.mkdir(mode=0o700)
        return folder

    def _record(self, phase_id: int, call: PhaseCall, copies: Copies) -> Kept:
        return Kept(
            at_s=self._at_s(),
            phase_id=phase_id,
            tool=call.tool,
            argv=mask_argv(call.argv),
            cwd=call.cwd,
            files=[KeptFile(name=file.name, path=file.path, size_bytes=file.size_bytes) for file in copies.files],
            preprocessed=copies.preprocessed,
            versions=self._versions,
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
