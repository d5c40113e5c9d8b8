"""Why a traced build failed, from the trace alone: a verdict, how sure it is, its evidence, and what to do. Pure.

Covers: builds that failed, were interrupted, or whose trace stops short. Facts (``diagnose.trace_facts``), then a table
(``diagnose.rules``), then the words of what died, why and the evidence, and ways out with commands to paste.
Does *not* cover: logs without a trace (``diagnose.from_log``), or the remedies themselves (``diagnose.remedies``).
"""

from __future__ import annotations

import signal

import msgspec

from builddoctor.core.events import BuildResult
from builddoctor.core.evidence import Folder, Scene
from builddoctor.core.units import format_clock, format_gib, format_mib, shell_word
from builddoctor.core.verdict import Diagnosis, Fix, Verdict
from builddoctor.core.word import Confidence
from builddoctor.diagnose.catalogue import entry_of, fixes_of
from builddoctor.diagnose.remedies import again, ladder, lower, values
from builddoctor.diagnose.remedy_facts import RemedyFacts, settings_of
from builddoctor.diagnose.rules import (
    Rule,
    counters_read,
    cpu_time_signal,
    cpu_time_used_up,
    crashed,
    decide,
    ending_signal,
    file_size_signal,
    text_of_a_kill,
)
from builddoctor.diagnose.trace_facts import Facts, Printed, ProcessLimit, case_of, gather_facts, is_full
from builddoctor.trace.analysis import Ending, how_it_ended
from builddoctor.trace.commands import command_of
from builddoctor.trace.report import Attempt, PhaseRow, TraceReport


def judge(report: TraceReport, *, boot_id: str = "", idle_s: float | None = None) -> Diagnosis:
    """Judge a build by its trace.

    ``boot_id``: this machine's now; empty when it is not known. ``idle_s``: since the trace was last written to.
    """
    summary = report.summary
    if summary is None:
        return _cut_off(report, how_it_ended(report, boot_id=boot_id, idle_s=idle_s))
    if summary.result is BuildResult.OK:
        return Diagnosis(
            verdict=None, confidence=Confidence.HIGH, died="", why="the build went well", evidence=course(report)
        )
    facts = gather_facts(report)
    rule = decide(facts)
    verdict = _verdict(rule, facts)
    if verdict is None:
        return Diagnosis(
            verdict=None, confidence=rule.confidence, died="", why=why(rule, facts), evidence=course(report)
        )
    text = facts.text
    return Diagnosis(
        verdict=verdict,
        confidence=rule.confidence,
        died=death(facts),
        why=why(rule, facts),
        cause=text.entry if text is not None and text.verdict == verdict else "",
        root=root.text if (root := _root(facts, verdict)) is not None else "",
        evidence=evidence(rule, facts, verdict, report),
        fixes=ways_out(facts, verdict, report),
    )


def _root(facts: Facts, verdict: Verdict) -> Printed | None:
    """What the build printed first: the line that says the cause, else the first error in a tool's own words."""
    says = facts.text is not None and facts.text.says and facts.text.verdict is verdict
    return facts.text if says or facts.root is None else facts.root


def _verdict(rule: Rule, facts: Facts) -> Verdict | None:
    if not rule.by_text:
        return rule.verdict
    return facts.text.verdict if facts.text is not None else Verdict.UNKNOWN


def _cut_off(report: TraceReport, ending: Ending) -> Diagnosis:
    if ending.still_running:
        still = f"the build still runs: {format_clock(report.last_at_s)} so far"
        return Diagnosis(verdict=None, confidence=Confidence.MEDIUM, died="", why=still)
    build = RemedyFacts(cwd=report.header.cwd, command=tuple(report.header.command), supervised=True)
    fixes: list[Fix] = []
    if ending.memory_was_short:
        less = again(build, supervised=True, options=f"--memory {lower(report.limit_mib)}")
        fixes.append(Fix(text="keep more memory free for what else lives in the same limit", command=less))
    fixes += [Fix(text=text, command=command) for text, command in ending.look_at]
    same = again(build, supervised=True)
    fixes.append(Fix(text="run the build again: what was done is kept", command=same))
    return Diagnosis(
        verdict=Verdict.UNKNOWN,
        confidence=Confidence.MEDIUM if ending.memory_was_short else Confidence.LOW,
        died=f"builddoctor itself, at {format_clock(report.last_at_s)}: the trace stops short",
        why=ending.why,
        evidence=[*ending.evidence, *course(report)],
        fixes=fixes,
    )


# -- words -----------------------------------------------------------------------------------------------------------


LAST_LINES = 4
RUNS_TOLD = 6

_BY = {
    "killed-by-kernel": "killed by the kernel",
    "killed-by-us": "ended by builddoctor for want of memory",
    "killed-outside": "killed from outside",
}


def why(rule: Rule, facts: Facts) -> str:
    """The rule's sentence, filled in."""
    return rule.why.format_map(_words(facts))


def death(facts: Facts) -> str:
    """What died, in a line; the build itself where no phase did."""
    phase, last = facts.phase, facts.last
    if phase is None or last is None:
        return f"the build, with exit code {facts.exit_code}"
    after = format_clock(last.wall_s)
    if facts.failed:
        return f"{phase.name}, with {_how(last)} after {after}"
    return f"{phase.name}, {_BY.get(last.outcome, 'given up')} at {format_mib(phase.peak_mib)} after {after}"


def evidence(rule: Rule, facts: Facts, verdict: Verdict | None, report: TraceReport) -> list[str]:
    """What it rests on, the strongest first."""
    lines = [*_of_phase(facts), *_of_kernel(facts)]
    lines += _of_surroundings(facts, verdict)
    lines += _of_text(facts, verdict)
    if facts.failed and facts.least_free_share is not None:
        lines.append(f"whenever memory was looked at, {facts.least_free_share:.0%} of the limit or more was free")
    if verdict == Verdict.UNKNOWN or (rule.confidence == Confidence.LOW and facts.text is None):
        lines += _last_printed(report)
    return [*lines, *course(report)]


def course(report: TraceReport) -> list[str]:
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


# -- the phase ---------------------------------------------------------------------------------------------------


def _of_phase(facts: Facts) -> list[str]:
    phase = facts.phase
    if phase is None:
        return []
    last = facts.last or Attempt(admitted_at_s=0, reserve_mib=0, running=1)
    if facts.gave_up:
        return [f"at {_clock(last)}: {facts.reason}", *_runs(phase)]
    held = format_mib(phase.peak_mib)
    sent = "it came from outside" if ending_signal(facts) else "nothing killed it"
    return [f"at {_clock(last)}: {phase.name} ended with {_how(last)} at {held}; {sent}"]


def _runs(phase: PhaseRow) -> list[str]:
    """Every run of a phase in a line."""
    said = []
    for number, run in enumerate(phase.attempts, 1):
        beside = "alone" if run.running <= 1 else f"beside {run.running - 1} others"
        ended = f": {run.killed_for}" if run.killed_for else ""
        said.append(
            f"run {number}, {beside}, from {format_clock(run.admitted_at_s)}: {run.outcome or 'not ended'} at "
            f"{format_mib(run.peak_mib)} after {format_clock(run.wall_s)}, {format_mib(run.reserve_mib)} set aside"
            f"{ended}"
        )
    return said[-RUNS_TOLD:]


def _how(last: Attempt) -> str:
    if last.signal is None:
        return f"exit code {last.exit_code}"
    return f"signal {last.signal} ({name})" if (name := _signal_name(last.signal)) else f"signal {last.signal}"


def _signal_name(number: int | None) -> str:
    try:
        return signal.Signals(number or 0).name
    except ValueError:
        return ""


def _clock(run: Attempt) -> str:
    return format_clock(run.admitted_at_s if run.ended_at_s is None else run.ended_at_s)


# -- what was around ---------------------------------------------------------------------------------------------


def _of_kernel(facts: Facts) -> list[str]:
    lines = []
    if facts.kernel is not None:
        lines.append(f"the kernel's log: {facts.kernel.constraint_text or facts.kernel.text}")
    if facts.crash_line:
        lines.append(f"the kernel's log: {facts.crash_line}")
    return lines


def _of_surroundings(facts: Facts, verdict: Verdict | None) -> list[str]:
    scene = facts.scene
    if scene is None:
        return []
    lines: list[str] = []
    if facts.parent is not None:
        parent = facts.parent
        lines.append(
            f"{parent.directory}: its limit of {format_mib(parent.limit_mib)} was reached, and others than the group "
            f"of this build held {format_mib(parent.others_mib)} of it right after; that group was below its own limit"
        )
    if verdict in (Verdict.DISK_FULL, Verdict.TMPFS) or facts.full is not None:
        shown = {folder.path: folder for folder in (facts.full, *scene.folders) if folder is not None}
        lines += [_folder_line(folder) for folder in shown.values() if folder.role != "trace" or is_full(folder)]
    if verdict == Verdict.TMPFS or facts.tmpfs_mib >= 0.1 * max(facts.limit_mib, 1.0):
        lines.append(f"{format_mib(facts.tmpfs_mib)} of the build's memory are files on tmpfs, or shared memory")
    lines += [
        f"limit on each process: {_cap(cap)}" for cap in (facts.cap, facts.cpu, facts.file_size) if cap is not None
    ]
    if facts.processes is not None:
        lines.append(f"limit on the number of processes: {_processes(facts)}")
    if scene.nodes_allowed or scene.policy:
        lines.append(f"NUMA nodes that it may use: {_nodes(scene)}")
    if facts.job:
        allotted = f", allotted {format_mib(scene.allotted_mib)}" if scene.allotted_mib is not None else ""
        lines.append(f"in {facts.job}{allotted}")
    if scene.unread:
        lines.append(f"could not be read: {', '.join(scene.unread[:3])}")
    return lines


def _folder_line(folder: Folder) -> str:
    kind = f" ({folder.filesystem})" if folder.filesystem else ""
    return f"{folder.role} {folder.path}{kind}: {_left(folder)}"


def _left(folder: Folder) -> str:
    if folder.missing:
        return "there is no such folder"
    parts = []
    if folder.free_mib is not None:
        total = f" of {format_mib(folder.total_mib)}" if folder.total_mib is not None else ""
        parts.append(f"{format_mib(folder.free_mib)}{total} free")
    if folder.free_inodes is not None and (folder.free_inodes < 1 or not parts):
        parts.append(f"{folder.free_inodes} inodes free")
    if not folder.writable:
        parts.append("not writable")
    return ", ".join(parts) or "its room is not known"


def _cap(limit: ProcessLimit) -> str:
    size = f"{limit.size:.0f} s" if limit.name == "RLIMIT_CPU" else format_mib(limit.size)
    return f"{limit.name} (`ulimit {limit.flag}`) of {size}"


def _processes(facts: Facts) -> str:
    limit = facts.processes
    if limit is None:
        return ""
    return f"{limit.name}{f' (`ulimit {limit.flag}`)' if limit.flag else ''} of {limit.size:.0f}"


def _nodes(scene: Scene) -> str:
    return " ".join(part for part in (scene.nodes_allowed, scene.policy) if part)


# -- what was printed --------------------------------------------------------------------------------------------


def _of_text(facts: Facts, verdict: Verdict | None) -> list[str]:
    text = facts.text
    if text is None:
        return []
    if text.verdict in (verdict, Verdict.UNKNOWN):
        return [text.quoted]
    if text_of_a_kill(facts) and facts.kernel_kills == 0 and counters_read(facts):
        return [text.quoted, "but no kernel counter rose: a text alone is no evidence of a kill"]
    return [text.quoted, f"that alone would speak for {text.verdict}"]


def _last_printed(report: TraceReport) -> list[str]:
    return [
        f"the build printed last{f' on {tail.stream}' if tail.stream else ''}: {line}"
        for tail in report.tails
        for line in [each for each in tail.lines if each.strip()][-LAST_LINES:]
    ]


# -- words for sentences -----------------------------------------------------------------------------------------


def _words(facts: Facts) -> dict[str, str]:
    scene, text, full, parent = facts.scene, facts.text, facts.full, facts.parent
    folders = () if scene is None else scene.folders
    in_memory = next((folder for folder in folders if folder.in_memory), None)
    cause = "" if text is None else (text.cause or text.text)
    return {
        "held": format_mib(facts.peak_mib),
        "limit": f"{format_gib(facts.limit_mib)} GiB",
        "after": format_clock(facts.wall_s),
        "most_running": str(facts.most_running),
        "signal": _signal_name(facts.signal) or f"signal {facts.signal}",
        "job": facts.job,
        "unit": "" if scene is None else scene.unit_stops,
        "kernel_kills": str(facts.kernel_kills),
        "allotted": "" if scene is None else format_mib(scene.allotted_mib or 0.0),
        "available": "" if scene is None else format_mib(scene.available_mib or 0.0),
        "constraint": "" if facts.kernel is None else facts.kernel.constraint,
        "node": facts.node,
        "nodes": "" if scene is None else _nodes(scene),
        "parent": "" if parent is None else parent.directory,
        "parent_limit": "" if parent is None else format_mib(parent.limit_mib),
        "others": "" if parent is None else format_mib(parent.others_mib),
        "tmpfs": format_mib(facts.tmpfs_mib),
        "tmpfs_folder": "" if in_memory is None else f" ({in_memory.role} {in_memory.path} is such a place)",
        "cap": "" if facts.cap is None else _cap(facts.cap),
        "cpu": "" if facts.cpu is None else f"{facts.cpu.size:.0f} s",
        "cpu_limit": "" if facts.cpu is None else f": {_cap(facts.cpu)}",
        "file_limit": "" if facts.file_size is None else f": {_cap(facts.file_size)}",
        "processes": _processes(facts),
        "folder": "" if full is None else f"{full.role} {full.path}",
        "folder_left": "" if full is None else _left(full),
        "root": _root_words(facts),
        "text_cause": cause.rstrip("."),
    }


def _root_words(facts: Facts) -> str:
    if facts.root is not None:
        return facts.root.text
    return f"it printed last: {facts.printed_last}" if facts.printed_last else "it printed nothing that was kept"


# -- ways out --------------------------------------------------------------------------------------------------------


SENT_TO_MAKERS = (Verdict.RUNAWAY, Verdict.TOOLCHAIN, Verdict.TOO_BIG)
OF_TEXTS = (
    Verdict.TOOLCHAIN,
    Verdict.SOURCE,
    Verdict.GPU_OOM,
    Verdict.PYTHON_ENV,
    Verdict.NETWORK,
    Verdict.PLATFORM,
)
"""Here the line that was printed knows more than the verdict; elsewhere a trace knows more than the line."""


def ways_out(facts: Facts, verdict: Verdict | None, report: TraceReport) -> list[Fix]:
    """The ladder of the verdict, what the catalogue advises on the line that was printed, and what only a trace has."""
    if verdict is None:
        return []
    text = facts.text
    entry = entry_of(text.entry) if text is not None and text.verdict is verdict else None
    known = remedy_facts(facts, report)
    own: list[Fix] = []
    if text is not None and entry is not None and verdict in OF_TEXTS:
        own = fixes_of(entry, text.captured, values(known))
    # What the line itself explains is no maker's business, unless the compiler crashed over it.
    explained = verdict is Verdict.TOOLCHAIN and bool(own) and not crashed(facts)
    if verdict in SENT_TO_MAKERS and not explained and facts.phase is not None:
        known = msgspec.structs.replace(known, reproduce=repro_command(report, facts.phase))
    if verdict is Verdict.RLIMIT and (limit := breached(facts)) is not None:
        known = msgspec.structs.replace(known, process_limit=limit.name, process_limit_flag=limit.flag)
    return ladder(verdict, known, own=own)


def breached(facts: Facts) -> ProcessLimit | None:
    """The limit that it was, where it is none on memory."""
    if cpu_time_signal(facts) or (facts.gave_up and cpu_time_used_up(facts)):
        return facts.cpu
    if file_size_signal(facts):
        return facts.file_size
    return facts.processes if facts.cap is None else None


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
        case=case_of(report),
        captured=() if facts.text is None else facts.text.captured,
        peak_mib=facts.peak_mib or None,
        limit_mib=report.limit_mib or None,
        reserve_mib=max(0.0, header.limit_mib - header.budget_mib),
        limited_by=f"node {facts.node}" if facts.node else header.limited_by,
        scheduler="" if scene is None else scene.scheduler,
        unit_stops="" if scene is None else scene.unit_stops,
        tmpdir="" if temporary is None else temporary.path,
        tmp_in_memory=None if temporary is None else temporary.in_memory,
        auto_remedied=report.summary is not None and report.summary.remedied > 0,
    )


def repro_command(report: TraceReport, phase: PhaseRow) -> str:
    """``builddoctor trace repro 3f9a1c 12``, to be pasted; empty where the trace can make none."""
    if phase.phase_id not in report.kept and command_of(report.commands, phase.unit_id) is None:
        return ""
    return f"builddoctor trace repro {shell_word(report.name)} {phase.phase_id}"
