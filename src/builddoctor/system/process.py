"""Processes: memory and family of single ones, everything below one of them, and the limits on them.

Covers, straight from /proc: anonymous resident memory through a kept file descriptor (about 1 us a read) and by its
page tables (11 ms for each GiB), processor time, identity by start time, children, command line and parent; a process
and everything below it in one walk, for what no gate announced; limits of each process (RLIMIT_AS, RLIMIT_DATA), and on
how many processes and files there may be (RLIMIT_NPROC, RLIMIT_NOFILE, the pids controller).
Does *not* cover: finding processes: gates announce theirs, and the machine is not scanned, but for a build that was
started without us, and for children where the kernel has no lists of them (it is built without CONFIG_PROC_CHILDREN).
The kernel's own limits (``kernel.pid_max``, ``threads-max``) are tens of thousands everywhere. Kernel docs: proc(5),
getrlimit(2), cgroup-v2.rst (PID).
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Collection
from typing import Literal

import msgspec

from builddoctor.core.limits import ProcessRoom
from builddoctor.core.machine import ProcessCap
from builddoctor.core.units import MIB, whole_number
from builddoctor.system.cgroup import controller_directories
from builddoctor.system.root import SystemRoot, keyed, since_boot

FAR_AWAY = 32768
"""A limit of the user's that is this high is not counted against: all of /proc would have to be read for it."""

_CAPS: tuple[tuple[Literal["RLIMIT_AS", "RLIMIT_DATA"], str], ...] = (
    ("RLIMIT_DATA", "Max data size"),
    ("RLIMIT_AS", "Max address space"),
)

_PARENT, _SESSION, _USER_TICKS, _SYSTEM_TICKS, _START_TICKS, _RSS_PAGES = 1, 3, 11, 12, 19, 21
"""Fields of stat behind the name, from ``state`` on (proc(5))."""


class RssProbe:
    """One process's memory, until it ends. ``close`` it."""

    def __init__(self, root: SystemRoot, pid: int, *, page_bytes: int) -> None:
        self.pid = pid
        self._page_mib = page_bytes / MIB
        self._last = b""
        self._anon_mib = 0.0
        try:
            self._fd: int | None = os.open(root.at(f"/proc/{pid}/statm"), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._fd = None

    def anon_mib(self) -> float:
        """resident - shared of statm, in MiB; 0 once the process is gone. statm counts pages of this kernel's size."""
        if self._fd is None:
            return 0.0
        try:
            text = os.pread(self._fd, 96, 0)
            if text != self._last:
                fields = text.split(None, 3)
                self._anon_mib = max(0, int(fields[1]) - int(fields[2])) * self._page_mib
                self._last = text
        except (OSError, IndexError, ValueError):
            self.close()
            return 0.0
        return self._anon_mib

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


class Processes:
    """Questions about processes by pid. A process that is gone gives None or nothing, never an error."""

    def __init__(self, root: SystemRoot) -> None:
        self._root = root
        self._has_lists = _has_lists(root)

    def children(self, pid: int) -> list[int]:
        """Direct children of a process's main thread; of any thread where the kernel has no lists of them."""
        if not self._has_lists:
            return _families(self._root).get(pid, [])
        text = self._root.text(f"/proc/{pid}/task/{pid}/children") or ""
        return [child for word in text.split() if (child := whole_number(word)) is not None]

    def descendants(self, pid: int) -> list[int]:
        """Children, their children, and so on; parents before children."""
        families = None if self._has_lists else _families(self._root)

        def of(parent: int) -> list[int]:
            return self.children(parent) if families is None else families.get(parent, [])

        found: list[int] = []
        pending = list(of(pid))
        while pending:
            child = pending.pop(0)
            if child not in found:
                found.append(child)
                pending += of(child)
        return found

    def parent(self, pid: int) -> int | None:
        stat = self._stat(pid)
        return whole_number(stat[_PARENT]) if stat else None

    def start_ticks(self, pid: int) -> int | None:
        """Start time in clock ticks since boot: with the pid, the identity of a process."""
        stat = self._stat(pid)
        return whole_number(stat[_START_TICKS]) if stat else None

    def lives(self, pid: int, start_ticks: int) -> bool:
        """The process of this identity runs, or is stopped; one that has ended and was not waited for does not."""
        stat = self._stat(pid)
        return bool(stat) and stat[0] not in ("Z", "X") and whole_number(stat[_START_TICKS]) == start_ticks

    def cpu_s(self, pid: int) -> float | None:
        """Processor time of all its threads so far, in user and kernel mode."""
        stat = self._stat(pid)
        ticks = [whole_number(field) for field in stat[_USER_TICKS : _SYSTEM_TICKS + 1]]
        if len(ticks) != 2 or ticks[0] is None or ticks[1] is None:
            return None
        return (ticks[0] + ticks[1]) / os.sysconf("SC_CLK_TCK")

    def run_delay_s(self, pid: int) -> float:
        """How long its main thread has been ready to run while others had the cores (kernel doc sched-stats.rst); 0
        where the kernel does not say."""
        fields = (self._root.text(f"/proc/{pid}/schedstat") or "").split()
        delay_ns = whole_number(fields[1]) if len(fields) > 1 else None
        return 0.0 if delay_ns is None else delay_ns / 1e9

    def anon_by_rollup_mib(self, pid: int) -> float | None:
        """Anonymous resident memory as its page tables have it; None for a process that is gone or not ours to ask.

        Right where statm reads zero (RHEL-97601). Dear: the kernel walks the tables, with the process's memory map
        locked for reading; 44 ms for 4 GiB with 4 KiB pages.
        """
        kib = keyed(self._root.text(f"/proc/{pid}/smaps_rollup") or "", ("Anonymous:",)).get("Anonymous:")
        return None if kib is None else kib / 1024

    def argv(self, pid: int) -> list[str]:
        text = self._root.text(f"/proc/{pid}/cmdline") or ""
        return text.removesuffix("\0").split("\0") if text else []

    def environ_has(self, pid: int, text: str) -> bool:
        """A process of ours has ``text`` somewhere in its environment. Nothing of it is kept."""
        return text in (self._root.text(f"/proc/{pid}/environ") or "")

    def environ(self, pid: int) -> dict[str, str]:
        """What a process of ours was started with; empty where it is gone, or out of sight (0). Keep little of it."""
        words = (self._root.text(f"/proc/{pid}/environ") or "").split("\0")
        return dict(word.split("=", 1) for word in words if "=" in word)

    def _stat(self, pid: int) -> list[str]:
        """Fields of stat from ``state`` on; the name before them may hold anything, parentheses too."""
        fields = (self._root.text(f"/proc/{pid}/stat") or "").rpartition(")")[2].split()
        return fields if len(fields) > _START_TICKS else []


def started_s(start_ticks: int) -> float:
    """When a process with this start time began, in seconds since the epoch, as files have their times."""
    return time.time() - (since_boot() - start_ticks / os.sysconf("SC_CLK_TCK"))


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """How a process was called. Empty where that may not be read, or it is gone."""

    argv: tuple[str, ...] = ()
    """the program itself first"""
    cwd: str = ""
    sizes: tuple[tuple[int, int], ...] = ()
    """(place, bytes) of the words behind the program that name a file"""


def read_call(root: SystemRoot, pid: int) -> Call:
    """Read once for each process: a compiler's command line does not change."""
    text = root.path_text(f"/proc/{pid}/cmdline") or ""
    argv = tuple(text.removesuffix("\0").split("\0")) if text else ()
    cwd = root.link(f"/proc/{pid}/cwd")
    sizes = []
    for place, word in enumerate(argv[1:]):
        if "." in word and not word.startswith("-"):
            try:
                status = root.at(os.path.join(cwd, word)).stat()
            except (OSError, ValueError):
                continue
            if stat.S_ISREG(status.st_mode):
                sizes.append((place, status.st_size))
    return Call(argv=argv, cwd=cwd, sizes=tuple(sizes))


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """One process of the machine."""

    pid: int
    parent: int
    name: str
    start_ticks: int


def read_all(root: SystemRoot) -> list[Listed]:
    """All processes that can be seen, in order of their numbers."""
    found: list[Listed] = []
    for pid in sorted(int(name) for name in root.names("/proc") if name.isdigit()):
        head, _, tail = (root.text(f"/proc/{pid}/stat") or "").rpartition(")")
        fields = [whole_number(field) for field in tail.split()[: _START_TICKS + 1]]
        if len(fields) > _START_TICKS and fields[_PARENT] is not None and fields[_START_TICKS] is not None:
            name = head.partition("(")[2]
            found.append(Listed(pid=pid, parent=fields[_PARENT] or 0, name=name, start_ticks=fields[_START_TICKS] or 0))
    return found


def anon_mib(root: SystemRoot, pid: int, page_bytes: int) -> float | None:
    """Private memory of one process, read once: resident - shared of statm; None when it is gone."""
    fields = [whole_number(word) for word in (root.text(f"/proc/{pid}/statm") or "").split()[1:3]]
    if len(fields) < 2 or fields[0] is None or fields[1] is None:
        return None
    return max(0, fields[0] - fields[1]) * page_bytes / MIB


class TreeProcess(msgspec.Struct, frozen=True, kw_only=True):
    """One process as it was when the walk came by."""

    pid: int
    parent: int
    name: str
    state: str
    """one letter: ``R``, ``S``, ``T`` for stopped"""
    start_ticks: int
    cpu_s: float
    anon_mib: float
    """0 for one that holds less than was asked for"""
    leads_session: bool
    is_leaf: bool
    """without children of its own"""
    program: str = ""
    """the file that it runs, without folders; its ``name`` is what it calls itself. Empty for one that holds less than
    was asked for, and where that may not be read"""


def read_tree(
    root: SystemRoot,
    top: int,
    *,
    page_bytes: int,
    least_mib: float,
    without: Collection[int] = (),
    itself: bool = False,
) -> list[TreeProcess]:
    """All below ``top``, parents first; not those in ``without``, nor what is below them. ``itself``: that too."""
    families = None if _has_lists(root) else _families(root)

    def children_of(parent: int) -> list[int]:
        return _children(root, parent) if families is None else families.get(parent, [])

    found: list[TreeProcess] = []
    seen = set(without) if itself else {top, *without}
    pending = [top] if itself else [child for child in children_of(top) if child not in seen]
    while pending:
        pid = pending.pop()
        if pid in seen:
            continue
        seen.add(pid)
        children = children_of(pid)
        pending += children
        process = _tree_process(root, pid, page_bytes, least_mib, is_leaf=not children)
        if process is not None:
            found.append(process)
    return found


def process_caps(root: SystemRoot) -> tuple[ProcessCap, ...]:
    """Limits on each process's virtual memory that are set, soft ones. RLIMIT_RSS has had no effect since Linux 2.4.

    Beyond them malloc fails and the compiler says so (``out of memory allocating … bytes``, exit code 1); nothing is
    killed.
    """
    limits = root.text("/proc/self/limits") or ""
    sizes = ((name, read_limit(limits, label)[0]) for name, label in _CAPS)
    return tuple(ProcessCap(name=name, limit_mib=size / MIB) for name, size in sizes if size is not None)


def read_process_room(root: SystemRoot) -> ProcessRoom:
    """How many processes and files there may be besides those there are now."""
    limits = root.text("/proc/self/limits") or ""
    soft_files, hard_files = read_limit(limits, "Max open files")
    pids_max, pids_now = read_pids(root)
    by_cgroup = None if pids_max is None or pids_now is None else max(0, pids_max - pids_now)
    processes = [each for each in (_left_by_user(root, limits), by_cgroup) if each is not None]
    return ProcessRoom(processes=min(processes, default=None), own_files=hard_files, build_files=soft_files)


def read_pids(root: SystemRoot) -> tuple[int | None, int | None]:
    """Limit and use of the pids cgroup that leaves least, from our own up; None where no limit is set."""
    found: list[tuple[int, int, int]] = []
    for directory in controller_directories(root, "pids"):
        most = whole_number(root.text(f"{directory}/pids.max") or "")
        used = whole_number(root.text(f"{directory}/pids.current") or "")
        if most is not None and used is not None:
            found.append((most - used, most, used))
    return min(found)[1:] if found else (None, None)


def read_limit(limits: str, name: str) -> tuple[int | None, int | None]:
    """Soft and hard limit of one line of /proc/PID/limits; None for unlimited, or unknown."""
    for line in limits.splitlines():
        if line.startswith(name):
            words = [*line[len(name) :].split(), "", ""]
            return whole_number(words[0]), whole_number(words[1])
    return None, None


def _left_by_user(root: SystemRoot, limits: str) -> int | None:
    """RLIMIT_NPROC counts all threads of a user. It does not hold for root."""
    limit, _ = read_limit(limits, "Max processes")
    uid = _status(root, "self").get("Uid:")
    if limit is None or limit >= FAR_AWAY or uid in (0, None):
        return None
    used = 0
    for name in root.names("/proc"):
        if name.isdigit() and (status := _status(root, name)).get("Uid:") == uid:
            used += status.get("Threads:") or 1
    return max(0, limit - used)


def _status(root: SystemRoot, process: str) -> dict[str, int]:
    """Uid and threads from /proc/PID/status."""
    text = (root.text(f"/proc/{process}/status") or "").replace("\t", " ")
    return keyed(text, ("Uid:", "Threads:"))


def _has_lists(root: SystemRoot) -> bool:
    """Whether the kernel keeps lists of children (CONFIG_PROC_CHILDREN): distributions' kernels do, those made for
    small virtual machines may not. Asked of our own threads; where there is no /proc, it makes no difference."""
    threads = root.names("/proc/self/task")
    return not threads or any(root.exists(f"/proc/self/task/{thread}/children") for thread in threads)


def _families(root: SystemRoot) -> dict[int, list[int]]:
    """Parents to children, of all processes: 7 us for each, where no list says it."""
    found: dict[int, list[int]] = {}
    for name in root.names("/proc"):
        if name.isdigit():
            fields = (root.text(f"/proc/{name}/stat") or "").rpartition(")")[2].split()
            if len(fields) > _PARENT and (parent := whole_number(fields[_PARENT])) is not None:
                found.setdefault(parent, []).append(int(name))
    return found


def _children(root: SystemRoot, pid: int) -> list[int]:
    """Children of all its threads: cargo and others start them from any."""
    found: list[int] = []
    for task in root.names(f"/proc/{pid}/task"):
        text = root.text(f"/proc/{pid}/task/{task}/children")
        if text:
            found += [child for word in text.split() if (child := whole_number(word)) is not None]
    return found


def _tree_process(
    root: SystemRoot, pid: int, page_bytes: int, least_mib: float, *, is_leaf: bool
) -> TreeProcess | None:
    head, _, tail = (root.text(f"/proc/{pid}/stat") or "").rpartition(")")
    fields = tail.split()
    numbers = [whole_number(field) for field in fields[1 : _RSS_PAGES + 1]]
    if len(numbers) < _RSS_PAGES or fields[0] in "ZX":
        return None

    def number(index: int) -> int:
        return numbers[index - 1] or 0

    held_mib = 0.0
    if number(_RSS_PAGES) * page_bytes / MIB >= least_mib:
        held_mib = anon_mib(root, pid, page_bytes) or 0.0
    large = held_mib >= least_mib
    return TreeProcess(
        pid=pid,
        parent=number(_PARENT),
        name=head.partition("(")[2],
        state=fields[0],
        start_ticks=number(_START_TICKS),
        cpu_s=(number(_USER_TICKS) + number(_SYSTEM_TICKS)) / os.sysconf("SC_CLK_TCK"),
        anon_mib=held_mib if large else 0.0,
        leads_session=number(_SESSION) == pid,
        is_leaf=is_leaf,
        program=os.path.basename(root.link(f"/proc/{pid}/exe")) if large else "",
    )
