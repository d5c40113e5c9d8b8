"""What a trace says of a failure, as typed facts: what the rules (``diagnose.rules``) look at. Pure.

Covers: the phase that died, what was read around it, the groups above it, limits, disks, and which of the lines that
the build printed says why. Does *not* cover: whether that line is to be believed, or any other conclusion
(``diagnose.rules``), words (``diagnose.from_trace``), traces that stop short.
"""

from __future__ import annotations

import msgspec

from builddoctor.core.events import BuildResult, OutputFinding, SceneMoment, SceneSeen
from builddoctor.core.evidence import Folder, Group, ProcessLimits, Scene
from builddoctor.core.phase import Outcome
from builddoctor.core.verdict import Verdict, Weight
from builddoctor.diagnose.case_facts import Case, CaseTable, System
from builddoctor.diagnose.case_words import case_values
from builddoctor.diagnose.catalogue import cause_of, entry_of, layer_of
from builddoctor.diagnose.kernel_log import KernelLog, OomReport
from builddoctor.trace.report import Attempt, PhaseRow, TraceReport

FULL_MIB, SMALL_SHARE = 0.25, 0.05
"""With no more than this a disk is exhausted, a small one with this share of it: what was written last did not fit."""

FULL_AT_MOST_MIB, FULL_SHARE = 16.0, 0.005
"""A large one may have been, with so much: what others wrote is deleted meanwhile."""

ROOMY_MIB = 1024.0


class Parent(msgspec.Struct, frozen=True, kw_only=True):
    """A group above the phase's own whose limit was reached."""

    directory: str
    limit_mib: float
    others_mib: float
    """held in it by what is not in our own group"""


class ProcessLimit(msgspec.Struct, frozen=True, kw_only=True):
    """A limit on each process."""

    name: str
    """``RLIMIT_AS``"""
    flag: str
    """of ulimit: ``-v``"""
    size: float
    """MiB, seconds or a number"""


class Printed(msgspec.Struct, frozen=True, kw_only=True):
    """The line, and what the catalogue has on it."""

    entry: str
    verdict: Verdict
    says: bool
    """the text alone tells the cause; False: it fits several"""
    text: str
    line: int
    stream: str = ""
    cause: str = ""
    """the entry's sentence; empty where the catalogue does not know it any more"""
    captured: tuple[tuple[str, str], ...] = ()

    @property
    def quoted(self) -> str:
        where = f"line {self.line} of {self.stream}" if self.stream else f"line {self.line}"
        return f"the build printed, {where}: {self.text}"


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a rule may ask for."""

    result: BuildResult
    exit_code: int = 0
    wall_s: float = 0.0
    kernel_kills: int = 0
    """of the whole build, those of phases that were redone among them"""
    unexplained_kills: int = 0
    """kernel kills that no phase of ours died of: what no gate saw"""
    most_running: int = 0
    limit_mib: float = 0.0
    limited_by: str = ""
    """the file, variable or flag that set the tightest limit at the start"""
    least_free_share: float | None = None
    gave_up: Verdict | None = None
    """builddoctor's own verdict on a phase that it could not save"""
    reason: str = ""
    """in its words"""

    phase: PhaseRow | None = None
    """what died"""
    last: Attempt | None = None
    scene: Scene | None = None
    """the look at it, or the one at the end"""
    at_phase: bool = False
    """that look was taken while its gate waited"""
    job: str = ""
    """scheduler and job, ``slurm job 4711``"""

    full: Folder | None = None
    """a folder with hardly any room, or without inodes"""
    parent: Parent | None = None
    tmpfs_mib: float = 0.0
    """files in memory, of the group that was full or of our own"""
    cap: ProcessLimit | None = None
    """the smallest limit on a process's memory"""
    cpu: ProcessLimit | None = None
    file_size: ProcessLimit | None = None
    processes: ProcessLimit | None = None
    kernel: OomReport | None = None
    """the kernel's own report of a kill"""
    crash_line: str = ""
    """the kernel's line about a crash"""
    text: Printed | None = None
    """what the build printed"""
    root: Printed | None = None
    """the first error of the innermost layer, as the build printed it, where nothing more is known of it"""
    printed_last: str = ""
    """the last line of a build that failed; empty where none was kept"""

    @property
    def outcome(self) -> str:
        return "" if self.last is None else self.last.outcome

    @property
    def node(self) -> str:
        """The other machine where it ran last; empty for this one."""
        return "" if self.last is None or self.last.elsewhere is None else self.last.elsewhere.node

    @property
    def signal(self) -> int | None:
        return None if self.last is None else self.last.signal

    @property
    def failed(self) -> bool:
        """A phase ended with an error, or a signal, of its own."""
        return self.outcome == Outcome.FAILED.value

    @property
    def peak_mib(self) -> float:
        return 0.0 if self.phase is None else self.phase.peak_mib


def gather_facts(report: TraceReport) -> Facts:
    """The facts of a build that failed or was interrupted, with its summary."""
    summary = report.summary
    assert summary is not None, "a trace that stops short is another matter"
    given_up = _given_up(report)
    phase = given_up or _failed_by_itself(report)
    last = phase.attempts[-1] if phase is not None and phase.attempts else None
    seen = _look(report, phase)
    scene = None if seen is None else seen.scene
    explained = sum(run.outcome == Outcome.KILLED_BY_KERNEL.value for each in report.phases for run in each.attempts)
    limits = ProcessLimits() if scene is None else scene.limits
    reports, crash = _kernel(report, seen)
    return Facts(
        result=summary.result,
        exit_code=summary.exit_code,
        wall_s=summary.wall_s,
        kernel_kills=summary.kernel_oom_kills,
        unexplained_kills=max(0, summary.kernel_oom_kills - explained),
        most_running=max((run.running for each in report.phases for run in each.attempts), default=0),
        limit_mib=report.limit_mib,
        limited_by=report.header.limited_by,
        least_free_share=_least_free_share(report),
        gave_up=Verdict.read(report.given_up[-1].verdict) if given_up is not None else None,
        reason=next((event.text for event in reversed(report.events) if event.kind == "give-up"), ""),
        phase=phase,
        last=last,
        scene=scene,
        at_phase=seen is not None and seen.when is SceneMoment.PHASE,
        job=_job(report),
        full=_full(report, seen),
        parent=None if scene is None else _parent(scene),
        tmpfs_mib=0.0 if scene is None else max((group.shmem_mib or 0.0 for group in scene.groups[:1]), default=0.0),
        cap=_least(("RLIMIT_AS", "-v", limits.address_space_mib), ("RLIMIT_DATA", "-d", limits.data_mib)),
        cpu=_least(("RLIMIT_CPU", "-t", limits.cpu_s)),
        file_size=_least(("RLIMIT_FSIZE", "-f", limits.file_size_mib)),
        processes=_processes(scene),
        kernel=reports[-1] if reports else None,
        crash_line=crash,
        root=first_error(report),
        printed_last=next((line for tail in report.tails for line in reversed(tail.lines) if line.strip()), ""),
        text=printed(report, None if last is None or given_up is not None else last.ended_at_s),
    )


# -- what died ---------------------------------------------------------------------------------------------------


def _given_up(report: TraceReport) -> PhaseRow | None:
    """The phase that could not be saved; the last, where there are several."""
    if not report.given_up:
        return None
    return next((phase for phase in report.phases if phase.phase_id == report.given_up[-1].phase_id), None)


def _failed_by_itself(report: TraceReport) -> PhaseRow | None:
    """The first phase that ended with an error of its own; what configure steps try out may fail."""
    counted = [phase for unit in report.units for phase in unit.phases if phase.outcome == Outcome.FAILED.value]
    failed = counted or [phase for phase in report.other_phases if phase.outcome == Outcome.FAILED.value]
    return min(failed, key=_ended_at, default=None)


def _ended_at(phase: PhaseRow) -> float:
    return (phase.attempts[-1].ended_at_s or 0.0) if phase.attempts else 0.0


def _look(report: TraceReport, phase: PhaseRow | None) -> SceneSeen | None:
    """The last look at this phase; else the one at the end of the build, or any."""
    of_it = [seen for seen in report.seen if phase is not None and seen.phase_id == phase.phase_id]
    rest = [seen for seen in report.seen if seen.when is not SceneMoment.START]
    found = of_it or rest or report.seen
    return found[-1] if found else None


def _least_free_share(report: TraceReport) -> float | None:
    shares = [1 - point.used_mib / point.limit_mib for point in report.timeline if point.limit_mib > 0]
    return max(0.0, min(shares)) if shares else None


# -- surroundings ------------------------------------------------------------------------------------------------


def is_exhausted(folder: Folder) -> bool:
    """Nothing fits there, by its bytes or by its inodes: what wrote there has failed."""
    return _has_at_most(folder, min(FULL_MIB, SMALL_SHARE * (folder.total_mib or 0.0)))


def is_full(folder: Folder) -> bool:
    """Exhausted, or with so little room that it may have been: which is no evidence by itself."""
    small_mib = min(FULL_AT_MOST_MIB, FULL_SHARE * (folder.total_mib or 0.0))
    return is_exhausted(folder) or _has_at_most(folder, small_mib)


def _has_at_most(folder: Folder, room_mib: float) -> bool:
    if folder.missing:
        return False
    if folder.free_inodes is not None and folder.free_inodes < 1:
        return True
    return folder.free_mib is not None and folder.free_mib <= room_mib


def _full(report: TraceReport, seen: SceneSeen | None) -> Folder | None:
    """A folder that was full when the phase died, or when the build had; the trace's own counts only
    where no other was."""
    looks = [each for each in (seen, *reversed(report.seen)) if each is not None and each.when is not SceneMoment.START]
    for look in looks:
        folders = sorted(look.scene.folders, key=lambda folder: (folder.role == "trace", not is_exhausted(folder)))
        found = next((folder for folder in folders if is_full(folder)), None)
        if found is not None:
            return found
    return None


def _parent(scene: Scene) -> Parent | None:
    """The lowest group above the phase's own whose limit was reached, where those below it were not."""
    own: Group | None = scene.groups[0] if scene.groups else None
    if own is None or own.reached or own.used_mib is None:
        return None
    for group in scene.groups[1:]:
        if group.reached and group.limit_mib is not None and group.used_mib is not None:
            others_mib = max(0.0, group.used_mib - own.used_mib)
            return Parent(directory=group.directory, limit_mib=group.limit_mib, others_mib=others_mib)
    return None


def _least(*limits: tuple[str, str, float | None]) -> ProcessLimit | None:
    known = [ProcessLimit(name=name, flag=flag, size=size) for name, flag, size in limits if size is not None]
    return min(known, key=lambda limit: limit.size, default=None)


def _processes(scene: Scene | None) -> ProcessLimit | None:
    """The limit on the number of processes that was nearly used up, or is small."""
    if scene is None:
        return None
    if scene.pids_max is not None and scene.pids_now is not None and scene.pids_now >= 0.9 * scene.pids_max:
        return ProcessLimit(name="pids.max", flag="", size=scene.pids_max)
    return _least(("RLIMIT_NPROC", "-u", scene.limits.processes)) if (scene.limits.processes or 1e9) < 4096 else None


def _kernel(report: TraceReport, seen: SceneSeen | None) -> tuple[list[OomReport], str]:
    """The kernel's words: its reports of kills, and its line about a crash."""
    log, crash, number = KernelLog(), "", 0
    for look in report.seen:
        if seen is not None and look.phase_id not in (None, seen.phase_id):
            continue
        for line in look.scene.kernel_log:
            number += 1
            if not log.feed(number, line) and (
                "segfault at" in line or "general protection" in line or "trap " in line
            ):
                crash = line
    return log.reports, crash


def _job(report: TraceReport) -> str:
    for seen in report.seen:
        if seen.scene.scheduler:
            return f"{seen.scene.scheduler} job {seen.scene.job}".strip() if seen.scene.job else seen.scene.scheduler
    return ""


# -- what was printed ------------------------------------------------------------------------------------------------


EARLY_S = 2.0
"""A line may be read before the gate reports the end of its compiler, or much later: ninja holds it back until then."""


def printed(report: TraceReport, died_at_s: float | None) -> Printed | None:
    """The first line that says the cause, of those after ``died_at_s`` if there are any; else the first that hints."""
    known = [said for said in report.said if said.verdict and said.weight in (Weight.SAYS, Weight.HINTS)]
    late = [said for said in known if died_at_s is not None and said.at_s >= died_at_s - EARLY_S]
    after = [said for said in known if _at_failure(report, said)]
    for pool in (late, after, known):
        for weight in (Weight.SAYS, Weight.HINTS):
            found = next((said for said in pool if said.weight == weight), None)
            if found is not None:
                return _as_printed(found, case_of(report))
    return None


def first_error(report: TraceReport) -> Printed | None:
    """The first error of the innermost layer that failed, in a tool's own words: of the first failed step, or all."""
    errors = [said for said in report.said if said.weight in (Weight.HINTS, Weight.GUESSES, Weight.SHOWS)]
    after = [said for said in errors if _at_failure(report, said)]
    first = min(after or errors, key=lambda said: (layer_of(said.entry), said.line), default=None)
    return None if first is None else _as_printed(first, case_of(report))


def _at_failure(report: TraceReport, said: OutputFinding) -> bool:
    """At the first step that the build tool says failed, or after it."""
    failing = next((tail.failing for tail in report.tails if tail.stream == said.stream), None)
    return failing is not None and said.line >= failing


def case_of(report: TraceReport) -> Case:
    """What the trace says of versions, and of what builds; it was made under Linux."""
    header, table = report.header, CaseTable()
    for lines in ([" ".join(header.command)], *(tail.lines for tail in report.tails)):
        table.feed("\n".join([*lines, ""]).encode(errors="replace"))
    printed = table.found()
    return Case(
        nvcc=".".join(header.nvcc.split(".")[:2]),
        system=System.LINUX,
        torch_builds=printed.torch_builds,
        cmake_builds=printed.cmake_builds,
        wheel_built=printed.wheel_built,
        archs=tuple(arch.removeprefix("sm_") for arch in header.archs),
    )


def _as_printed(said: OutputFinding, case: Case) -> Printed:
    entry = entry_of(said.entry)
    return Printed(
        entry=said.entry,
        verdict=Verdict.read(said.verdict),
        says=said.weight == Weight.SAYS,
        text=said.text,
        line=said.line,
        stream=said.stream,
        cause="" if entry is None else cause_of(entry, said.captured.items(), case_values(case, said.captured.items())),
        captured=tuple(said.captured.items()),
    )
