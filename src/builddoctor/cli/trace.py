"""``builddoctor trace list|show|units|compare|replay``: the traces there are, and what they say."""

from __future__ import annotations

import csv
import io
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from builddoctor.cli.naming import BUILD_HELP, BuildArgument, find_trace
from builddoctor.cli.output import (
    JsonOption,
    json_text,
    names_are_whole,
    page_signs,
    page_width,
    print_answer,
    print_data,
    print_notes,
    print_page,
)
from builddoctor.core.errors import TraceError, UsageError
from builddoctor.core.units import escaped, format_mib
from builddoctor.core.verdict import Diagnosis, Fix
from builddoctor.diagnose.from_trace import judge
from builddoctor.runtime.folders import traces_folder
from builddoctor.runtime.kept import prune_traces
from builddoctor.system.root import SystemRoot
from builddoctor.trace.analysis import idle_s, peek, read_build
from builddoctor.trace.compare import compare
from builddoctor.trace.held_back import HeldBack, held_back
from builddoctor.trace.reader import TraceReader
from builddoctor.trace.replay import Difference, replay
from builddoctor.trace.report import Happened, Point, TraceReport, UnitRow
from builddoctor.ui.markdown import job_summary
from builddoctor.ui.trace_page import (
    KINDS,
    comparison_page,
    failure_lines,
    replay_page,
    trace_page,
    trace_rows,
    unit_rows,
)

app = typer.Typer(no_args_is_help=True, help="Read the traces of builds.", rich_markup_mode=None)


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
    held_back: HeldBack | None
    """None where nothing ran, or the end is not known"""
    unreadable_lines: int
    events: list[Happened]
    timeline: list[Point]
    last_points: list[Point]


@app.command("list")
def list_traces(
    json: JsonOption = False,
    number: Annotated[int, typer.Option("-n", "--number", metavar="N", help="The newest N; 0 for all.")] = 0,
) -> None:
    """List the traces in builddoctor's folder, newest first: start, project, result, peak, time."""
    found = []
    paths = sorted(traces_folder(os.environ).glob("*.jsonl"), reverse=True)
    for path in paths[:number] if number > 0 else paths:
        try:
            found.append(peek(path))
        except TraceError as error:
            print_notes([f"builddoctor: {error}"])
    print_answer(found, lambda: trace_rows(found, width=page_width(), whole=names_are_whole()), json=json)


@app.command("show")
def show(
    trace: BuildArgument = "last",
    json: JsonOption = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="For the summary of a CI job.")] = False,
) -> None:
    """Show one page about a build: what failed and why, memory over time, the worst phases, events, fixes.

    \b
    Examples:
      builddoctor trace show                        # the last build
      builddoctor trace show demo~1                 # the one before the last of project demo
    """
    path = find_trace(trace)
    report = read_build(path)
    verdict = judge_now(report, path)
    if json:
        print_data(json_text(_shown(report, verdict, path), pretty=True))
    elif markdown:
        print_data(job_summary(report, verdict).rstrip("\n"))
    else:
        print_page(trace_page(report, verdict, width=page_width(), signs=page_signs()))


@app.command("units")
def units(
    trace: BuildArgument = "last",
    sort: Annotated[
        str, typer.Option("--sort", metavar="KEY", help=f"{', '.join(SORTS)}; worst first, except for the last two.")
    ] = "peak",
    pattern: Annotated[
        str,
        typer.Option(
            "--filter",
            metavar="TEXT",
            help="Only units with this text in their name, or with a phase of this kind, architecture or outcome.",
        ),
    ] = "",
    json: JsonOption = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, a line a unit.")] = False,
) -> None:
    """List the units of a trace, worst first: peak, estimate and its error, time, waits, requeues.

    \b
    Examples:
      builddoctor trace units --sort waited
      builddoctor trace units demo --filter cicc --csv
    """
    if sort not in SORTS:
        raise UsageError(f"unknown sort key {sort!r}", hint=f"--sort {' | '.join(SORTS)}")
    if json and as_csv:
        raise UsageError("--json and --csv exclude each other", hint="use one of them")
    report = read_build(find_trace(trace))
    if report.skipped:
        print_notes([f"builddoctor: {report.skipped} unreadable lines were skipped; the trace was cut off or torn"])
    found = sorted((unit for unit in report.units if _matches(unit, pattern)), key=SORTS[sort])
    if json:
        print_data(json_text(found))
    elif as_csv:
        print_data(_csv(found))
    else:
        print_page(unit_rows(found, width=page_width(), folder=report.header.cwd, whole=names_are_whole()))


@app.command("compare")
def compare_traces(
    before: Annotated[str, typer.Argument(metavar="A", help=BUILD_HELP)],
    after: Annotated[str, typer.Argument(metavar="B", help="The later one, likewise.")] = "last",
    json: JsonOption = False,
) -> None:
    """Compare two builds: units that grew or slowed more than the others, and what else differs.

    \b
    Examples:
      builddoctor trace compare last~1              # with the last
      builddoctor trace compare demo~1 demo
    """
    told = compare(read_build(find_trace(before)), read_build(find_trace(after)))
    print_answer(told, lambda: comparison_page(told, width=page_width()), json=json)


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """What ``trace replay --json`` prints."""

    trace: str
    agrees: bool
    facts: int
    """that were decided upon again: all, or up to the first on which the decisions differ"""
    decisions: int
    """of the build, up to there"""
    skipped: int
    """unreadable lines"""
    difference: Difference | None


@app.command("replay")
def replay_trace(trace: BuildArgument = "last", json: JsonOption = False) -> None:
    """Decide again on what a build saw: does this version admit, pause and end the same phases? Exit code 1: no."""
    path = find_trace(trace)
    reader = TraceReader(path)
    found = replay(reader)
    told = Replayed(
        trace=str(path),
        agrees=found.agrees,
        facts=found.facts,
        decisions=found.decisions,
        skipped=reader.skipped,
        difference=found.difference,
    )
    print_answer(told, lambda: replay_page(found, skipped=reader.skipped), json=json)
    if not found.agrees:
        raise typer.Exit(1)


@app.command("prune")
def prune(
    days: Annotated[float, typer.Option("--days", metavar="N", help="Older ones go.")] = 90.0,
    gib: Annotated[
        float, typer.Option("--gib", metavar="N", help="Then the oldest go, until the rest takes no more.")
    ] = 1.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    json: JsonOption = False,
) -> None:
    """Remove old traces from builddoctor's folder, with what they keep for `trace repro`."""
    if days < 0 or gib < 0:
        raise UsageError("less than nothing cannot be kept", hint="`--days 0` removes all that no build still writes")
    gone = prune_traces(os.environ, now_s=time.time(), days=days, most_mib=gib * 1024, really=not dry_run)
    went = f"{gone.traces} traces {'would go' if dry_run else 'removed'}, {format_mib(gone.size_mib)}"
    print_answer(gone, f"{went}; {gone.left} left, {format_mib(gone.left_mib)}", json=json)


def judge_now(report: TraceReport, path: Path) -> Diagnosis:
    """The verdict, seen from this machine at this moment."""
    boot_id = (SystemRoot().text("/proc/sys/kernel/random/boot_id") or "").strip()
    return judge(report, boot_id=boot_id, idle_s=idle_s(path))


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


def _shown(report: TraceReport, verdict: Diagnosis, path: Path) -> Shown:
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
        held_back=held_back(report),
        unreadable_lines=report.skipped,
        events=report.events,
        timeline=report.timeline,
        last_points=report.last_points,
    )


def last_words(trace: str) -> list[str]:
    """The lines; none when the trace cannot be read (a full disk), or has nothing to explain."""
    try:
        report = read_build(Path(trace))
    except (TraceError, ValueError):
        return []
    verdict = judge(report)
    if verdict.verdict is None or not report.whole:
        return []
    width = page_width()
    return failure_lines(report, verdict, width=width)
