"""The machine that a plan is for, reduced to what a plan needs.

Covers: a named profile, a machine that was probed (this one, or from a file), and plain cores and memory, as of a
container; what a person should know of it: memory of GPUs, NUMA nodes, memory shared with a GPU.
Does *not* cover: probing (``sensors.machine``), names and files (``machines``).
"""

from __future__ import annotations

import msgspec

from builddoctor.errors import UsageError
from builddoctor.model.limits import MemoryLevel, MemoryReading, Surroundings
from builddoctor.model.machine import Machine, NumaNode
from builddoctor.model.profile import NominalMachine
from builddoctor.policy.budget import allowance
from builddoctor.units import format_mib

MOST_CORES = 100_000


class PlanHost(msgspec.Struct, frozen=True, kw_only=True):
    """What a build may have there."""

    name: str
    """what ``--on`` takes; ``this machine``; or the flags as given"""
    title: str = ""
    host_arch: str = ""
    cores: int
    memory_mib: float
    """the limit"""
    free_share: float = 1.0
    """of the limit: what is free before the build, its reserve not taken off"""
    reserve_mib: float
    budget_mib: float
    page_kib: int = 4
    surroundings: Surroundings = Surroundings()
    contained: bool = False
    """the limit is a cgroup's, and not all memory of a machine"""
    measured: bool = False
    """it was probed; else its figures are nominal"""
    notes: tuple[str, ...] = ()


def host_of_profile(machine: NominalMachine) -> PlanHost:
    """A named machine."""
    notes = list(machine.notes)
    if machine.hbm_mib_as_numa:
        notes.insert(0, _hbm_note(machine.hbm_mib_as_numa))
    if machine.unified_memory:
        notes.append("GPU and CPU share this memory, and running out freezes the machine: more is kept free")
    if machine.page_kib is None:
        notes.append("no source says which page size it is run with: taken as 4 KiB")
    return PlanHost(
        name=machine.name,
        title=machine.title,
        host_arch=machine.architecture,
        cores=machine.cores,
        memory_mib=machine.limit_mib,
        free_share=machine.headroom_mib / machine.limit_mib,
        reserve_mib=machine.reserve_mib,
        budget_mib=machine.budget_mib,
        page_kib=machine.page_kib or 4,
        surroundings=Surroundings(unified_memory=machine.unified_memory, ci_runner=machine.ci_runner),
        notes=tuple(notes),
    )


def host_of_machine(machine: Machine) -> PlanHost:
    """A machine that was probed, as full as it was then."""
    around = machine.surroundings
    notes = []
    hbm_mib = sum(node.total_mib for node in machine.numa.nodes if node.kind == "hbm")
    if hbm_mib > 0:
        notes.append(_hbm_note(hbm_mib))
    dram = [node for node in machine.numa.nodes if node.kind == "dram" and node.cpus]
    if len(dram) > 1:
        notes.append(_nodes_note(dram))
    if around.unified_memory or machine.platform.unified_memory:
        notes.append("GPU and CPU share this memory, and running out freezes the machine: more is kept free")
    limit_mib = max(machine.limit_mib, 1.0)
    return PlanHost(
        name=machine.name,
        host_arch=machine.platform.architecture,
        cores=max(1, min(machine.cores, MOST_CORES)),
        memory_mib=limit_mib,
        free_share=min(1.0, max(0.0, machine.headroom_mib / limit_mib)),
        reserve_mib=machine.reserve_mib,
        budget_mib=max(0.0, machine.budget_mib),
        page_kib=machine.platform.page_kib,
        surroundings=around,
        contained=any(level.kind.startswith("cgroup") for level in machine.levels),
        measured=True,
        notes=tuple(notes),
    )


def limited(host: PlanHost, *, cores: int = 0, memory_mib: float = 0.0) -> PlanHost:
    """The same machine with a container's cores and memory; 0 leaves what it has. Raises UsageError for what it lacks.

    With a memory of its own the container begins empty: what others hold is outside of it.
    """
    if not cores and not memory_mib:
        return host
    if cores < 0 or cores > MOST_CORES:
        raise UsageError(f"{cores} cores are no number of cores to plan for", hint="--cores 8")
    flags = [f"--cores {cores}"] if cores else []
    if memory_mib:
        flags.append(f"--memory {format_mib(memory_mib).replace(' ', '')}")
    changed = msgspec.structs.replace(host, cores=cores or host.cores, name=f"{host.name}, {' '.join(flags)}")
    if not memory_mib:
        return changed
    reserve_mib, budget_mib = _budget(memory_mib, memory_mib, host.surroundings, contained=True)
    return msgspec.structs.replace(
        changed,
        memory_mib=memory_mib,
        free_share=1.0,
        reserve_mib=reserve_mib,
        budget_mib=budget_mib,
        contained=True,
        measured=False,
    )


def figures_only(*, cores: int, memory_mib: float, like: PlanHost) -> PlanHost:
    """``--cores`` and ``--memory`` alone: a container of that size on a machine of the kind of ``like``."""
    host = limited(like, cores=cores, memory_mib=memory_mib)
    return msgspec.structs.replace(
        host,
        name=f"a container of {host.cores} core{'s' * (host.cores != 1)} and {format_mib(host.memory_mib)}",
        title="",
        notes=(),
    )


def scaled(host: PlanHost, *, cores: int, memory_mib: float) -> PlanHost:
    """The same machine with other cores and memory, as full as it is."""
    reserve_mib, budget_mib = _budget(
        memory_mib, host.free_share * memory_mib, host.surroundings, contained=host.contained
    )
    return msgspec.structs.replace(
        host, cores=max(1, cores), memory_mib=memory_mib, reserve_mib=reserve_mib, budget_mib=budget_mib
    )


def _budget(
    limit_mib: float, headroom_mib: float, surroundings: Surroundings, *, contained: bool
) -> tuple[float, float]:
    level = MemoryLevel(
        source="planned",
        kind="cgroup-v2" if contained else "host",
        limit_mib=limit_mib,
        headroom_mib=headroom_mib,
    )
    allowed = allowance(MemoryReading(levels=(level,), surroundings=surroundings), 0.0)
    return allowed.reserve_mib, allowed.budget_mib


def _hbm_note(hbm_mib: float) -> str:
    return (
        f"memory of the GPUs ({hbm_mib / 1024:.0f} GiB of HBM, NUMA nodes to the kernel) is not counted as host memory"
    )


def _nodes_note(nodes: list[NumaNode]) -> str:
    sizes = ", ".join(format_mib(node.total_mib) for node in nodes)
    return f"{len(nodes)} NUMA nodes with CPUs ({sizes}): a job bound to one of them has that much and no more"
