"""What to do about a traced build that failed, cheapest first, with commands to paste. Pure.

Covers: putting together the ladder of a verdict, what the catalogue has on the line that was printed, and what only a
trace can offer. Does *not* cover: the remedies themselves (``diagnose.remedies``).
"""

from __future__ import annotations

from builddoctor.diagnose.conditions import holds
from builddoctor.diagnose.facts import Facts, ProcessLimit
from builddoctor.diagnose.project_settings import settings_of
from builddoctor.diagnose.remedies import RemedyFacts, ladder
from builddoctor.diagnose.repro_command import repro_command
from builddoctor.diagnose.spoken import entry_of
from builddoctor.model.verdict import Fix, VerdictName
from builddoctor.trace.report import TraceReport
from builddoctor.units import shell_word

SENT_TO_MAKERS = ("runaway", "toolchain", "too-big")
OF_TEXTS = ("toolchain", "source", "gpu-oom")
"""Here the line that was printed knows more than the verdict; elsewhere a trace knows more than the line."""

EXAMINED = ("toolchain", "source", "unknown")


def ways_out(facts: Facts, verdict: VerdictName | None, report: TraceReport) -> list[Fix]:
    """All of them, each once."""
    if verdict is None:
        return []
    fixes: list[Fix] = []
    entry = entry_of(facts.text.entry) if facts.text is not None and facts.text.verdict == verdict else None
    limit = breached(facts) if verdict == "rlimit" else None
    steps = ladder(verdict, remedy_facts(facts, report)) if limit is None else [_raise(limit)]
    if entry is not None and entry.fixes and (verdict in OF_TEXTS or not steps):
        fixes += entry.fixes
        steps = []
    if verdict in ("source", "unknown") and not fixes:
        fixes.append(Fix(text="read the first error that the build printed"))
    fixes += steps
    # What the line itself explains is no maker's business, unless the compiler crashed over it.
    explained = verdict == "toolchain" and bool(fixes) and not holds("crashed", facts)
    phase = None if verdict not in SENT_TO_MAKERS or explained else facts.phase
    if phase is not None and (command := repro_command(report, phase)):
        fixes.append(Fix(text="send the maker of the compiler this one phase, to be run by itself", command=command))
    if verdict in EXAMINED:
        fixes.append(doctor(report))
    known: dict[tuple[str, str], Fix] = {}
    for fix in fixes:
        known.setdefault((fix.text, fix.command), fix)
    return list(known.values())


def breached(facts: Facts) -> ProcessLimit | None:
    """The limit that it was, where it is none on memory."""
    if holds("processor time signal", facts) or (facts.gave_up and holds("processor time used up", facts)):
        return facts.cpu
    if holds("file size signal", facts):
        return facts.file_size
    return facts.processes if facts.cap is None else None


def _raise(limit: ProcessLimit) -> Fix:
    if not limit.flag:
        return Fix(text=f"raise {limit.name}: of the container (`--pids-limit`), the pod, or the service (TasksMax=)")
    return Fix(
        text=f"raise {limit.name} for this shell; above the hard limit only an administrator can",
        command=f"ulimit {limit.flag} unlimited",
    )


def remedy_facts(facts: Facts, report: TraceReport) -> RemedyFacts:
    """What the trace knows of what remedies ask for."""
    header, phase, scene = report.header, facts.phase, facts.scene
    unit = next((each for each in report.units if phase is not None and each.unit_id == phase.unit_id), None)
    temporary = next((each for each in (scene.folders if scene is not None else ()) if each.role == "TMPDIR"), None)
    archs = {arch for each in report.units for arch in each.archs} | set(header.archs)
    return RemedyFacts(
        project=settings_of(header.title).name,
        cwd=header.cwd,
        command=tuple(header.command),
        supervised=True,
        tool="" if phase is None else phase.tool.rpartition("/")[2],
        source="" if phase is None else phase.source,
        arch="" if phase is None else phase.arch,
        archs=tuple(sorted(archs)),
        threads=None if unit is None else unit.threads,
        jobs=header.window or None,
        nvcc=header.nvcc,
        peak_mib=facts.peak_mib or None,
        limit_mib=report.limit_mib or None,
        reserve_mib=max(0.0, header.limit_mib - header.budget_mib),
        limited_by=header.limited_by,
        scheduler="" if scene is None else scene.scheduler,
        tmpdir="" if temporary is None else temporary.path,
        tmp_in_memory=None if temporary is None else temporary.in_memory,
        remedied=("auto-remedy", "ggc") if report.summary is not None and report.summary.remedied else (),
    )


def doctor(report: TraceReport) -> Fix:
    command = f"builddoctor doctor {shell_word(report.header.cwd)}"
    return Fix(text="let host, toolchain and source be examined", command=command)


def lower_limit(report: TraceReport) -> Fix:
    lower_mib = max(64.0, 0.8 * report.limit_mib)
    return Fix(
        text="keep more memory free for what else lives in the same limit",
        command=again(report, "--memory", f"{lower_mib / 1024:.1f}GiB"),
    )


def again(report: TraceReport, *options: str) -> str:
    """The same build once more, to be pasted."""
    header = report.header
    command = " ".join(shell_word(word) for word in header.command)
    return " ".join(["cd", shell_word(header.cwd), "&& builddoctor run", *options, "--", command])
