"""Checks of memory: what limits this build and by how much, what is in the way, and what else ends processes here.

Covers: limits, cores and how heavy the project is; programs that end processes when memory is short (earlyoom and
nohang look at the whole host, systemd-oomd at cgroups; the kernel's counters count none of their kills); core dumps
that fill a disk; whether a kill could be recognised afterwards.
Does *not* cover: folders in memory (``doctor.storage_checks``). Pure: data in, lines out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from builddoctor.core.check import Check, Status, Topic
from builddoctor.core.evidence import Visibility
from builddoctor.core.limits import CGROUPS, LevelKind, held_by
from builddoctor.core.machine import CoreDumps, HostMemory, Machine, Neighbours, OomDaemon
from builddoctor.core.units import format_mib
from builddoctor.core.word import Confidence
from builddoctor.doctor.more_memory import more_memory, wsl_memory
from builddoctor.scheduler.budget import LEAST_BUDGET_MIB, RESERVE_CAP_SHARE

HELD_SHARE = 0.25
"""From this share on, what others hold of the limit is worth a line."""
HUGE_SHARE = 0.05
LEAST_PROCESS_MIB = 1024.0
"""Our own line. RLIMIT_AS counts what is mapped, which is more than what is held."""

_SET_BY = {
    LevelKind.HOST: "the machine's own memory",
    LevelKind.NUMA: "NUMA binding",
    LevelKind.OVERCOMMIT: "overcommit mode 2",
    LevelKind.EVICTION: "kubelet's eviction",
    LevelKind.SCHEDULER: "the batch scheduler's allotment",
    LevelKind.FLAG: "your --memory",
}


def memory_checks(machine: Machine, heavy: HeavyPhase, *, archs: int = 0) -> list[Check]:
    """All of them, most important first. ``archs``: how many architectures were asked for."""
    return [
        _limit(machine),
        *_held(machine),
        *_unread(machine),
        *_levels(machine),
        *_nodes(machine),
        *_set_aside(machine),
        *_process_caps(machine, heavy),
        *_place(machine, heavy),
        _cores(machine, heavy, archs),
    ]


def _limit(machine: Machine) -> Check:
    tightest = machine.limiting
    set_by = _SET_BY.get(tightest.kind, f"cgroup {tightest.source}")
    text = (
        f"{format_mib(machine.budget_mib)} to build in: {format_mib(machine.headroom_mib)} free of "
        f"{format_mib(tightest.limit_mib)} by {set_by}, {format_mib(machine.reserve_mib)} of it kept in reserve"
    )
    if tightest.confidence is not Confidence.HIGH and tightest.note:
        text += f" ({tightest.confidence} confidence: {tightest.note})"
    if tightest.limit_mib < 0.95 * machine.host.total_mib:
        text += f"; the machine has {format_mib(machine.host.total_mib)}, and `free` would tell you so"
    if machine.budget_mib < LEAST_BUDGET_MIB:
        text += held_by(machine.holders)
        return Topic.MEMORY.check(
            "memory-limit",
            Status.PROBLEM,
            text,
            "end what else runs there, or raise that limit",
            stops=tightest.kind is not LevelKind.EVICTION,
        )
    return Topic.MEMORY.check("memory-limit", Status.OK, text)


def _held(machine: Machine) -> Iterator[Check]:
    """What others hold at the level that limits us: often it can be had back."""
    tightest = machine.limiting
    held_mib = tightest.used_mib
    if tightest.kind is LevelKind.FLAG or held_mib < HELD_SHARE * tightest.limit_mib or held_mib < 512:
        return
    text = f"{format_mib(held_mib)} of that limit are held by what runs already"
    in_memory_mib = min(held_mib, machine.host.shmem_mib)
    if in_memory_mib > held_mib / 4 and tightest.kind in (LevelKind.HOST, LevelKind.NUMA, LevelKind.EVICTION):
        text += f", {format_mib(in_memory_mib)} of them by files in memory (tmpfs) and shared memory"
    yield _warning("memory-held", text, "ps -eo rss,pid,args --sort=-rss | head; du -sh /dev/shm /tmp")


def _unread(machine: Machine) -> Iterator[Check]:
    if machine.hidden_above:
        text = "limits above this container (a pod's, a slice's) cannot be seen from inside"
        if any(level.kind in CGROUPS for level in machine.levels):
            yield _ok("memory-hidden", f"{text}; one that you know: `--memory`")
        else:
            # No limit at all is what one above looks like from here.
            yield _warning(
                "memory-hidden",
                f"no limit is set on this container, and {text}",
                "if there is one, say it: `--memory 24GiB`",
            )
    if machine.unread:
        seen = "; ".join(machine.unread[:3]) + (" …" if len(machine.unread) > 3 else "")
        yield _warning(
            "memory-unread",
            f"could not be read, and may set a limit: {seen}",
            "if you know the limit, say it: `--memory 24GiB`",
        )


def _levels(machine: Machine) -> Iterator[Check]:
    kinds = {level.kind: level for level in machine.levels}
    if level := kinds.get(LevelKind.SCHEDULER):
        yield _warning(
            "memory-scheduler",
            f"{level.source} gives this job {format_mib(level.limit_mib)}, and no cgroup keeps it: the scheduler "
            "may end the job when it looks; builddoctor stays below",
            "",
        )
    if level := kinds.get(LevelKind.OVERCOMMIT):
        yield _warning(
            "memory-overcommit",
            f"vm.overcommit_memory is 2: {format_mib(level.headroom_mib)} of {format_mib(level.limit_mib)} can still "
            "be promised; beyond that malloc fails instead of a kill",
            "sudo sysctl vm.overcommit_memory=0",
        )
    if machine.host.swap_total_mib:
        zram = f", {format_mib(machine.host.zram_mib)} of it already in memory as zram" if machine.host.zram_mib else ""
        yield _ok("memory-swap", f"swap of {format_mib(machine.host.swap_total_mib)} counts as nothing{zram}")


def _nodes(machine: Machine) -> Iterator[Check]:
    nodes = machine.numa.nodes
    hbm = [node for node in nodes if node.kind == "hbm"]
    if hbm:
        total = format_mib(sum(node.total_mib for node in hbm))
        yield _ok("memory-hbm", f"HBM: {len(hbm)} nodes, {total}, part of MemTotal and not counted as host memory")
    elif machine.numa.coherent_mode == "cdmm":
        yield _ok("memory-hbm", "HBM is kept by the driver (CDMM): MemTotal is the CPUs' own memory")
    bound = [node for node in nodes if not node.allowed and node.kind != "hbm"]
    if bound:
        free = format_mib(sum(node.available_mib for node in bound))
        how = f"memory policy {machine.numa.policy}" if machine.numa.policy else f"cpuset {machine.numa.allowed}"
        yield _warning(
            "memory-numa",
            f"{how} keeps this process off {len(bound)} NUMA nodes with {free} free: their memory cannot be used here",
            "numactl --interleave=all builddoctor build …" if machine.numa.policy else "",
        )


def _set_aside(machine: Machine) -> Iterator[Check]:
    host = machine.host
    if host.hugetlb_mib > HUGE_SHARE * host.total_mib:
        yield _warning(
            "memory-hugepages",
            f"{format_mib(host.hugetlb_mib)} are set aside for huge pages: no compiler can have them",
            "sudo sysctl vm.nr_hugepages=0",
        )
    if host.zfs_arc_mib > 512:
        yield _ok("memory-zfs", f"ZFS's cache holds {format_mib(host.zfs_arc_mib)} above its minimum: half is counted")


def _process_caps(machine: Machine, heavy: HeavyPhase) -> Iterator[Check]:
    for cap in machine.process_caps:
        needed_mib = max(LEAST_PROCESS_MIB, 1.5 * heavy.heavy_mib)
        if cap.limit_mib >= needed_mib:
            continue
        option = "-v" if cap.name == "RLIMIT_AS" else "-d"
        yield Topic.MEMORY.check(
            "memory-rlimit",
            Status.PROBLEM if cap.limit_mib < LEAST_PROCESS_MIB / 2 else Status.WARNING,
            f"{cap.name} allows each process {format_mib(cap.limit_mib)}: a compiler that needs more fails with "
            "`out of memory`, however much is free",
            f"ulimit {option} unlimited",
        )


def _place(machine: Machine, heavy: HeavyPhase) -> Iterator[Check]:
    platform = machine.platform
    if machine.surroundings.group_kill:
        yield _warning(
            "memory-group-kill",
            "memory.oom.group: one kill takes the whole container, builddoctor included; the reserve is doubled",
            "",
        )
    if machine.surroundings.unit_stops:
        yield _warning(
            "memory-unit",
            f"systemd ends {machine.surroundings.unit_stops} as a whole when the kernel kills one process in it "
            "(OOMPolicy=stop): builddoctor and the build, too; the reserve is doubled",
            "start it with `systemd-run -p OOMPolicy=continue`",
        )
    if platform.unified_memory:
        yield _ok(
            "memory-unified",
            f"{platform.unified_memory}: CPU and GPU share one pool, and running out freezes the machine; "
            f"{format_mib(machine.reserve_mib)} stay free",
        )
    if platform.wsl_version == 2:
        short = machine.budget_mib < machine.cores * heavy.heavy_mib and machine.limiting.kind is LevelKind.HOST
        yield Topic.MEMORY.check(
            "memory-wsl",
            Status.OK,
            "WSL2: the virtual machine has half of Windows's memory, unless .wslconfig says otherwise. Out of memory, "
            "it can end as a whole, with every shell in it: twice the usual reserve is kept of it",
            wsl_memory(machine) if short else "",
        )
    if machine.surroundings.ci_runner:
        yield _ok(
            "memory-ci",
            "GitHub's runner needs memory too: without it the job ends with `lost communication with the server` or "
            "`received a shutdown signal` and no log: the reserve has some for it",
        )
    if platform.lxcfs:
        yield _ok("memory-lxcfs", "/proc/meminfo is lxcfs's: the figures of this container, not of the machine")


def _cores(machine: Machine, heavy: HeavyPhase, archs: int) -> Check:
    at_once = int(max(0.0, machine.budget_mib - heavy.beside_mib) // heavy.heavy_mib)
    each = format_mib(machine.budget_mib / machine.cores)
    text = f"{machine.cores} by {machine.cores_source}, {each} each; "
    if at_once >= machine.cores:
        meaning = f"memory allows {heavy.what} ({format_mib(heavy.heavy_mib)}) on every one of them"
        return Topic.CORES.check("cores-memory", Status.OK, text + meaning)
    if at_once == 0:
        return Topic.CORES.check(
            "cores-memory",
            Status.WARNING,
            f"{text}{heavy.what} take {format_mib(heavy.heavy_mib)} ({heavy.source}): one may not fit at all, and "
            f"{math.ceil((heavy.heavy_mib + heavy.beside_mib) / (1 - RESERVE_CAP_SHARE) / 1024)} GiB are enough for it",
            f"fewer --arch; or {more_memory(machine)}" if archs > 1 else more_memory(machine),
        )
    meaning = (
        f"memory allows about {at_once} of {heavy.what} at once ({format_mib(heavy.heavy_mib)}, {heavy.source}); "
        "with builddoctor that is no number you have to set"
    )
    return Topic.CORES.check("cores-memory", Status.OK, text + meaning)


def _ok(name: str, text: str) -> Check:
    return Topic.MEMORY.check(name, Status.OK, text)


def _warning(name: str, text: str, hint: str) -> Check:
    return Topic.MEMORY.check(name, Status.WARNING, text, hint)


# -- how heavy the project is ----------------------------------------------------------------------------------------


HEAVY_MIB = 4198.0
"""The largest phase of TransformerEngine 2.8 for sm_100, nvcc 13.0 (measured)."""


class HeavyPhase(msgspec.Struct, frozen=True, kw_only=True):
    """The largest phase that has to be expected."""

    heavy_mib: float = HEAVY_MIB
    what: str = "heavy CUDA units"
    source: str = "the largest of TransformerEngine 2.8"
    beside_mib: float = 0.0
    """what starts the compilers"""


def heavy_phase(
    *,
    traced_mib: float | None = None,
    by_recipe: HeavyPhase | None = None,
    known_mib: float | None = None,
    known_source: str = "",
) -> HeavyPhase:
    """By the last traced build of this folder, else by the project's nearest recipe, else by what is known of the
    project, else any heavy CUDA unit.

    Sizes below 64 MiB count as unknown.
    """
    if traced_mib is not None and traced_mib >= 64:
        return HeavyPhase(heavy_mib=traced_mib, what="its largest phases", source="measured in its last build here")
    if by_recipe is not None and by_recipe.heavy_mib >= 64:
        return by_recipe
    if known_mib is not None and known_mib >= 64:
        return HeavyPhase(heavy_mib=known_mib, what="its heavy phases", source=known_source)
    return HeavyPhase()


# -- what else ends processes, and core dumps ------------------------------------------------------------------------


DUMP_MIB = 4.1 * 1024
"""The largest compiler phase measured (TransformerEngine 2.8): what it leaves when it crashes."""

DEFAULT_PERCENT = {"earlyoom": 10.0, "nohang": 5.0}
"""Below this share of the host's memory they send SIGTERM, if not configured otherwise."""


def neighbour_checks(
    neighbours: Neighbours, *, host: HostMemory, headroom_mib: float, reserve_mib: float
) -> list[Check]:
    """All checks of topic ``neighbours``.

    ``headroom_mib``: at the tightest level; ``reserve_mib``: what builddoctor keeps free.
    """
    found = [_daemon(daemon, neighbours, host, headroom_mib, reserve_mib) for daemon in neighbours.daemons]
    if not found:
        text = "no user-space OOM killer runs here"
        if neighbours.unread:
            text = f"no user-space OOM killer to be seen, but one may run: {'; '.join(neighbours.unread)}"
        found.append(Topic.NEIGHBOURS.check("oom-daemon", Status.OK, text))
    return [*found, *_dumps(neighbours.dumps)]


def _daemon(
    daemon: OomDaemon, neighbours: Neighbours, host: HostMemory, headroom_mib: float, reserve_mib: float
) -> Check:
    if daemon.name in DEFAULT_PERCENT:
        return _host_watcher(daemon, host, headroom_mib, reserve_mib)
    where = f"all of {neighbours.scope}" if neighbours.scope else "a whole cgroup"
    text = (
        f"{daemon.name} runs: when memory stays short it ends {where} at once, builddoctor and your shell with it, "
        "and no kernel counter says so"
    )
    # In a scope of its own the build is what dies, and not the terminal.
    hint = "systemd-run --user --scope builddoctor run -- ..." if daemon.name == "systemd-oomd" else ""
    return Topic.NEIGHBOURS.check("oom-daemon", Status.WARNING, text, hint)


def _host_watcher(daemon: OomDaemon, host: HostMemory, headroom_mib: float, reserve_mib: float) -> Check:
    percent = daemon.acts_below_percent or DEFAULT_PERCENT[daemon.name]
    threshold_mib = percent / 100 * host.total_mib
    acts = f"{daemon.name} runs: it ends the process that it likes least when {format_mib(threshold_mib)} are available"
    # What the build may take at most before its own reserve stops it, seen from the whole host.
    left_mib = host.available_mib - max(0.0, headroom_mib - reserve_mib)
    if left_mib >= threshold_mib:
        text = f"{acts}; this build stops taking more at {format_mib(left_mib)}"
        return Topic.NEIGHBOURS.check("oom-daemon", Status.OK, text)
    lower_mib = host.available_mib - threshold_mib
    hint = f"builddoctor run --memory {int(lower_mib)}MiB -- ..." if lower_mib >= 1024 else ""
    text = f"{acts}, and this build goes down to {format_mib(max(0.0, left_mib))}: it would come first"
    if host.swap_total_mib > 0:
        text += ", once swap is short too"
    return Topic.NEIGHBOURS.check("oom-daemon", Status.WARNING, text, hint)


def _dumps(dumps: CoreDumps | None) -> list[Check]:
    if dumps is None:
        text = "where core dumps go cannot be read (/proc/sys/kernel/core_pattern)"
        return [Topic.NEIGHBOURS.check("core-dumps", Status.OK, text)]
    if not dumps.written:
        return [Topic.NEIGHBOURS.check("core-dumps", Status.OK, "no core dumps are kept")]
    way = f"are piped to {dumps.piped_to}" if dumps.piped_to else "are written"
    place = dumps.place
    if place is None:
        text = f"core dumps {way}; where that keeps them cannot be seen from here"
        return [Topic.NEIGHBOURS.check("core-dumps", Status.OK, text)]
    expected_mib = min(DUMP_MIB, dumps.limit_mib) if dumps.limit_mib is not None and not dumps.piped_to else DUMP_MIB
    size = format_mib(expected_mib)
    if place.in_memory:
        text = f"core dumps {way} in {place.path}, which is memory: a compiler that crashes leaves up to {size} there"
    elif place.free_mib is not None and place.free_mib < 2 * expected_mib:
        text = (
            f"core dumps {way} in {place.path}, where {format_mib(place.free_mib)} are free: "
            f"a compiler that crashes writes up to {size}"
        )
    else:
        room = "" if place.free_mib is None else f", {format_mib(place.free_mib)} free"
        text = f"core dumps {way} in {place.path}{room}"
        return [Topic.NEIGHBOURS.check("core-dumps", Status.OK, text)]
    # The kernel pipes at a limit of 0, too, but not at one of 1 byte, which `ulimit` cannot write (fs/coredump.c).
    hint = "prlimit --pid $$ --core=1:" if dumps.piped_to else "ulimit -c 0"
    return [Topic.NEIGHBOURS.check("core-dumps", Status.WARNING, text, hint)]


# -- whether a kill is recognised------------------------------------------------------------------------------------


def evidence_checks(seen: Visibility) -> list[Check]:
    """One line: with neither counter a kill by the kernel looks like any other."""
    counters = [name for name, there in (("own cgroup", seen.own_kills), ("host", seen.host_kills)) if there]
    unseen = [name for name, there in (("the kernel log", seen.kernel_log), ("pressure", seen.pressure)) if not there]
    beside = f"; not to be seen from here: {', '.join(unseen)}" if unseen else ""
    if counters:
        text = f"kills by the kernel are counted ({', '.join(counters)}){beside}"
        return [Topic.EVIDENCE.check("evidence", Status.OK, text)]
    text = f"no counter of kernel kills can be read: a kill by the kernel looks like any other kill -9{beside}"
    return [Topic.EVIDENCE.check("evidence", Status.WARNING, text)]
