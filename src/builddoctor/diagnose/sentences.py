"""The words of a verdict: what died, why, and the evidence, each in a line. Pure.

Does *not* cover: which verdict it is (``diagnose.rules``), or ways out (``diagnose.ways_out``).
"""

from __future__ import annotations

import signal

from builddoctor.diagnose.conditions import holds
from builddoctor.diagnose.facts import Facts, ProcessLimit, is_full
from builddoctor.diagnose.rules import Rule
from builddoctor.model.surroundings import Folder, Scene
from builddoctor.model.verdict import VerdictName
from builddoctor.trace.gather import name_of
from builddoctor.trace.report import Attempt, PhaseRow, TraceReport
from builddoctor.units import format_clock, format_gib, format_mib

LAST_LINES = 4
RUNS_TOLD = 6

_BY = {
    "killed-by-kernel": "killed by the kernel",
    "killed-by-us": "ended by builddoctor before the kernel would",
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
        return f"{name_of(phase)}, with {_how(last)} after {after}"
    return f"{name_of(phase)}, {_BY.get(last.outcome, 'given up')} at {format_mib(phase.peak_mib)} after {after}"


def evidence(rule: Rule, facts: Facts, verdict: VerdictName | None, report: TraceReport) -> list[str]:
    """What it rests on, the strongest first."""
    lines = [*_of_phase(facts), *_of_kernel(facts)]
    lines += _of_surroundings(facts, verdict)
    lines += _of_text(facts, verdict)
    if facts.failed and facts.least_free_share is not None:
        lines.append(f"whenever memory was looked at, {facts.least_free_share:.0%} of the limit or more was free")
    if verdict == "unknown" or (rule.confidence == "low" and facts.text is None):
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
    sent = "somebody sent that" if holds("ending signal", facts) else "nobody killed it"
    return [f"at {_clock(last)}: {name_of(phase)} ended with {_how(last)} at {held}; {sent}"]


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


def _of_surroundings(facts: Facts, verdict: VerdictName | None) -> list[str]:
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
    if verdict in ("disk-full", "tmpfs") or facts.full is not None:
        shown = {folder.path: folder for folder in (facts.full, *scene.folders) if folder is not None}
        lines += [_folder_line(folder) for folder in shown.values() if folder.role != "trace" or is_full(folder)]
    if verdict == "tmpfs" or facts.tmpfs_mib >= 0.1 * max(facts.limit_mib, 1.0):
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


def _of_text(facts: Facts, verdict: VerdictName | None) -> list[str]:
    text = facts.text
    if text is None:
        return []
    if text.verdict in (verdict, "unknown"):
        return [text.quoted]
    if holds("text of a kill", facts) and facts.kernel_kills == 0 and holds("counters read", facts):
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
        "allotted": "" if scene is None else format_mib(scene.allotted_mib or 0.0),
        "available": "" if scene is None else format_mib(scene.available_mib or 0.0),
        "constraint": "" if facts.kernel is None else facts.kernel.constraint,
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
        "text_cause": cause.rstrip("."),
    }
