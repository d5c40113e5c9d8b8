"""``builddoctor trace repro``: one phase of a build in a folder of its own, to be run again or sent to its vendor."""

from __future__ import annotations

import os
import re
import shutil
from datetime import datetime
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from builddoctor.cli.naming import BuildArgument, find_trace
from builddoctor.cli.output import JsonOption, json_text, print_data, print_notes
from builddoctor.core.errors import FolderNotWritableError, TraceError, UsageError
from builddoctor.core.units import format_mib, parse_size_mib, parse_until_s, printable, shell_word
from builddoctor.gates.phase_replay import Repro, nvcc_of
from builddoctor.gates.reduction import find_cvise
from builddoctor.gates.subprocesses import run_measured
from builddoctor.repro.folder import Reproducing, enough, given_up, write_text
from builddoctor.repro.reducing import Bounds, Reduced, Reducing, choose_bounds, reduced_lines
from builddoctor.system.memory_sensor import MemorySensor
from builddoctor.system.root import SystemRoot
from builddoctor.trace.analysis import read_build
from builddoctor.trace.report import PhaseRow, TraceReport, choose_phase
from builddoctor.ui.repro_files import README, REDUCED_SCRIPT, SCRIPT, readme_text

FREE_SHARE = 0.8
"""of the memory that is free now, for a step; in address space, which is more than what it holds"""

RUN_S = 3600.0
ID_DIGITS = 6
"""of a trace's id: a shorter number is a phase's"""


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """What ``--run`` saw."""

    exit_code: int | None
    signal: int | None
    peak_mib: float
    wall_s: float
    limit_mib: float
    problem: str = ""


class Reproduced(msgspec.Struct, frozen=True, kw_only=True):
    """What ``trace repro --json`` prints. ``input``: ``kept`` during the build, or ``made`` again just now."""

    folder: str
    files: list[str]
    command: str
    phase_id: int
    phase: str
    tool: str
    input: str
    notes: list[str]
    run: Ran | None = None
    reduced: Reduced | None = None


def repro(
    trace: BuildArgument = "last",
    phase: Annotated[
        str,
        typer.Argument(
            metavar="PHASE",
            help="Its number, or UNIT[:PROGRAM[:ARCH]], as in gelu.cu:cicc:sm_90; without one, the phase that failed.",
        ),
    ] = "",
    output: Annotated[
        str,
        typer.Option(
            "-o", "--output", metavar="FOLDER", help="A folder, new or empty.  [default: repro-UNIT-TOOL-ARCH]"
        ),
    ] = "",
    run: Annotated[
        bool, typer.Option("--run", help="Run it there once within --memory, and report how it ends.")
    ] = False,
    memory: Annotated[
        str,
        typer.Option(
            "--memory",
            metavar="SIZE",
            help="Address space of each program, with --reduce of all trials together.  [default: 80 % of the free "
            "memory]",
        ),
    ] = "",
    reduce: Annotated[
        bool,
        typer.Option(
            "--reduce",
            help="Make its input as small as it gets while the compiler still takes too much. Needs C-Vise (`cvise`).",
        ),
    ] = False,
    beyond: Annotated[
        str,
        typer.Option(
            "--beyond",
            metavar="SIZE",
            help="With --reduce: too much is more than this.  [default: 60 % of the peak; at most 2 GiB where it grew "
            "without end]",
        ),
    ] = "",
    time: Annotated[
        str, typer.Option("--time", metavar="TIME", help="With --reduce: end after this, with the best so far.")
    ] = "30m",
    json: JsonOption = False,
) -> None:
    """Write a folder that reproduces one phase of a build: its input, the command, and what happens.

    The input is the one that was kept when the phase failed. Without it, the input is made again from the unit's
    command; that needs the sources and the compiler.

    \b
    Examples:
      builddoctor trace repro                       # the phase that failed last
      builddoctor trace repro last gelu.cu:cicc:sm_90 --run
      builddoctor trace repro --reduce              # with an input of a few lines
    """
    path, phase = _which(trace, phase)
    report = read_build(path)
    row = choose_phase(report, phase)
    limit_mib = parse_size_mib(memory) if memory else _free_mib()
    if beyond and not reduce:
        raise UsageError("--beyond says what --reduce keeps", hint="builddoctor trace repro --reduce --beyond 1GiB")
    total_s = parse_until_s(time, datetime.now().astimezone())
    bounds = _bounds(report, row, limit_mib, beyond) if reduce else None
    folder = Path(output or _folder_name(row))
    new = _make_folder(folder)
    reproducing = Reproducing(
        report, trace=path, folder=folder, env=os.environ, memory_mib=limit_mib, tell=lambda text: print_notes([text])
    )
    try:
        made, how = reproducing.make(row)
        ran = _run(folder, limit_mib, (SCRIPT, *made.files)) if run else None
        reduced = _reduce(made, report, folder, bounds, total_s) if bounds is not None else None
        small = () if reduced is None else reduced_lines(reduced)
        write_text(folder / README, readme_text(made, _said(ran), small))
    except BaseException:
        _clear(folder, itself=new)
        raise
    if json:
        print_data(json_text(_reproduced(folder, row, made, how, ran, reduced), pretty=True))
        _leave(reduced)
        return
    print_data(printable(str(folder.absolute())))
    print_notes([f"{made.what}: its input was {how}", *made.notes, *_said(ran)])
    script = SCRIPT if reduced is None else REDUCED_SCRIPT
    print_notes([*small, f"run it: {'LIMIT_MIB=8000 ' if made.endless else ''}sh {shell_word(str(folder / script))}"])
    _leave(reduced)


def _which(trace: str, phase: str) -> tuple[Path, str]:
    """Of one word alone: the trace, if there is one of that name, else a phase of the last."""
    if phase or trace == "last":
        return find_trace(trace), phase
    if trace.isdigit() and len(trace) < ID_DIGITS and not Path(trace).exists():
        return find_trace("last"), trace
    try:
        return find_trace(trace), ""
    except TraceError:
        return find_trace("last"), trace


def _run(folder: Path, limit_mib: float, files: tuple[str, ...]) -> Ran:
    enough(limit_mib)
    done = run_measured(["/bin/sh", SCRIPT], cwd=str(folder), env=os.environ, memory_mib=limit_mib, timeout_s=RUN_S)
    if done.output:
        print_notes([done.output])
    for each in folder.iterdir():
        # What it made is not part of it.
        if each.name not in files and not each.is_dir():
            each.unlink(missing_ok=True)
    return Ran(
        exit_code=done.exit_code,
        signal=done.signal,
        peak_mib=done.peak_mib,
        wall_s=done.wall_s,
        limit_mib=limit_mib,
        problem=done.problem,
    )


def _bounds(report: TraceReport, row: PhaseRow, limit_mib: float, beyond: str) -> Bounds:
    """Of a reduction. Raises ExtraMissingError and ReproError before anything is written."""
    find_cvise(os.environ)
    return choose_bounds(
        peak_mib=row.peak_mib,
        endless=bool(given_up(report, row)),
        memory_mib=limit_mib,
        cores=len(os.sched_getaffinity(0)),
        wanted_mib=parse_size_mib(beyond) if beyond else None,
    )


def _reduce(made: Repro, report: TraceReport, folder: Path, bounds: Bounds, total_s: float) -> Reduced:
    return Reducing(
        made,
        folder=folder,
        env=_with_its_nvcc(report),
        bounds=bounds,
        total_s=total_s,
        cvise=find_cvise(os.environ),
        tell=lambda text: print_notes([text]),
    ).reduce()


def _leave(reduced: Reduced | None) -> None:
    """After Ctrl-C: what was made is there and said, but it is not what was asked for."""
    if reduced is not None and reduced.ended == "interrupted":
        raise typer.Exit(130)


def _with_its_nvcc(report: TraceReport) -> dict[str, str]:
    """The environment in which the script finds the build's nvcc, where it is still there."""
    nvcc = nvcc_of(report.header.toolkit, os.environ)
    return {**({"NVCC": nvcc} if nvcc else {}), **os.environ}


def _said(ran: Ran | None) -> tuple[str, ...]:
    if ran is None:
        return ()
    if ran.problem:
        return (f"it was run in {format_mib(ran.limit_mib)} of address space: {ran.problem}",)
    how = f"signal {ran.signal}" if ran.signal is not None else f"exit code {ran.exit_code}"
    took = f"{format_mib(ran.peak_mib)} at its peak, {ran.wall_s:.1f} s"
    return (f"it was run in {format_mib(ran.limit_mib)} of address space, and ended with {how}: {took}",)


def _reproduced(
    folder: Path, row: PhaseRow, made: Repro, how: str, ran: Ran | None, reduced: Reduced | None
) -> Reproduced:
    return Reproduced(
        folder=str(folder.absolute()),
        files=sorted((SCRIPT, README, *made.files, *((reduced.file, reduced.script) if reduced else ()))),
        command=f"sh {shell_word(str(folder.absolute() / SCRIPT))}",
        phase_id=row.phase_id,
        phase=made.what,
        tool=made.tool,
        input=how.split()[0],
        notes=list(made.notes),
        run=ran,
        reduced=reduced,
    )


def _free_mib() -> float:
    """Most that one program may take, without a word of the user's."""
    return max(0.0, FREE_SHARE * MemorySensor(SystemRoot(), env=os.environ).read(0.0).tightest.headroom_mib)


def _folder_name(row: PhaseRow) -> str:
    stem = re.sub(r"[^\w.+-]", "_", os.path.basename(row.source), flags=re.ASCII)[-60:] or "phase"
    return "-".join(part for part in ("repro", stem, row.tool, row.arch) if part)


def _make_folder(folder: Path) -> bool:
    """It was not there before."""
    try:
        new = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise UsageError(f"{folder} is not empty", hint="`-o` names another folder")
    except OSError as error:
        raise FolderNotWritableError(
            f"cannot make the folder {folder}: {error.strerror}", hint="-o /a/folder/that/you/may/write"
        ) from error
    return new


def _clear(folder: Path, *, itself: bool) -> None:
    """It was empty or not there: all that is in it is ours."""
    if itself:
        shutil.rmtree(folder, ignore_errors=True)
        return
    for each in folder.iterdir():
        each.unlink(missing_ok=True)
