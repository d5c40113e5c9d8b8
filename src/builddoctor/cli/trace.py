"""``builddoctor trace list|show|units|compare``: the traces there are, and what they say."""

from __future__ import annotations

import csv
import io
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from builddoctor.cli.output import json_text, page_width, print_data, print_notes, print_page
from builddoctor.diagnose.from_trace import judge
from builddoctor.errors import TraceError, UsageError
from builddoctor.model.verdict import Fix, Verdict
from builddoctor.render.comparison import comparison_page
from builddoctor.render.signs import ASCII, Signs, signs_for
from builddoctor.render.tables import KINDS, trace_rows, unit_rows
from builddoctor.render.trace_page import trace_page
from builddoctor.sensors.root import SystemRoot
from builddoctor.supervise.folders import traces_folder
from builddoctor.trace.analysis import read_build
from builddoctor.trace.compare import compare
from builddoctor.trace.peek import idle_s, peek
from builddoctor.trace.report import Happened, Point, TraceReport, UnitRow
from builddoctor.units import escaped

app = typer.Typer(no_args_is_help=True, help="Read the traces of builds.", rich_markup_mode=None)

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
TraceArgument = Annotated[
    str, typer.Argument(metavar="[TRACE]", help="A trace file, its id as `trace list` shows it, or `last`.")
]

SORTS: dict[str, Callable[[UnitRow], tuple[float, str]]] = {
    "peak": lambda unit: (-unit.peak_mib, unit.unit),
    "time": lambda unit: (-unit.wall_s, unit.unit),
    "waited": lambda unit: (-unit.waited_s, unit.unit),
    "requeues": lambda unit: (-unit.requeues, unit.unit),
    "off": lambda unit: (-abs(unit.peak_mib - unit.estimate_mib), unit.unit),
    "began": lambda unit: (unit.began_at_s, unit.unit),
    "name": lambda unit: (0.0, unit.unit),
}


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """What ``trace show --json`` prints. ``verdict``, ``confidence``, ``evidence`` and ``fixes`` are relied upon."""

    verdict: str | None
    confidence: str
    evidence: list[str]
    fixes: list[Fix]
    died: str
    why: str
    cause: str
    trace: str
    trace_id: str
    title: str
    command: list[str]
    cwd: str
    archs: list[str]
    nvcc: str
    started_at: str
    whole: bool
    result: str | None
    exit_code: int | None
    wall_s: float
    peak_mib: float
    limit_mib: float
    limited_by: str
    units: int
    phases: int
    requeues: int
    unreadable_lines: int
    events: list[Happened]
    timeline: list[Point]
    last_points: list[Point]


@app.command("list")
def list_traces(
    json: JsonOption = False,
    number: Annotated[int, typer.Option("-n", "--number", metavar="N", help="The newest N; 0 for all.")] = 0,
) -> None:
    """The builds that left a trace in builddoctor's own folder, newest first: when, project, result, peak, time."""
    found = []
    paths = sorted(traces_folder(os.environ).glob("*.jsonl"), reverse=True)
    for path in paths[:number] if number > 0 else paths:
        try:
            found.append(peek(path))
        except TraceError as error:
            print_notes([f"builddoctor: {error}"])
    if json:
        print_data(json_text(found))
    else:
        print_lines(map(Text, trace_rows(found, width=page_width())))


@app.command("show")
def show(trace: TraceArgument = "last", json: JsonOption = False) -> None:
    """One page of a build: what died and why, memory over time, the worst phases, what happened, what to do."""
    path = find_trace(trace)
    report = read_build(path)
    verdict = judge_now(report, path)
    if json:
        print_data(json_text(_shown(report, verdict, path), pretty=True))
    else:
        print_lines(trace_page(report, verdict, width=page_width(), signs=_signs()))


@app.command("units")
def units(
    trace: TraceArgument = "last",
    sort: Annotated[
        str, typer.Option("--sort", metavar="KEY", help=f"{', '.join(SORTS)}; worst first, but for the last two.")
    ] = "peak",
    pattern: Annotated[
        str,
        typer.Option(
            "--filter",
            metavar="TEXT",
            help="Units that have it in their name, or that have a phase of that kind, architecture or outcome.",
        ),
    ] = "",
    json: JsonOption = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, a line a unit.")] = False,
) -> None:
    """The units of a trace with their phases, worst first: peak, estimate and truth, time, waits, requeues."""
    if sort not in SORTS:
        raise UsageError(f"there is no order {sort!r}", hint=f"--sort {' | '.join(SORTS)}")
    if json and as_csv:
        raise UsageError("--json and --csv are two answers", hint="ask for one of them")
    report = read_build(find_trace(trace))
    if report.skipped:
        print_notes([f"builddoctor: {report.skipped} unreadable lines passed over; the trace was cut off or torn"])
    found = sorted((unit for unit in report.units if _matches(unit, pattern)), key=SORTS[sort])
    if json:
        print_data(json_text(found))
    elif as_csv:
        print_data(_csv(found))
    else:
        print_lines(map(Text, unit_rows(found, width=page_width(), folder=report.header.cwd)))


@app.command("compare")
def compare_traces(
    before: Annotated[str, typer.Argument(metavar="A", help="A trace file or its id.")],
    after: Annotated[str, typer.Argument(metavar="B", help="A trace file, its id, or `last`.")] = "last",
    json: JsonOption = False,
) -> None:
    """Two builds: which units grew or slowed beyond how all of them differ, and what differs around them."""
    told = compare(read_build(find_trace(before)), read_build(find_trace(after)))
    if json:
        print_data(json_text(told))
    else:
        print_lines(comparison_page(told, width=page_width()))


def find_trace(name: str) -> Path:
    """A trace by file, by id, or ``last`` for the newest. Raises TraceError when there is none, or more than one."""
    path = Path(name)
    if path.exists():
        return path
    known = sorted(traces_folder(os.environ).glob("*.jsonl"))
    found = known[-1:] if name == "last" else [each for each in known if each.stem.rpartition("-")[2].startswith(name)]
    if len(found) == 1 and name:
        return found[0]
    raise TraceError(
        f"no trace {name!r}" if not found else f"{len(found)} traces begin with {name!r}",
        hint="`builddoctor trace list` shows those there are",
    )


def judge_now(report: TraceReport, path: Path) -> Verdict:
    """The verdict, seen from this machine at this moment."""
    boot_id = (SystemRoot().text("/proc/sys/kernel/random/boot_id") or "").strip()
    return judge(report, boot_id=boot_id, idle_s=idle_s(path))


def print_lines(lines: Iterable[Text]) -> None:
    """On stdout, with the signs that it can show."""
    signs = _signs()
    pages = list(lines)
    for line in pages if not signs.unicode else ():
        # One cell for one cell, as far as that goes: columns stay where they are.
        line.plain = signs.words(line.plain.replace("…", "~").replace("→", ">"))
    print_page(pages)


def _signs() -> Signs:
    """What stdout can show; into a file or a pipe, whatever its encoding can say."""
    unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    return ASCII if not unicode else signs_for(os.environ)


def _matches(unit: UnitRow, pattern: str) -> bool:
    wanted = pattern.lower()
    if not wanted or wanted in unit.unit.lower() or wanted in unit.output.lower():
        return True
    if wanted in ("again", "requeued", "redone"):
        return unit.requeues > 0
    return any(wanted in (phase.kind.lower(), phase.arch.lower(), phase.outcome.lower()) for phase in unit.phases)


def _csv(units: list[UnitRow]) -> str:
    """A line a unit. No control character gets through: what a table program would take for a formula is its affair."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    fixed = ["unit", "output", "archs", "peak_mib", "estimate_mib", "wall_s", "waited_s", "requeues", "worst_kind"]
    writer.writerow([*fixed, "worst_arch", "phases", *(f"{kind}_peak_mib" for kind in KINDS)])
    for unit in units:
        worst = unit.worst
        peaks = [max((phase.peak_mib for phase in unit.phases if phase.kind == kind), default="") for kind in KINDS]
        names = [unit.unit, unit.output, ",".join(unit.archs)]
        figures = [unit.peak_mib, unit.estimate_mib, round(unit.wall_s, 3), round(unit.waited_s, 3), unit.requeues]
        what = [worst.kind, worst.arch] if worst is not None else ["", ""]
        writer.writerow([*map(escaped, names), *figures, *map(escaped, what), len(unit.phases), *peaks])
    return text.getvalue().rstrip("\n")


def _shown(report: TraceReport, verdict: Verdict, path: Path) -> Shown:
    header, summary = report.header, report.summary
    return Shown(
        verdict=verdict.verdict,
        confidence=verdict.confidence,
        evidence=verdict.evidence,
        fixes=verdict.fixes,
        died=verdict.died,
        why=verdict.why,
        cause=verdict.cause,
        trace=str(path),
        trace_id=header.trace_id,
        title=header.title,
        command=header.command,
        cwd=header.cwd,
        archs=header.archs,
        nvcc=header.nvcc,
        started_at=header.started_at,
        whole=report.whole,
        result=summary.result if summary is not None else None,
        exit_code=report.exit_code,
        wall_s=summary.wall_s if summary is not None else report.last_at_s,
        peak_mib=report.peak_mib,
        limit_mib=report.limit_mib,
        limited_by=header.limited_by,
        units=len(report.units),
        phases=len(report.phases),
        requeues=sum(phase.requeues for phase in report.phases),
        unreadable_lines=report.skipped,
        events=report.events,
        timeline=report.timeline,
        last_points=report.last_points,
    )
