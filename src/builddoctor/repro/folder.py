"""Make the folder of one phase of a traced build: its input as it was kept, or made again, and the script beside it.

Covers: which of the two; refusing where neither can be. Does *not* cover: the command line (``cli.trace_repro``), or
running the phase.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import builddoctor
from builddoctor.core.errors import FolderNotWritableError, ReproError
from builddoctor.core.events import InputsKept
from builddoctor.core.units import MIB, format_clock, format_mib
from builddoctor.gates.phase_replay import (
    HEADERS_MISSING,
    Copied,
    Copies,
    PhaseCall,
    Repro,
    TooLargeError,
    UnitReplay,
    WantedPhase,
    copy_inputs,
    nvcc_of,
    unpack,
)
from builddoctor.runtime.failure_capture import repro_folder
from builddoctor.system.probes import Deadline
from builddoctor.toolchain.options import LINKERS
from builddoctor.toolchain.phase_commands import beside, preprocesses
from builddoctor.trace.commands import Command, command_of
from builddoctor.trace.masking import MASK
from builddoctor.trace.report import Attempt, PhaseRow, TraceReport
from builddoctor.ui.repro_files import README, SCRIPT, script_text

MOST_BYTES = 1024 * MIB
COPY_S = 600.0
LEAST_MIB = 512.0
"""for a compiler's step"""


class Reproducing:
    """One trace's. ``folder``: empty. ``memory_mib``: address space of each program that makes the input."""

    def __init__(
        self,
        report: TraceReport,
        *,
        trace: Path,
        folder: Path,
        env: Mapping[str, str],
        memory_mib: float,
        tell: Callable[[str], None],
    ) -> None:
        self._report = report
        self._kept_folder = repro_folder(trace)
        self._folder = folder
        self._env = env
        self._memory_mib = memory_mib
        self._tell = tell

    def make(self, row: PhaseRow) -> tuple[Repro, str]:
        """The phase with its script written, and how its input came there. Raises ReproError."""
        kept = self._report.kept.get(row.phase_id)
        above = self._kept_folder / str(row.phase_id)
        if kept is not None and not all((above / f"{file.name}.gz").is_file() for file in kept.files):
            kept = None
        command = command_of(self._report.commands, row.unit_id)
        if command is not None and (kept is None or (kept.note == HEADERS_MISSING and not preprocesses(kept.argv))):
            # There was no memory for its headers then.
            try:
                return self._made_again(row, command), "made again"
            except ReproError:
                if kept is None:
                    raise
        if kept is not None:
            copies = self._unpacked(kept, above)
            call = PhaseCall(tool=kept.tool, argv=tuple(kept.argv), cwd=kept.cwd)
            return self._finished(row, call, copies, kept.versions), "kept"
        raise ReproError(
            f"the trace holds neither the input of {row.name} nor the command of its unit",
            hint="build it again: this version of builddoctor keeps the commands of units",
        )

    def _made_again(self, row: PhaseRow, command: Command) -> Repro:
        if not os.path.exists(os.path.join(command.cwd, row.source)):
            raise ReproError(
                f"the source is not there any more: {os.path.join(command.cwd, row.source)}",
                hint="with the sources in the same place as in the build it can be made again",
            )
        enough(self._memory_mib)
        with tempfile.TemporaryDirectory(prefix="builddoctor-repro-") as temporary:
            again = UnitReplay(
                command,
                nvcc=nvcc_of(self._report.header.toolkit, self._env),
                env=self._env,
                folder=Path(temporary),
                memory_mib=self._memory_mib,
                tell=self._tell,
            )
            call = again.call_of(WantedPhase(tool=row.tool, kind=row.kind, arch=row.arch))
            try:
                copies = copy_inputs(
                    call,
                    self._folder,
                    packed=False,
                    most_bytes=MOST_BYTES,
                    deadline=Deadline(COPY_S),
                    memory_mib=self._memory_mib,
                )
            except (OSError, TooLargeError) as error:
                raise ReproError(f"its input cannot be copied: {error}", hint="-o /a/folder/with/room") from error
        return self._finished(row, call, copies, _versions(self._report))

    def _unpacked(self, kept: InputsKept, above: Path) -> Copies:
        files = tuple(Copied(name=file.name, path=file.path, size_bytes=file.size_bytes) for file in kept.files)
        for file in files:
            if os.path.basename(file.name) != file.name or file.name in ("", ".", "..", SCRIPT, README):
                raise ReproError(f"the trace names an impossible file: {file.name!r}")
            try:
                unpack(above / f"{file.name}.gz", self._folder / file.name, most_bytes=MOST_BYTES)
            except (OSError, TooLargeError) as error:
                raise ReproError(f"the kept input {file.name} cannot be read: {error}") from error
        return Copies(files=files, preprocessed=kept.preprocessed, note=kept.note)

    def _finished(self, row: PhaseRow, call: PhaseCall, copies: Copies, versions: Sequence[str]) -> Repro:
        """Write the script; the README comes last."""
        needs_others = call.name in LINKERS or preprocesses(call.argv) or copies.note == HEADERS_MISSING
        argv = beside(
            call.argv,
            {file.path: file.name for file in copies.files},
            preprocessed=copies.preprocessed,
            elsewhere=call.cwd if needs_others else "",
        )
        notes = [copies.note] if copies.note else []
        if any(MASK in word for word in argv):
            notes.append(f"what looked like a credential in the command was masked ({MASK}), and is not in it")
        what = _by_name(row.name, row)
        made = Repro(
            what=what if row.tool == row.kind else f"{what} ({row.tool})",
            happened=tuple(_by_name(line, row) for line in _happened(self._report, row)),
            tool=call.tool,
            argv=tuple(argv),
            files=tuple(file.name for file in copies.files),
            versions=tuple(versions),
            notes=tuple(notes),
            peak_mib=row.peak_mib,
            wall_s=_last(row).wall_s,
            endless=bool(given_up(self._report, row)),
            builddoctor=builddoctor.__version__,
        )
        write_text(self._folder / SCRIPT, script_text(made), executable=True)
        return made


def enough(memory_mib: float) -> None:
    """Raises ReproError where no compiler could run."""
    if memory_mib < LEAST_MIB:
        raise ReproError(
            f"there is no memory for it: a compiler could have {format_mib(memory_mib)}",
            hint="when other programs have ended, or with what it may take: --memory 4GiB",
        )


def write_text(path: Path, text: str, *, executable: bool = False) -> None:
    """A file of the folder. Raises FolderNotWritableError."""
    try:
        path.write_text(text, encoding="utf-8", errors="surrogateescape")
        if executable:
            path.chmod(path.stat().st_mode | 0o111)
    except OSError as error:
        raise FolderNotWritableError(f"cannot write {path}: {error.strerror}", hint="is the disk full?") from error


def _happened(report: TraceReport, row: PhaseRow) -> tuple[str, ...]:
    last = _last(row)
    how = f"signal {last.signal}" if last.signal is not None else f"exit code {last.exit_code}"
    wall, peak = format_clock(last.wall_s), format_mib(row.peak_mib)
    lines = [f"it ended with {how} after {wall}, {peak} at its peak ({last.outcome or 'not ended'})"]
    if last.wall_s >= 1 and last.peak_mib > 0:
        lines.append(f"it grew by {format_mib(last.peak_mib / last.wall_s)} a second on average")
    if last.killed_for:
        lines.append(f"builddoctor ended it: {last.killed_for}")
    return (*lines, *given_up(report, row))


def _by_name(text: str, row: PhaseRow) -> str:
    """Without the folders of this machine: what it is for may be sent away."""
    return text.replace(row.source, os.path.basename(row.source)) if row.source else text


def given_up(report: TraceReport, row: PhaseRow) -> list[str]:
    """What was said when the build gave the phase up; nothing where it did not."""
    return [event.text for event in report.events if event.kind == "give-up" and event.phase_id == row.phase_id]


def _last(row: PhaseRow) -> Attempt:
    return row.attempts[-1] if row.attempts else Attempt(admitted_at_s=0, reserve_mib=0, running=1)


def _versions(report: TraceReport) -> list[str]:
    """Of the machine that makes the folder, where nothing was kept."""
    nvcc = f"nvcc {report.header.nvcc}" if report.header.nvcc else ""
    return [each for each in (nvcc, os.confstr("CS_GNU_LIBC_VERSION"), os.uname().machine) if each]
