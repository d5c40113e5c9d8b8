"""The kernel's own words about an out-of-memory kill: dmesg, journalctl -k, /var/log/kern.log. Pure.

Covers: who was killed and how large it was, whose limit it was (a cgroup's, one above it, the machine's, that of a set
of memory nodes), and what else lived there: the table of tasks, its largest ones in order.
Does *not* cover: what follows from it (``diagnose.kernel_verdict``), or killers in user space, who leave no such lines.

Lines may have any prefix (a timestamp, ``host kernel:``). The table is in pages and has gained columns over time: it is
read by its header. Sources: mm/oom_kill.c and mm/memcontrol.c of Linux 3.10 to 6.18.
"""

from __future__ import annotations

import math
import re
from typing import Literal

import msgspec

from builddoctor.units import whole_number

Scope = Literal["group", "parent", "host", "nodes", "some-group"]
"""Whose limit. ``parent``: that of a cgroup above the victim's. ``nodes``: of some memory nodes, others may be free.
``some-group``: a cgroup's, and the lines that say which are missing."""

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
_VIRTUAL = re.compile(r"total-vm:(\d{1,20})kB")
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
    virtual_mib: float | None = None
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
    def scope(self) -> Scope:
        """Whose limit it was."""
        if self.constraint in ("CPUSET", "MEMORY_POLICY"):
            return "nodes"
        if self.constraint == "MEMCG" or self.of_group or self.limit_group:
            if not self.limit_group or not self.task_group:
                return "some-group"
            return "group" if self.limit_group == self.task_group else "parent"
        return "host"

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
        virtual = _VIRTUAL.search(text)
        sizes = {
            "victim_mib": sum(held) / 1024 if held else None,
            "virtual_mib": int(virtual[1]) / 1024 if virtual else None,
        }
        last = self.reports[-1] if self.reports else None
        if last is not None and not self._open and (last.pid == pid or "or sacrifice child" in last.text):
            # Before Linux 5.0 a kill has two lines: who is chosen, and what was killed, perhaps a child of it.
            if last.victim_mib is None and held:
                self.reports[-1] = msgspec.structs.replace(last, pid=pid, victim=killed["name"], **sizes)
            return
        if len(self.reports) < MOST_REPORTS:
            of_group = (killed["how"] or "").startswith("Memory cgroup")
            report = OomReport(line=line, text=text, victim=killed["name"], pid=pid, of_group=of_group)
            tasks = tuple(_largest(self._tasks))
            self.reports.append(msgspec.structs.replace(report, tasks=tasks, **self._before, **sizes))
        self._reset()


def _largest(tasks: list[Task]) -> list[Task]:
    return sorted(tasks, key=lambda task: -task.pages)[:MOST_TASKS]
