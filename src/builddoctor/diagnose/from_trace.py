"""Why a traced build failed, from the trace alone: a verdict, how sure it is, its evidence, and what to do. Pure.

Covers: failures that builddoctor saw itself, compilers that failed by themselves, builds that were interrupted, and
traces that stop short. Does *not* cover: the texts of compilers, which a trace does not hold.

Fixes come cheapest and least intrusive first.
"""

from __future__ import annotations

from builddoctor.model.verdict import Confidence, Fix, Verdict, VerdictName, verdict_name
from builddoctor.trace.endings import Ending, how_it_ended
from builddoctor.trace.gather import name_of
from builddoctor.trace.report import Attempt, PhaseRow, TraceReport
from builddoctor.units import format_clock, format_gib, format_mib, shell_word

ROOM = 1.25
"""A phase was ended before it was at its peak: what is advised is this much above what it held."""

AMPLE_SHARE = 0.1
"""of the limit free all the time: a compiler that failed did not fail for memory"""


def judge(report: TraceReport, *, boot_id: str = "", idle_s: float | None = None) -> Verdict:
    """Judge a build by its trace.

    ``boot_id``: this machine's now; empty when it is not known. ``idle_s``: since the trace was last written to.
    """
    summary = report.summary
    if summary is None:
        return _cut_off(report, how_it_ended(report, boot_id=boot_id, idle_s=idle_s))
    if summary.result == "ok":
        return Verdict(verdict=None, confidence="high", died="", why="the build went well", evidence=_course(report))
    if summary.result == "interrupted":
        why = f"the build was interrupted after {format_clock(summary.wall_s)}"
        return Verdict(verdict=None, confidence="high", died="", why=why, evidence=_course(report))
    blamed = _given_up(report)
    if summary.verdict is not None and blamed is not None:
        return _gave_up(report, summary.verdict, blamed)
    failed = _failed_by_itself(report)
    if failed is not None:
        return _source(report, failed)
    return Verdict(
        verdict=verdict_name(summary.verdict or "unknown"),
        confidence="low",
        died=f"the build, with exit code {summary.exit_code}",
        why="no compiler phase failed: something else of the build did, and what it printed says what",
        evidence=_course(report),
        fixes=[Fix(text="read the last lines that the build printed"), _doctor(report)],
    )


# -- what builddoctor gave up ------------------------------------------------------------------------------------


def _given_up(report: TraceReport) -> PhaseRow | None:
    """The phase that could not be saved."""
    ids = [event.phase_id for event in report.events if event.kind == "give-up"]
    return next((phase for phase in report.phases if ids and phase.phase_id == ids[-1]), None)


def _gave_up(report: TraceReport, verdict: str, phase: PhaseRow) -> Verdict:
    last = phase.attempts[-1] if phase.attempts else Attempt(admitted_at_s=0, reserve_mib=0, running=1)
    held, limit = format_mib(phase.peak_mib), format_gib(report.limit_mib)
    reason = next((event.text for event in reversed(report.events) if event.kind == "give-up"), "")
    evidence = [f"at {_clock(last)}: {reason}", *_runs(phase), *_course(report)]
    known: dict[str, tuple[str, Confidence, list[Fix | None]]] = {
        "too-big": (
            f"it does not fit: it held {held} of the {limit} GiB limit while it ran alone. Fewer jobs cannot help",
            "high",
            [_more_memory(report, phase), _fewer_archs(report), _toolkit(report)],
        ),
        "runaway": (
            f"it grew without end: {held} when it was ended, and still rising. {_ALL_OF_IT}",
            "high",
            [_toolkit(report), *_RUNAWAY_FIXES],
        ),
        "external-kill": (
            f"it was killed twice from outside, at {held}; no kernel counter rose, so it was not this memory limit",
            "medium",
            [*_WHO_KILLED, _lower_limit(report)],
        ),
        "not-redoable": (
            f"it was killed for memory at {held}; it reads or writes a pipe and cannot be run again",
            "high",
            [Fix(text="run the build again with fewer cores", command=_again(report, "--cores", "1"))],
        ),
    }
    why, confidence, fixes = known.get(verdict, (f"builddoctor gave it up at {held}", "low", []))
    return Verdict(
        verdict=verdict_name(verdict),
        confidence=confidence,
        died=_death(phase, last),
        why=why,
        evidence=evidence,
        fixes=[fix for fix in fixes if fix is not None],
    )


def _death(phase: PhaseRow, last: Attempt) -> str:
    by = {
        "killed-by-kernel": "killed by the kernel",
        "killed-by-us": "ended by builddoctor before the kernel would",
        "killed-outside": "killed from outside",
    }.get(last.outcome, "given up")
    return f"{name_of(phase)}, {by} at {format_mib(phase.peak_mib)} after {format_clock(last.wall_s)}"


def _runs(phase: PhaseRow) -> list[str]:
    """Every run of a phase in a line."""
    said = []
    for number, run in enumerate(phase.attempts, 1):
        beside = "alone" if run.running <= 1 else f"beside {run.running - 1} others"
        why = f": {run.killed_for}" if run.killed_for else ""
        said.append(
            f"run {number}, {beside}, from {format_clock(run.admitted_at_s)}: {run.outcome or 'not ended'} at "
            f"{format_mib(run.peak_mib)} after {format_clock(run.wall_s)}, {format_mib(run.reserve_mib)} set aside{why}"
        )
    return said[-6:]


def _clock(run: Attempt) -> str:
    return format_clock(run.admitted_at_s if run.ended_at_s is None else run.ended_at_s)


# -- failures of its own -----------------------------------------------------------------------------------------


def _failed_by_itself(report: TraceReport) -> PhaseRow | None:
    """The first phase that ended with an error of its own; what configure steps try out may fail."""
    counted = [phase for unit in report.units for phase in unit.phases if phase.outcome == "failed"]
    failed = counted or [phase for phase in report.other_phases if phase.outcome == "failed"]
    return min(failed, key=_ended_at, default=None)


def _ended_at(phase: PhaseRow) -> float:
    return (phase.attempts[-1].ended_at_s or 0.0) if phase.attempts else 0.0


def _source(report: TraceReport, phase: PhaseRow) -> Verdict:
    last = phase.attempts[-1] if phase.attempts else Attempt(admitted_at_s=0, reserve_mib=0, running=1)
    how = f"signal {last.signal}" if last.signal is not None else f"exit code {last.exit_code}"
    held = format_mib(phase.peak_mib)
    evidence = [f"at {_clock(last)}: {name_of(phase)} ended with {how} at {held}; nobody killed it"]
    spared = _least_free_share(report)
    if spared is not None:
        evidence.append(f"whenever memory was looked at, {spared:.0%} of the limit or more was free")
    verdict: VerdictName
    if last.signal is not None:
        verdict, why = "toolchain", f"it crashed by itself, with {how}"
        fixes = [_toolkit(report), _doctor(report)]
    else:
        verdict = "source"
        why = "it ended with an error of its own, and was not killed: what the build printed says which"
        fixes = [Fix(text="read the first error that the build printed"), _doctor(report)]
    ample = spared is not None and spared > AMPLE_SHARE
    return Verdict(
        verdict=verdict,
        confidence="medium" if ample else "low",
        died=f"{name_of(phase)}, with {how} after {format_clock(last.wall_s)}",
        why=why,
        evidence=[*evidence, *_course(report)],
        fixes=fixes,
    )


# -- traces that stop short --------------------------------------------------------------------------------------


def _cut_off(report: TraceReport, ending: Ending) -> Verdict:
    if ending.still_running:
        why = f"the build still runs: {format_clock(report.last_at_s)} so far"
        return Verdict(verdict=None, confidence="medium", died="", why=why)
    fixes = [_lower_limit(report)] if ending.memory_was_short else []
    fixes += [Fix(text=text, command=command) for text, command in ending.look_at]
    fixes.append(Fix(text="run the build again: what was done is kept", command=_again(report)))
    return Verdict(
        verdict="unknown",
        confidence="medium" if ending.memory_was_short else "low",
        died=f"builddoctor itself, at {format_clock(report.last_at_s)}: the trace stops short",
        why=ending.why,
        evidence=[*ending.evidence, *_course(report)],
        fixes=fixes,
    )


# -- evidence ----------------------------------------------------------------------------------------------------


def _course(report: TraceReport) -> list[str]:
    """What else the build went through, in figures."""
    summary = report.summary
    lines = [f"limit {format_gib(report.limit_mib)} GiB, set by {report.header.limited_by}"]
    if summary is not None:
        lines.append(
            f"peak {format_gib(summary.peak_mib)} GiB, kernel kills {summary.kernel_oom_kills}, ended by builddoctor "
            f"{summary.killed}, run again {summary.requeued}"
        )
    if report.skipped:
        lines.append(f"{report.skipped} lines of the trace could not be read")
    return lines


def _least_free_share(report: TraceReport) -> float | None:
    shares = [1 - point.used_mib / point.limit_mib for point in report.timeline if point.limit_mib > 0]
    return max(0.0, min(shares)) if shares else None


# -- fixes -------------------------------------------------------------------------------------------------------

_ALL_OF_IT = "Fewer jobs cannot help: one process took all of it; nor does more memory"
_RUNAWAY_FIXES = [
    Fix(text="another host compiler: nvcc -ccbin", command="export NVCC_CCBIN=g++-12", changes_binary=True),
    Fix(
        text="-std=c++17 in place of c++20 (as in NVIDIA/TransformerEngine#1996 and CLIUtils/CLI11#1378)",
        changes_binary=True,
    ),
]
_WHO_KILLED = [
    Fix(text="ask the system's log who it was", command="journalctl -k --since today | grep -iE 'kill|oom'"),
    Fix(text="ask for other killers", command="systemctl list-units | grep -iE 'oomd|earlyoom|nohang'"),
]


def _more_memory(report: TraceReport, phase: PhaseRow) -> Fix:
    wanted_mib = ROOM * max(phase.peak_mib, report.limit_mib) + max(0.0, report.limit_mib - report.header.budget_mib)
    return Fix(text=f"a memory limit of {format_gib(wanted_mib)} GiB or more; it is set by {report.header.limited_by}")


def _fewer_archs(report: TraceReport) -> Fix | None:
    archs = {arch for unit in report.units for arch in unit.archs}
    if len(archs) < 2:
        return None
    return Fix(text=f"fewer architectures than {', '.join(sorted(archs))}", changes_binary=True)


def _toolkit(report: TraceReport) -> Fix:
    had = f" than {report.header.nvcc}" if report.header.nvcc else ""
    return Fix(
        text=f"another minor version of nvcc{had}",
        command=_again(report, "--toolkit", "VERSION"),
        changes_binary=True,
    )


def _lower_limit(report: TraceReport) -> Fix:
    lower_mib = max(64.0, 0.8 * report.limit_mib)
    return Fix(
        text="keep more memory free for what else lives in the same limit",
        command=_again(report, "--memory", f"{lower_mib / 1024:.1f}GiB"),
    )


def _doctor(report: TraceReport) -> Fix:
    command = f"builddoctor doctor {shell_word(report.header.cwd)}"
    return Fix(text="let host, toolchain and source be examined", command=command)


def _again(report: TraceReport, *options: str) -> str:
    """The same build once more, to be pasted."""
    header = report.header
    command = " ".join(shell_word(word) for word in header.command)
    return " ".join(["cd", shell_word(header.cwd), "&& builddoctor run", *options, "--", command])
