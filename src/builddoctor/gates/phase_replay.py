"""One phase run again: its input copied while it is there, or made anew by its unit's own command.

Covers: copies of the files named on the command line, as they are or packed; a C or C++ source as the phase's own
compiler preprocesses it, since its headers are not copied; and, when nothing was copied, the driver's steps up to the
phase, for nvcc (``--dryrun``) and gcc (``-###``), one at a time, writing only into a folder of ours. The phase itself
is not run. All of it is bounded in bytes, memory and time.
Does *not* cover: which phases are worth it (``runtime``), or the command beside the copies
(``toolchain.phase_commands``).
"""

from __future__ import annotations

import contextlib
import gzip
import os
import shlex
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from builddoctor.core.errors import ReproError
from builddoctor.core.units import MIB
from builddoctor.gates.subprocesses import run_captured
from builddoctor.system.probes import Captured, Deadline, first_program
from builddoctor.toolchain.nvcc import DryRun, Step, parse_dryrun
from builddoctor.toolchain.options import INNER_COMPILERS, LINKERS
from builddoctor.toolchain.phase_commands import (
    bare_arguments,
    find_step,
    input_paths,
    is_nvcc,
    parse_inner_steps,
    preprocesses,
    preprocessing,
    short_name,
    source_path,
    steps_before,
)
from builddoctor.trace.commands import Command

CHUNK_BYTES = 1 * MIB
PACKING = 3
"""A preprocessed source becomes a sixth, at 60 MB a second; more effort gains little."""

PREPROCESS_MIB = (384.0, 1024.0)
"""Address space of a preprocessor, least and most: few sources take 100 MiB, the largest some 300."""

PREPROCESS_S = 60.0
HEADERS_MISSING = "its headers are not here: it needs the include folders that its command names"

STEP_S = 1800.0
ASK_S = 60.0
_FROM_DRYRUN = ("PATH", "LD_LIBRARY_PATH", "CICC_PATH", "NVVMIR_LIBRARY_DIR", "TOP", "_HERE_")


class PhaseCall(msgspec.Struct, frozen=True, kw_only=True):
    """A phase's program as it was called."""

    tool: str
    """path of the program itself, not of a gate"""
    argv: tuple[str, ...]
    """without the program"""
    cwd: str
    env: Mapping[str, str] = {}
    """for the preprocessor alone; never written anywhere"""

    @property
    def name(self) -> str:
        return os.path.basename(self.tool)


class Copied(msgspec.Struct, frozen=True, kw_only=True):
    """One input, copied. ``name`` is without the ``.gz`` of a packed one."""

    name: str
    path: str
    size_bytes: int


class Copies(msgspec.Struct, frozen=True, kw_only=True):
    """What was copied of a phase. ``note``: what is missing; empty when nothing is."""

    files: tuple[Copied, ...]
    preprocessed: bool = False
    note: str = ""
    written_bytes: int = 0


class WantedPhase(msgspec.Struct, frozen=True, kw_only=True):
    """The phase: its program, what it does (``core.phase.PhaseKind``), its architecture where it has one."""

    tool: str
    kind: str
    arch: str = ""

    def __str__(self) -> str:
        return f"{self.tool} {self.arch}".strip()


class Repro(msgspec.Struct, frozen=True, kw_only=True):
    """One phase, ready to be run again in a folder of its own: what ``trace repro`` writes down.

    ``argv`` runs in the folder. Paths in it are relative, where ``notes`` say nothing else.
    """

    what: str
    """such as ``cicc sm_90 of src/gelu.cu``"""
    happened: tuple[str, ...]
    """what was seen of it, a line each"""
    tool: str
    """path of the program on the machine that it was seen on"""
    argv: tuple[str, ...]
    """without the program"""
    files: tuple[str, ...]
    versions: tuple[str, ...]
    notes: tuple[str, ...] = ()
    peak_mib: float = 0.0
    """seen"""
    wall_s: float = 0.0
    endless: bool = False
    """it must not be run without a limit"""
    builddoctor: str = ""


class TooLargeError(Exception):
    """More than may be written."""


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def copy_inputs(
    call: PhaseCall, folder: Path, *, packed: bool, most_bytes: int, deadline: Deadline, memory_mib: float
) -> Copies:
    """Copy what ``call`` reads into ``folder``, which is there and empty.

    ``packed``: each file as ``NAME.gz``. ``most_bytes``: that may be written. ``memory_mib``: address
    space that a preprocessor may have; with too little there is none.
    Raises OSError for a disk that is full or fails, TooLargeError.
    """

    def is_file(path: str) -> bool:
        with contextlib.suppress(OSError, ValueError):
            return os.path.isfile(os.path.join(call.cwd, path))
        return False

    writer = _Writer(folder, packed=packed, most_bytes=most_bytes)
    source = source_path(call.name, call.argv, is_file)
    if (
        source
        and not preprocesses(call.argv)
        and not source.endswith((".ii", ".i"))
        and memory_mib >= PREPROCESS_MIB[0]
    ):
        name = os.path.splitext(short_name(source))[0] + (".i" if call.name == "cc1" else ".ii")
        # Written from another folder.
        whole = folder.absolute() / f".{name}"
        try:
            done = _preprocess(call, whole, min(memory_mib, PREPROCESS_MIB[1]), deadline)
            if done.status == 0:
                size = writer.take(whole, name)
                file = Copied(name=name, path=source, size_bytes=size)
                return Copies(files=(file,), preprocessed=True, written_bytes=writer.written_bytes)
        finally:
            whole.unlink(missing_ok=True)
    files: list[Copied] = []
    for path in input_paths(call.name, call.argv, is_file):
        name = _free_name(short_name(path), [file.name for file in files])
        size = writer.take(Path(call.cwd, path), name)
        files.append(Copied(name=name, path=path, size_bytes=size))
    return Copies(files=tuple(files), note=_missing(call, bool(source)), written_bytes=writer.written_bytes)


def unpack(packed: Path, target: Path, *, most_bytes: int) -> None:
    """``NAME.gz`` as a plain file. Raises OSError (damaged ones, too) and TooLargeError."""
    with gzip.open(packed, "rb") as source, target.open("xb") as file:
        try:
            _pour(source, file.write, most_bytes, file.tell)
        except EOFError as error:
            raise OSError(0, "it stops short", str(packed)) from error
        except zlib.error as error:
            raise OSError(0, "it is damaged", str(packed)) from error


class UnitReplay:
    """One unit's command, run up to a phase. ``folder``: for temporary files, empty."""

    def __init__(
        self,
        command: Command,
        *,
        nvcc: str,
        env: Mapping[str, str],
        folder: Path,
        memory_mib: float,
        tell: Callable[[str], None],
    ) -> None:
        self._command = command
        self._nvcc = nvcc
        clean = {name: value for name, value in env.items() if not name.startswith("BUILDDOCTOR_")}
        self._env = {**clean, "TMPDIR": str(folder)}
        self._folder = folder
        self._memory_mib = memory_mib
        self._tell = tell

    def call_of(self, wanted: WantedPhase) -> PhaseCall:
        """The phase's call, with its input there. Raises ReproError."""
        if not is_nvcc(self._command.tool):
            return self._inner(self._command.tool, self._command.argv, wanted)
        if not self._nvcc:
            raise ReproError(
                "no nvcc here to make the phase's input with", hint="export PATH=/usr/local/cuda/bin:$PATH"
            )
        steps = self._nvcc_steps()
        env = self._env | {name: steps.settings[name] for name in _FROM_DRYRUN if name in steps.settings}
        place = find_step(steps.steps, tool=wanted.tool, kind=wanted.kind, arch=wanted.arch)
        if place is None:
            raise ReproError(
                f"the unit's command has no step {wanted}: it has {_listed(steps)}",
                hint="is it the same compiler, with the same NVCC_APPEND_FLAGS, as in the build?",
            )
        before = steps_before(steps.steps, place)
        for number, index in enumerate(before, 1):
            step = steps.steps[index]
            self._tell(f"makes the input, step {number} of {len(before)}: {step.name}")
            self._run(step, env)
        step = steps.steps[place]
        if wanted.tool in INNER_COMPILERS or wanted.tool == "collect2":
            self._env = env
            return self._inner(step.words[0], step.words[1:], wanted)
        tool = step.words[0] if "/" in step.words[0] else first_program(step.words[0], env)
        return PhaseCall(tool=tool or step.words[0], argv=step.words[1:], cwd=self._command.cwd, env=env)

    def _nvcc_steps(self) -> DryRun:
        argv = bare_arguments(self._command.argv, output=str(self._folder / "out.o"))
        done = self._ask([self._nvcc, "--dryrun", *argv, "--threads", "1"])
        steps = parse_dryrun(done.output)
        if not steps.steps:
            raise ReproError(
                f"`nvcc --dryrun` printed no steps: {_last_words(done)}",
                hint=f"cd {shlex.quote(self._command.cwd)} && {shlex.join([self._nvcc, '--dryrun', *argv])}",
            )
        return steps

    def _inner(self, driver: str, arguments: tuple[str, ...], wanted: WantedPhase) -> PhaseCall:
        """The call of a program inside gcc."""
        argv = [driver, "-###", *bare_arguments(arguments, output=str(self._folder / "out.o"))]
        done = self._ask(argv)
        found = [step for step in parse_inner_steps(done.output) if step.name == wanted.tool]
        if not found:
            raise ReproError(
                f"{driver} has no step {wanted.tool}: {_last_words(done)}",
                hint=f"cd {shlex.quote(self._command.cwd)} && {shlex.join(argv)}",
            )
        step = found[0]
        return PhaseCall(tool=step.words[0], argv=step.words[1:], cwd=self._command.cwd, env=self._env)

    def _ask(self, argv: list[str]) -> Captured:
        done = run_captured(argv, env=self._env, cwd=self._command.cwd, timeout_s=ASK_S)
        if done.status is None:
            raise ReproError(f"{argv[0]} could not be asked: {done.problem}", hint="is it still on this machine?")
        return done

    def _run(self, step: Step, env: Mapping[str, str]) -> None:
        argv = _limited(["/bin/sh", "-c", step.line], self._memory_mib)
        done = run_captured(argv, env=env, cwd=self._command.cwd, timeout_s=STEP_S)
        if done.status != 0:
            raise ReproError(
                f"{step.name}, which makes the phase's input, failed: {_last_words(done)}",
                hint="with more memory for it: `--memory 16GiB`",
            )


def nvcc_of(toolkit: str, env: Mapping[str, str]) -> str:
    """The build's nvcc where it still is, else the first on PATH; empty without any."""
    theirs = os.path.join(toolkit, "bin", "nvcc")
    return theirs if toolkit and os.access(theirs, os.X_OK) else first_program("nvcc", env)


class _Writer:
    def __init__(self, folder: Path, *, packed: bool, most_bytes: int) -> None:
        self._folder, self._packed, self._most = folder, packed, most_bytes
        self.written_bytes = 0

    def take(self, source: Path, name: str) -> int:
        """Copy one file; gives its size, unpacked."""
        target = self._folder / (f"{name}.gz" if self._packed else name)
        left = self._most - self.written_bytes
        with source.open("rb") as reading, target.open("xb") as file:
            if self._packed:
                with gzip.GzipFile(filename="", mode="wb", compresslevel=PACKING, fileobj=file, mtime=0) as packing:
                    size = _pour(reading, packing.write, left, file.tell)
            else:
                size = _pour(reading, file.write, left, file.tell)
            self.written_bytes += file.tell()
        return size


def _pour(source: _Readable, write: Callable[[bytes], object], most_bytes: int, written: Callable[[], int]) -> int:
    size = 0
    while data := source.read(CHUNK_BYTES):
        write(data)
        size += len(data)
        if written() > most_bytes:
            raise TooLargeError(f"more than {most_bytes // MIB} MiB")
    return size


def _preprocess(call: PhaseCall, output: Path, memory_mib: float, deadline: Deadline) -> Captured:
    argv = _limited([call.tool, *preprocessing(call.argv, str(output))], memory_mib)
    env = {name: value for name, value in call.env.items() if not name.startswith("BUILDDOCTOR_")}
    return run_captured(argv, env=env, cwd=call.cwd, timeout_s=PREPROCESS_S, deadline=deadline)


def _missing(call: PhaseCall, source: bool) -> str:
    if source or preprocesses(call.argv) or call.name.startswith("clang"):
        return HEADERS_MISSING
    if call.name in LINKERS:
        return "objects and libraries are not here: it needs those that its command names"
    return "what it read from a pipe is not here" if "-" in call.argv else ""


def _free_name(name: str, taken: Sequence[str]) -> str:
    stem, dot, suffix = name.partition(".")
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{stem}-{number}{dot}{suffix}"
    return free


def _limited(argv: Sequence[str], memory_mib: float) -> list[str]:
    """The same command in so much address space at most."""
    return ["/bin/sh", "-c", f'ulimit -v {int(memory_mib * 1024)} || exit 126; exec "$@"', "sh", *argv]


def _listed(steps: DryRun) -> str:
    return ", ".join(dict.fromkeys(step.name for step in steps.steps)) or "none"


def _last_words(done: Captured) -> str:
    if done.problem:
        return done.problem
    lines = [line for line in done.output.strip().splitlines() if not line.startswith(("#$", " "))]
    return "; ".join(lines[-3:]) or f"it ended with status {done.status}"
