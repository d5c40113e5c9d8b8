"""The kernel's own words about an out-of-memory kill, and what follows from them: dmesg, journalctl -k, kern.log. Pure.

Covers: what was killed and how large it was, whose limit it was (a cgroup's, one above it, the machine's, that of a set
of memory nodes), what else lived there (the table of tasks, its largest ones in order); which of several reports
matters, and whether it tells of too many, of one too large, or of one without end.
Does *not* cover: killers in user space, which leave no such lines.

Lines may have any prefix (a timestamp, ``host kernel:``). The table is in pages and has gained columns over time: it is
read by its header. Sources: mm/oom_kill.c and mm/memcontrol.c of Linux 3.10 to 6.18.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import msgspec

from builddoctor.core.units import format_mib, whole_number
from builddoctor.core.verdict import Diagnosis, Verdict
from builddoctor.core.word import Confidence, Word
from builddoctor.diagnose.log_lines import Count
from builddoctor.diagnose.remedy_facts import RemedyFacts


class OomScope(Word):
    """Whose limit was reached."""

    GROUP = "group"
    """the victim's own cgroup's"""
    PARENT = "parent"
    """that of a cgroup above the victim's"""
    HOST = "host"
    NODES = "nodes"
    """of some memory nodes; others may be free"""
    SOME_GROUP = "some-group"
    """a cgroup's, and the lines that say which one are missing"""


MOST_TASKS = 12
MOST_REPORTS = 64
USUAL_PAGE_KIB = 4

_COMPILER = re.compile(
    r"(?:nvcc|cudafe\+\+|cicc|ptxas|fatbinary|nvlink|cc1(?:plus)?|lto1(?:-\w+)?|collect2|ld(?:\.\w+)?|mold|lld|rustc|as"
    r"|clang(?:\+\+)?(?:-\d+)?|[\w.-]*g(?:cc|\+\+)(?:-\d+)?|c\+\+|hipcc)\Z"
)
_CONSTRAINT = re.compile(r"oom-kill:constraint=CONSTRAINT_(\w{1,20})")
_OOM_MEMCG = re.compile(r"oom_memcg=(.*?)(?:,task_memcg=|,task=|\Z)")
_TASK_MEMCG = re.compile(r"task_memcg=(.*?)(?:,task=|\Z)")
_KILLED = re.compile(
    r"(?P<how>Memory cgroup out of memory|Out of memory(?: \(oom_kill_allocating_task\))?)?:? ?"
    r"Kill(?:ed)? process (?P<pid>\d{1,10})(?:,? UID \d+,?)? \((?P<name>.{1,64}?)\)"
)
_RSS = re.compile(r"\b(anon|file|shmem)-rss:(\d{1,20})kB")
_USAGE = re.compile(r"\bmemory: usage (\d{1,20})kB, limit (\d{1,20})kB")
_SHARED = re.compile(r"(?:^| )shmem(?: (\d{1,20})\Z|:(\d{1,20})KB\b)")
_OLD_GROUPS = re.compile(r"Task in (\S{1,4096}) killed as a result of limit of (\S{1,4096})")
_HEADER = re.compile(r"\[ *pid *\] +(uid +tgid +total_vm +rss\b.*)")
_ROW = re.compile(r"\[ *(\d{1,10})\] +(\d{1,10} +\d{1,10} .*)")
_GROUP_KILL = re.compile(r"Tasks in (\S{1,4096}) are going to be killed due to memory\.oom\.group set")


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table."""

    pid: int
    name: str
    pages: int
    """resident and swapped"""
    resident: int = 0
    """pages of them in memory"""

    @property
    def compiler(self) -> bool:
        """A compiler, or a program that one starts."""
        return is_compiler(self.name)


class OomReport(msgspec.Struct, frozen=True, kw_only=True):
    """One kill, with what the log holds about it; sizes are None where the log does not say them."""

    line: int
    """of the kill, from 1"""
    text: str
    victim: str
    pid: int
    victim_mib: float | None = None
    """what it held: anonymous, file and shared"""
    constraint: str = ""
    """``MEMCG``, ``NONE``, ``CPUSET``, ``MEMORY_POLICY``; empty without that line"""
    of_group: bool = False
    """the kill itself says: memory cgroup"""
    limit_group: str = ""
    task_group: str = ""
    limit_mib: float | None = None
    shared_mib: float | None = None
    """in files of tmpfs and in shared memory, of that limit's group"""
    constraint_line: int = 0
    """where constraint and groups stand; 0 for nowhere"""
    constraint_text: str = ""
    group_kill: bool = False
    """memory.oom.group: all of the group died"""
    tasks: tuple[Task, ...] = ()
    """the largest, in order"""
    tasks_line: int = 0
    listed: int = 0
    """rows of the table"""
    listed_pages: int = 0
    compiler_pages: int = 0

    @property
    def scope(self) -> OomScope:
        """Whose limit it was."""
        if self.constraint in ("CPUSET", "MEMORY_POLICY"):
            return OomScope.NODES
        if self.constraint == "MEMCG" or self.of_group or self.limit_group:
            if not self.limit_group or not self.task_group:
                return OomScope.SOME_GROUP
            return OomScope.GROUP if self.limit_group == self.task_group else OomScope.PARENT
        return OomScope.HOST

    @property
    def page_kib(self) -> int:
        """Size of a page: from the victim's own two sizes where both are there, else 4 KiB, the usual."""
        row = next((task for task in self.tasks if task.pid == self.pid and task.resident), None)
        if row is None or not self.victim_mib:
            return USUAL_PAGE_KIB
        told = self.victim_mib * 1024 / row.resident
        return min((4, 16, 64), key=lambda size: abs(math.log(size / told)))

    def mib(self, pages: int) -> float:
        """Pages of the table as MiB."""
        return pages * self.page_kib / 1024


def is_compiler(name: str) -> bool:
    """A program that builds start for their memory: the kernel's name of it, at most 15 characters."""
    return _COMPILER.match(name.rsplit("/", 1)[-1]) is not None


class KernelLog:
    """Feed it lines in order; ``reports`` are the kills so far."""

    def __init__(self) -> None:
        self.reports: list[OomReport] = []
        self._reset()

    def _reset(self) -> None:
        self._before: dict[str, object] = {}
        self._columns: list[str] = []
        self._tasks: list[Task] = []
        self._open = False
        """a report was begun, and its kill not seen yet"""

    def feed(self, line: int, text: str) -> bool:
        """One line, cleaned; whether it was one of the kernel's about running out of memory."""
        if self._columns and "]" in text and (row := _ROW.search(text)) is not None and self._row(row):
            return True
        if "ill" in text and (killed := _KILLED.search(text)) is not None and (killed["how"] or "-rss:" in text):
            self._kill(line, text, killed)
        elif " invoked oom-killer:" in text:
            self._reset()
            self._open = True
        elif (constraint := _CONSTRAINT.search(text)) is not None:
            limit, own = _OOM_MEMCG.search(text), _TASK_MEMCG.search(text)
            self._note(constraint=constraint[1], constraint_line=line, constraint_text=text)
            self._note(limit_group=limit[1] if limit else "", task_group=own[1] if own else "")
        elif (usage := _USAGE.search(text)) is not None:
            self._note(limit_mib=int(usage[2]) / 1024)
        elif self._open and "shmem" in text and (shared := _SHARED.search(text)) is not None:
            self._note(shared_mib=int(shared[1]) / 1024**2 if shared[1] else int(shared[2]) / 1024)
        elif (groups := _OLD_GROUPS.search(text)) is not None:
            self._note(constraint="MEMCG", constraint_line=line, constraint_text=text)
            self._note(limit_group=groups[2], task_group=groups[1])
        elif (header := _HEADER.search(text)) is not None:
            self._columns = header[1].split()
            self._tasks = []
            self._note(tasks_line=line, listed=0, listed_pages=0, compiler_pages=0)
        elif _GROUP_KILL.search(text) is not None:
            self._note(group_kill=True)
            if self.reports and not self._open:
                self.reports[-1] = msgspec.structs.replace(self.reports[-1], group_kill=True)
        else:
            return "Tasks state (memory values in pages)" in text or "oom_reaper: reaped process" in text
        return True

    def _note(self, **fields: object) -> None:
        self._before.update(fields)
        self._open = True

    def _row(self, row: re.Match[str]) -> bool:
        words = row[2].split(None, len(self._columns) - 1)
        if len(words) < len(self._columns) or len(self._columns) < 4:
            return False
        fields = dict(zip(self._columns, words, strict=True))
        resident = whole_number(fields.get("rss", ""))
        if resident is None:
            return False
        pages = resident + (whole_number(fields.get("swapents", "")) or 0)
        task = Task(pid=int(row[1]), name=words[-1].strip(), pages=pages, resident=resident)
        self._tasks.append(task)
        if len(self._tasks) > 8 * MOST_TASKS:
            self._tasks = _largest(self._tasks)
        self._add("listed", 1)
        self._add("listed_pages", pages)
        self._add("compiler_pages", pages if task.compiler else 0)
        return True

    def _add(self, name: str, more: int) -> None:
        had = self._before.get(name, 0)
        self._before[name] = (had if isinstance(had, int) else 0) + more

    def _kill(self, line: int, text: str, killed: re.Match[str]) -> None:
        pid = int(killed[2])
        held = [int(size) for _, size in _RSS.findall(text)]
        victim_mib = sum(held) / 1024 if held else None
        last = self.reports[-1] if self.reports else None
        if last is not None and not self._open and (last.pid == pid or "or sacrifice child" in last.text):
            # Before Linux 5.0 a kill has two lines: what is chosen, and what was killed, perhaps a child of it.
            if last.victim_mib is None and held:
                self.reports[-1] = msgspec.structs.replace(last, pid=pid, victim=killed["name"], victim_mib=victim_mib)
            return
        if len(self.reports) < MOST_REPORTS:
            of_group = (killed["how"] or "").startswith("Memory cgroup")
            report = OomReport(line=line, text=text, victim=killed["name"], pid=pid, of_group=of_group)
            tasks = tuple(_largest(self._tasks))
            self.reports.append(msgspec.structs.replace(report, tasks=tasks, **self._before, victim_mib=victim_mib))
        self._reset()


def _largest(tasks: list[Task]) -> list[Task]:
    return sorted(tasks, key=lambda task: -task.pages)[:MOST_TASKS]


# -- what follows ----------------------------------------------------------------------------------------------------


LARGE_SHARE = 0.25
"""of the largest compiler: a smaller one is not what took the memory"""
MOST_SHARE = 0.5
"""of what the table lists: a process that holds that much is what took the memory"""
FULL_SHARE = 0.7
"""of the limit, held by one process: it alone does not fit"""
RUNAWAY_MIB = {"cudafe++": 8 * 1024.0}
ANY_RUNAWAY_MIB = 32 * 1024.0
"""A real unit of cicc was seen at 20 GiB; one at 46 GiB was a bug (mfem/mfem#5363)."""
NAMED_TASKS = 6


def judge_kernel(reports: Sequence[OomReport], jobs: Count | None = None) -> tuple[Diagnosis, RemedyFacts] | None:
    """The verdict of the report that matters, and what it tells of the build; None without any report.

    The first report with a compiler in it matters; without one, the first.
    """
    if not reports:
        return None
    report = next((each for each in reports if of_a_build(each)), reports[0])
    name, confidence, why = _weigh(report, reports, jobs)
    held = f" at {format_mib(report.victim_mib)}" if report.victim_mib is not None else ""
    verdict = Diagnosis(
        verdict=name,
        confidence=confidence,
        died=f"{report.victim} (process {report.pid}), killed by the kernel{held}",
        why=why,
        cause=f"kernel-oom-{report.scope.value}",
        evidence=_evidence(report, reports, jobs),
    )
    tool = report.victim if is_compiler(report.victim) else ""
    limit = report.limit_mib if report.scope is not OomScope.HOST else None
    known = RemedyFacts(
        tool=tool, peak_mib=report.victim_mib, limit_mib=limit, jobs=jobs.value if jobs is not None else None
    )
    return verdict, known


def of_a_build(report: OomReport) -> bool:
    """A compiler was killed, or ran beside what was."""
    return is_compiler(report.victim) or any(task.compiler for task in report.tasks)


def large_ones(report: OomReport) -> list[Task]:
    """Compilers that took the memory, the largest first; any processes where there was no compiler."""
    compilers = [task for task in report.tasks if task.compiler] or list(report.tasks)
    return [task for task in compilers if task.pages and task.pages >= LARGE_SHARE * compilers[0].pages]


def _weigh(report: OomReport, reports: Sequence[OomReport], jobs: Count | None) -> tuple[Verdict, Confidence, str]:
    whose = _whose(report)
    if report.scope is OomScope.NODES:
        kind = "a memory policy" if report.constraint == "MEMORY_POLICY" else "a cpuset"
        why = f"the kernel was short on the memory nodes that {kind} allows; other nodes may be free"
        return Verdict.NUMA_POLICY, Confidence.HIGH, why
    if report.limit_mib and report.shared_mib is not None and report.shared_mib > MOST_SHARE * report.limit_mib:
        held = f"{format_mib(report.shared_mib)} of it are files in memory (tmpfs, /dev/shm), not processes"
        return Verdict.TMPFS, Confidence.HIGH, f"{whose}, and {held}"
    build = of_a_build(report)
    if build and report.listed_pages and report.compiler_pages < (1 - MOST_SHARE) * report.listed_pages:
        return _held_by_others(report, whose)
    if report.scope is OomScope.PARENT and not report.tasks:
        return Verdict.CGROUP_PARENT, Confidence.MEDIUM, f"{whose}; what else lives in it, the log does not say"
    large = large_ones(report)
    if not large:
        return _without_table(report, reports, jobs, whose)
    what = "compilers" if build else "processes"
    if len(large) > 1:
        total = format_mib(report.mib(sum(task.pages for task in large)))
        at_least = "or more " if len(report.tasks) < report.listed and large[-1] is report.tasks[-1] else ""
        why = f"{whose}: {len(large)} {at_least}large {what} held {total} at once, too many for it"
        return Verdict.PARALLEL, Confidence.HIGH, why
    return _one_alone(report, large[0], whose)


def _held_by_others(report: OomReport, whose: str) -> tuple[Verdict, Confidence, str]:
    other = next((task for task in report.tasks if not task.compiler), None)
    compilers = format_mib(report.mib(report.compiler_pages))
    most = f"{other.name} with {format_mib(report.mib(other.pages))}" if other is not None else "others"
    why = f"{whose}: it was not the build's compilers that took it ({compilers}) but {most}"
    if report.scope is OomScope.HOST:
        return Verdict.PARALLEL, Confidence.MEDIUM, f"{why}; beside it, fewer compilers fit"
    return Verdict.CGROUP_PARENT, Confidence.HIGH, why


def _one_alone(report: OomReport, task: Task, whose: str) -> tuple[Verdict, Confidence, str]:
    size_mib = report.mib(task.pages)
    alone = f"{whose}, and {task.name} alone held {format_mib(size_mib)} of it: no other large one ran"
    if task.compiler and size_mib >= RUNAWAY_MIB.get(task.name, ANY_RUNAWAY_MIB):
        return (
            Verdict.RUNAWAY,
            Confidence.MEDIUM,
            f"{alone}. That is far beyond what it needs: it grew without end. {FEWER_CANNOT}",
        )
    return Verdict.TOO_BIG, Confidence.HIGH, f"{alone}. {FEWER_CANNOT}"


FEWER_CANNOT = "Lowering MAX_JOBS cannot help: one process took all of it"


def _without_table(
    report: OomReport, reports: Sequence[OomReport], jobs: Count | None, whose: str
) -> tuple[Verdict, Confidence, str]:
    """The kill alone: how large the victim was, and how many died."""
    victims = {each.pid for each in reports if is_compiler(each.victim) == is_compiler(report.victim)}
    held = report.victim_mib
    if held is not None and is_compiler(report.victim) and held >= RUNAWAY_MIB.get(report.victim, ANY_RUNAWAY_MIB):
        why = f"{whose}. {format_mib(held)} is far beyond what {report.victim} needs: it grew without end"
        return Verdict.RUNAWAY, Confidence.MEDIUM, f"{why}. {FEWER_CANNOT}"
    if jobs is not None and jobs.value == 1:
        return (
            Verdict.TOO_BIG,
            Confidence.MEDIUM,
            f"{whose}, with one compiler at a time: it does not fit alone. {FEWER_CANNOT}",
        )
    if held is not None and report.limit_mib and held >= FULL_SHARE * report.limit_mib:
        share = f"{held / report.limit_mib:.0%}"
        return (
            Verdict.TOO_BIG,
            Confidence.HIGH,
            f"{whose}, and {report.victim} alone held {share} of it. {FEWER_CANNOT}",
        )
    if held is not None and report.limit_mib:
        share = f"{held / report.limit_mib:.0%}"
        return (
            Verdict.PARALLEL,
            Confidence.HIGH,
            f"{whose}, and {report.victim} held {share} of it only: others held the rest",
        )
    if len(victims) > 1:
        return Verdict.PARALLEL, Confidence.HIGH, f"{whose}, again and again: {len(victims)} processes were killed"
    missing = "the log does not say what else ran"
    if not is_compiler(report.victim):
        return Verdict.TOO_BIG, Confidence.LOW, f"{whose}; {missing}"
    return Verdict.PARALLEL, Confidence.MEDIUM, f"{whose}; {missing}, and one compiler at a time is rarely too large"


def _whose(report: OomReport) -> str:
    limit = f" ({format_mib(report.limit_mib)})" if report.limit_mib else ""
    if report.scope is OomScope.HOST:
        return "the whole machine ran out of memory"
    if report.scope is OomScope.PARENT:
        return f"the limit of {report.limit_group}{limit} was reached, a group above the victim's"
    if report.scope is OomScope.GROUP:
        return f"the limit of its own group {report.limit_group}{limit} was reached"
    return f"the limit of a memory cgroup{limit} was reached"


def _evidence(report: OomReport, reports: Sequence[OomReport], jobs: Count | None) -> list[str]:
    lines = [f"line {report.line}: {report.text}"]
    if report.constraint_text:
        lines.insert(0, f"line {report.constraint_line}: {report.constraint_text}")
    if report.tasks:
        named = ", ".join(f"{task.name} {format_mib(report.mib(task.pages))}" for task in report.tasks[:NAMED_TASKS])
        total = format_mib(report.mib(report.listed_pages))
        lines.append(
            f"line {report.tasks_line}: of {report.listed} tasks with {total} the largest: {named} "
            f"(the table is in pages, taken as {report.page_kib} KiB)"
        )
    if report.group_kill:
        lines.append("memory.oom.group is set: all of the group was killed at once")
    if len(reports) > 1:
        lines.append(f"{len(reports)} kills in this log; the first one of a build counts")
    if jobs is not None:
        lines.append(str(jobs.quote))
    return lines
