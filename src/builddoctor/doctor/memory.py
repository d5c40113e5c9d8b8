"""Checks of memory and cores: who limits this build, by how much, and what is in the way. Pure: data in, lines out.

Does *not* cover: folders in memory (``doctor.storage``), or programs that end builds (``doctor.neighbours``).
"""

from __future__ import annotations

from collections.abc import Iterator

from builddoctor.doctor.weight import Weight
from builddoctor.model.check import Check, Status
from builddoctor.model.limits import MemoryLevel
from builddoctor.model.machine import Machine
from builddoctor.policy.budget import LEAST_BUDGET_MIB
from builddoctor.units import format_mib

HELD_SHARE = 0.25
"""From this share on, what others hold of the limit is worth a line."""
HUGE_SHARE = 0.05
LEAST_PROCESS_MIB = 1024.0
"""Our own line. RLIMIT_AS counts what is mapped, which is more than what is held."""

_WHO = {
    "host": "the machine's own memory",
    "numa": "NUMA binding",
    "overcommit": "overcommit mode 2",
    "eviction": "kubelet's eviction",
    "scheduler": "the batch scheduler's allotment",
    "flag": "your --memory",
}


def memory_checks(machine: Machine, weight: Weight, *, archs: int = 0) -> list[Check]:
    """All of them, most important first. ``archs``: how many architectures were asked for."""
    return [
        _limit(machine),
        *_held(machine),
        *_unread(machine),
        *_levels(machine),
        *_nodes(machine),
        *_set_aside(machine),
        *_process_caps(machine, weight),
        *_place(machine),
        _cores(machine, weight, archs),
    ]


def _limit(machine: Machine) -> Check:
    tightest = _limiting(machine)
    who = _WHO.get(tightest.kind, f"cgroup {tightest.source}")
    text = (
        f"{format_mib(machine.budget_mib)} to build in: {format_mib(machine.headroom_mib)} free of "
        f"{format_mib(tightest.limit_mib)} by {who}, {format_mib(machine.reserve_mib)} of it kept in reserve"
    )
    if tightest.confidence != "high" and tightest.note:
        text += f" ({tightest.confidence} confidence: {tightest.note})"
    if tightest.limit_mib < 0.95 * machine.host.total_mib:
        text += f"; the machine has {format_mib(machine.host.total_mib)}, and `free` would tell you so"
    if machine.budget_mib < LEAST_BUDGET_MIB:
        return Check(
            name="memory-limit",
            topic="memory",
            status=Status.PROBLEM,
            text=text,
            hint="end what else runs there, or raise that limit",
            stops_build=tightest.kind != "eviction",
        )
    return Check(name="memory-limit", topic="memory", status=Status.OK, text=text)


def _held(machine: Machine) -> Iterator[Check]:
    """What others hold at the level that limits us: often it can be had back."""
    tightest = _limiting(machine)
    held_mib = tightest.used_mib
    if tightest.kind == "flag" or held_mib < HELD_SHARE * tightest.limit_mib or held_mib < 512:
        return
    text = f"{format_mib(held_mib)} of that limit are held by what runs already"
    in_memory_mib = min(held_mib, machine.host.shmem_mib)
    if in_memory_mib > held_mib / 4 and tightest.kind in ("host", "numa", "eviction"):
        text += f", {format_mib(in_memory_mib)} of them by files in memory (tmpfs) and shared memory"
    yield _warning("memory-held", text, "ps -eo rss,pid,args --sort=-rss | head; du -sh /dev/shm /tmp")


def _unread(machine: Machine) -> Iterator[Check]:
    if machine.hidden_above:
        text = (
            "limits above this container (a pod's, a slice's) cannot be seen from inside; one that you know: `--memory`"
        )
        yield _ok("memory-hidden", text)
    if machine.unread:
        seen = "; ".join(machine.unread[:3]) + (" …" if len(machine.unread) > 3 else "")
        yield _warning(
            "memory-unread",
            f"could not be read, and may set a limit: {seen}",
            "if you know the limit, say it: `--memory 24GiB`",
        )


def _levels(machine: Machine) -> Iterator[Check]:
    kinds = {level.kind: level for level in machine.levels}
    if level := kinds.get("scheduler"):
        yield _warning(
            "memory-scheduler",
            f"{level.source} gives this job {format_mib(level.limit_mib)}, and no cgroup keeps it: the scheduler "
            "may end the job when it looks; builddoctor stays below",
            "",
        )
    if level := kinds.get("overcommit"):
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


def _process_caps(machine: Machine, weight: Weight) -> Iterator[Check]:
    for cap in machine.process_caps:
        needed_mib = max(LEAST_PROCESS_MIB, 1.5 * weight.heavy_mib)
        if cap.limit_mib >= needed_mib:
            continue
        option = "-v" if cap.name == "RLIMIT_AS" else "-d"
        yield Check(
            name="memory-rlimit",
            topic="memory",
            status=Status.PROBLEM if cap.limit_mib < LEAST_PROCESS_MIB / 2 else Status.WARNING,
            text=f"{cap.name} allows each process {format_mib(cap.limit_mib)}: a compiler that needs more fails with "
            "`out of memory`, however much is free",
            hint=f"ulimit {option} unlimited",
        )


def _place(machine: Machine) -> Iterator[Check]:
    platform = machine.platform
    if machine.surroundings.group_kill:
        yield _warning(
            "memory-group-kill",
            "memory.oom.group: one kill takes the whole container, builddoctor included; the reserve is doubled",
            "",
        )
    if platform.unified_memory:
        yield _ok(
            "memory-unified",
            f"{platform.unified_memory}: CPU and GPU share one pool, and running out freezes the machine; "
            f"{format_mib(machine.reserve_mib)} stay free",
        )
    if platform.wsl:
        yield _ok(
            "memory-wsl",
            "WSL2: the virtual machine has this much by its own limit; `memory=` in .wslconfig raises it",
        )
    if platform.lxcfs:
        yield _ok("memory-lxcfs", "/proc/meminfo is lxcfs's: the figures of this container, not of the machine")


def _cores(machine: Machine, weight: Weight, archs: int) -> Check:
    at_once = int(machine.budget_mib // weight.heavy_mib)
    each = format_mib(machine.budget_mib / machine.cores)
    text = f"{machine.cores} by {machine.cores_source}, {each} each; "
    if at_once >= machine.cores:
        meaning = f"memory allows {weight.what} ({format_mib(weight.heavy_mib)}) on every one of them"
        return Check(name="cores-memory", topic="cores", status=Status.OK, text=text + meaning)
    if at_once == 0:
        return Check(
            name="cores-memory",
            topic="cores",
            status=Status.WARNING,
            text=f"{text}{weight.what} take {format_mib(weight.heavy_mib)} ({weight.source}): one may not fit at all",
            hint="fewer --arch, or more memory" if archs > 1 else "a machine or container with more memory",
        )
    meaning = (
        f"memory allows about {at_once} of {weight.what} at once ({format_mib(weight.heavy_mib)}, {weight.source}); "
        "with builddoctor that is no number you have to set"
    )
    return Check(name="cores-memory", topic="cores", status=Status.OK, text=text + meaning)


def _limiting(machine: Machine) -> MemoryLevel:
    """The level that ``limited_by`` names."""
    found = [level for level in machine.levels if level.source == machine.limited_by]
    return found[0] if found else min(machine.levels, key=lambda level: level.headroom_mib)


def _ok(name: str, text: str) -> Check:
    return Check(name=name, topic="memory", status=Status.OK, text=text)


def _warning(name: str, text: str, hint: str) -> Check:
    return Check(name=name, topic="memory", status=Status.WARNING, text=text, hint=hint)
