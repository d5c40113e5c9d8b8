"""NUMA nodes: how much memory each has, whose it is, and which of them this process may use.

Covers: nodes from /sys/devices/system/node, cpuset (``Mems_allowed_list``), memory policy (numa_maps), GPU memory that
the kernel shows as nodes (GH200, GB200), told from CXL, and all that as one level of memory.
Does *not* cover: limits of memory cgroups, or a policy that the build sets for itself (``builddoctor run -- numactl
--membind=0 make``): put numactl in front of builddoctor instead.

Why a level: /proc/meminfo knows no nodes. On a GB200 tray MemTotal is 1694 GiB, of which 738 are the GPUs' (issue
TransformerEngine#1996); a build that spills there takes it from a GPU job. And a process that may use one of
two nodes is killed when that one is full, whatever MemAvailable says.

Whose memory a node is: a node with CPUs is theirs. For one without, the first of these that applies decides:

1. NVIDIA's driver names it in /proc/driver/nvidia/gpus/…/numa_status (open-gpu-kernel-modules, nv-procfs.c): the GPU's.
2. A dax device has it as ``target_node``: CXL or persistent memory that dax/kmem brought in. NVIDIA's driver adds its
   memory without a dax device.
3. The driver keeps GPU memory to itself (CDMM): not the GPU's. ``CoherentGPUMemoryMode: "driver"`` in
   /proc/driver/nvidia/params says so. Newer drivers do it unasked, with an empty mode: then
   ``EnableUserNUMAManagement`` is 0 (os-registry.c).
4. /proc/iomem has ``System RAM (NVIDIA)`` (addresses are hidden, names are not): the GPU's.
5. GPUs are there and this is not an x86: the GPU's. Only Grace (and POWER9 before it) shows GPU memory as nodes; CXL
   beside PCIe GPUs is found on x86. An unknown architecture counts as Grace: counting too little costs time, counting
   a GPU's memory ends a GPU job.
6. Else not the GPU's: CXL, or what else has no CPUs. It is counted like any memory.

A container sees the folders of its own GPUs only, so 1 alone would miss the others' nodes: 4 and 5 are of the machine.
Neither distance nor size tells: firmware makes the distances up, and both kinds come with 100 to 500 GiB a node. Nor
does a GPU's ``numa_node`` in /sys/bus/pci: that is the node of its CPU.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

import msgspec

from builddoctor.core.limits import LevelKind, MemoryLevel
from builddoctor.core.machine import Numa, NumaNode
from builddoctor.core.units import MIB, format_mib, whole_number
from builddoctor.core.word import Confidence
from builddoctor.system.cgroup import working_set_mib
from builddoctor.system.platform import GPUS, read_architecture
from builddoctor.system.root import SystemRoot, labelled, parse_list

NODES = "/sys/devices/system/node"

_PARAMS = "/proc/driver/nvidia/params"
_DAX = "/sys/bus/dax/devices"
_X86 = ("x86", "i386", "i686", "amd64")
_STATUS = "/proc/self/status"
_MAPS = "/proc/self/numa_maps"
_ZONES = "/proc/zoneinfo"
_ALLOWED = "Mems_allowed_list"

_POLICY = re.compile(
    r"[0-9a-f]+ (?P<policy>(?P<mode>prefer \(many\)|weighted interleave|[a-z]+)(?:=[a-z|]+)?(?::(?P<nodes>[0-9,-]+))?)"
    r"(?P<rest>(?: .*)?)\Z"
)
"""One line of numa_maps: address, policy, then what is mapped (kernel: mpol_to_str). Two modes have a blank in them."""

_FIELDS = frozenset(("MemTotal:", "MemFree:", "Active(file):", "Inactive(file):", "SReclaimable:", "Mapped:", "Shmem:"))


class NumaSensor:
    """The NUMA level, twenty times a second: the topology is read once, then only the memory of the nodes that count.

    Where there is nothing to limit (one node, or all of them allowed and none a GPU's) a reading opens no file.
    ``unread``: what should say which nodes may be used, or how big one is, and could not be read.
    """

    def __init__(self, root: SystemRoot) -> None:
        self._root = root
        self._numa = Numa()
        self.look_again()

    def look_again(self) -> None:
        """Read the topology anew: a cpuset may change under a running job. What cannot be read now stays as it was."""
        found = read_numa(self._root)
        self.unread = _unread(self._root, found)
        if self._numa.nodes and (self.unread or not found.nodes):
            self.unread = self.unread or (NODES,)
            return
        self._numa = found
        self._marks = _read_marks(self._root, self._numa.nodes)

    def level(self) -> MemoryLevel | None:
        """As :func:`numa_level`, with the memory as it is now."""
        if not _limits(self._numa):
            return None
        nodes: list[NumaNode] = []
        gone = ""
        for node in self._numa.nodes:
            memory = _node_memory(self._root, node.node) if _counts(node) else None
            if memory is not None:
                # The size may change too: memory is plugged in and out.
                free_mib = memory.available_mib(self._marks)
                nodes.append(msgspec.structs.replace(node, total_mib=memory.total_mib, available_mib=free_mib))
            else:
                nodes.append(node)
                gone = gone or (f"node {node.node} can no longer be read" if _counts(node) else "")
        # Kept: a node that cannot be read next time stands as it was last seen.
        self._numa = msgspec.structs.replace(self._numa, nodes=tuple(nodes))
        level = numa_level(self._numa)
        return (
            msgspec.structs.replace(level, confidence=Confidence.LOW, note=gone)
            if level is not None and gone
            else level
        )


def read_numa(root: SystemRoot, process: str = "self") -> Numa:
    """All nodes that have memory, and which ``process`` may use. Without NUMA, or where none can be read: no nodes."""
    memories = [memory for node in _memory_nodes(root) if (memory := _node_memory(root, node)) is not None]
    if not memories:
        return Numa()
    seen = frozenset(memory.node for memory in memories)
    allowed_text = labelled(root.text(f"/proc/{process}/status") or "", _ALLOWED)
    # No process can run without memory: a list that names none of these nodes is not one.
    allowed = parse_list(allowed_text) & seen
    policy, bound = _policy(root.text(f"/proc/{process}/numa_maps") or "")
    usable = allowed or seen
    # Nor can it be bound to what the cpuset forbids: then the kernel drops the policy.
    usable = usable & bound or usable
    cpus = {memory.node: _cpus(root, memory.node) for memory in memories}
    owners = _Owners(root, cpus)
    nodes = [
        NumaNode(
            node=memory.node,
            kind=owners.kind(memory.node),
            cpus=cpus[memory.node],
            total_mib=memory.total_mib,
            available_mib=0.0,
            allowed=memory.node in usable,
        )
        for memory in memories
    ]
    marks = _read_marks(root, tuple(nodes))
    shows_hbm = any(node.kind == "hbm" for node in nodes)
    return Numa(
        nodes=tuple(
            msgspec.structs.replace(node, available_mib=memory.available_mib(marks))
            for node, memory in zip(nodes, memories, strict=True)
        ),
        allowed=allowed_text if allowed else "",
        policy=policy,
        coherent_mode="cdmm" if owners.kept_by_driver else "numa" if shows_hbm else "",
    )


def numa_level(numa: Numa) -> MemoryLevel | None:
    """Memory of the nodes that this process may use and that are no GPU's.

    None when that is all there is: then the host's own level says it better, without the error of adding up nodes.
    """
    if not _limits(numa):
        return None
    counted = [node for node in numa.nodes if _counts(node)]
    hbm = [node for node in numa.nodes if node.kind == "hbm"]
    own = [node for node in numa.nodes if node.kind != "hbm"]
    notes = []
    if len(counted) < len(own):
        notes.append(f"{len(counted)} of {len(own)} nodes allowed")
    if hbm:
        total = format_mib(sum(node.total_mib for node in hbm))
        notes.append(f"{len(hbm)} HBM {'node' if len(hbm) == 1 else 'nodes'}, {total}, not counted")
    return MemoryLevel(
        source=_source(numa, counted, own),
        kind=LevelKind.NUMA,
        limit_mib=sum(node.total_mib for node in counted),
        headroom_mib=sum(node.available_mib for node in counted),
        # The kernel itself would go on into the GPUs' memory: not counting it is our rule.
        confidence=Confidence.MEDIUM if any(node.allowed for node in hbm) or not numa.allowed else Confidence.HIGH,
        note="; ".join(notes),
    )


class _Marks(msgspec.Struct, frozen=True):
    """What the kernel keeps free before it reclaims, MiB: by /proc/zoneinfo, which has it for each node. Where that
    cannot be read, worked out of vm.min_free_kbytes and vm.watermark_scale_factor."""

    zones_mib: Mapping[int, float] = msgspec.field(default_factory=dict)
    """of each node, as the kernel itself has it"""
    min_free_mib: float = 0.0
    scale: float = 0.0
    shared_by_mib: float = 0.0
    """memory of all nodes but the GPUs': those have only movable memory, which gets no share of min_free"""

    def low_mib(self, node: int, total_mib: float) -> float:
        """A node's low watermark, or its share of it (kernel: __setup_per_zone_wmarks)."""
        if (known_mib := self.zones_mib.get(node)) is not None:
            return known_mib
        share_mib = self.min_free_mib * total_mib / self.shared_by_mib if self.shared_by_mib > 0 else 0.0
        return share_mib + max(share_mib / 4, total_mib * self.scale)


class _NodeMemory(msgspec.Struct, frozen=True, kw_only=True):
    node: int
    total_mib: float
    free_mib: float
    """free, and what is dropped at once"""

    def available_mib(self, marks: _Marks) -> float:
        return max(0.0, min(self.total_mib, self.free_mib - marks.low_mib(self.node, self.total_mib)))


def _counts(node: NumaNode) -> bool:
    return node.allowed and node.kind != "hbm"


def _limits(numa: Numa) -> bool:
    return not all(_counts(node) for node in numa.nodes)


def _source(numa: Numa, counted: list[NumaNode], own: list[NumaNode]) -> str:
    """What leaves memory out: the cpuset, the policy, or the nodes themselves."""
    if len(counted) < len(own):
        allowed = parse_list(numa.allowed)
        if all(node.allowed or (allowed and node.node not in allowed) for node in own):
            return f"{_STATUS} {_ALLOWED} {numa.allowed}"
        return f"{_MAPS} {numa.policy}"
    names = ",".join(str(node.node) for node in counted)
    return f"{NODES}/node{names if len(counted) == 1 else '{' + names + '}'}/meminfo"


def _unread(root: SystemRoot, numa: Numa) -> tuple[str, ...]:
    """Nothing on a machine with one node, where there is nothing to choose."""
    nodes = _memory_nodes(root)
    if len(nodes) < 2:
        return ()
    meminfos = [f"{NODES}/node{node}/meminfo" for node in nodes]
    unread = [file for file in (*meminfos, _MAPS) if root.text(file) is None]
    return tuple(unread if numa.allowed else [*unread, f"{_STATUS} {_ALLOWED}"])


def _memory_nodes(root: SystemRoot) -> list[int]:
    """Nodes that may have memory; those that have none after all are left out by their meminfo."""
    found = _first_list(root, "has_memory", "has_normal_memory", "online")
    if not found:
        found = {number for name in root.names(NODES) if (number := whole_number(name[4:])) is not None}
    return sorted(found)


def _first_list(root: SystemRoot, *names: str) -> frozenset[int] | set[int]:
    for name in names:
        if found := parse_list(root.text(f"{NODES}/{name}") or ""):
            return found
    return set()


def _cpus(root: SystemRoot, node: int) -> int:
    return len(parse_list(root.text(f"{NODES}/node{node}/cpulist") or ""))


def _node_memory(root: SystemRoot, node: int) -> _NodeMemory | None:
    """None for a node without memory (28 of a GB200 tray's 34 are kept for MIG), or one that cannot be read.

    Page cache and slab count as in ``system.cgroup``: all of it can be had, but for a working set of mapped files.
    """
    kib: dict[str, int] = {}
    for line in (root.text(f"{NODES}/node{node}/meminfo") or "").splitlines():
        words = line.split()
        # ``Node 0 MemTotal:  4024536 kB``
        if len(words) >= 4 and words[2] in _FIELDS and (number := whole_number(words[3])) is not None:
            kib[words[2]] = number
    total_kib = kib.get("MemTotal:", 0)
    if total_kib == 0:
        return None
    files_kib = kib.get("Inactive(file):", 0) + kib.get("Active(file):", 0)
    free_mib = (kib.get("MemFree:", 0) + files_kib + kib.get("SReclaimable:", 0)) / 1024
    mapped_kib = min(files_kib, max(0, kib.get("Mapped:", 0) - kib.get("Shmem:", 0)))
    free_mib -= working_set_mib(mapped_kib / 1024, free_mib)
    return _NodeMemory(node=node, total_mib=total_kib / 1024, free_mib=free_mib)


def _read_marks(root: SystemRoot, nodes: tuple[NumaNode, ...]) -> _Marks:
    min_free_kib = whole_number(root.text("/proc/sys/vm/min_free_kbytes") or "") or 0
    scale = whole_number(root.text("/proc/sys/vm/watermark_scale_factor") or "") or 0
    return _Marks(
        zones_mib=_zone_marks(root),
        min_free_mib=min_free_kib / 1024,
        scale=scale / 10000,
        shared_by_mib=sum(node.total_mib for node in nodes if node.kind != "hbm"),
    )


def _zone_marks(root: SystemRoot) -> dict[int, float]:
    """What no user's page may take of each node's free memory: the low watermarks of its zones, and what the lower
    zones keep for the kernel (lowmem_reserve: the last figure of ``protection``, for movable pages).

    Counted in pages. With pages of 64 KiB the watermarks are 5 % of the memory (khugepaged: a pageblock is 512 MiB).
    """
    found: dict[int, float] = {}
    pages: dict[str, int] = {}
    node: int | None = None
    for line in (root.text(_ZONES) or "").splitlines():
        words = line.split()
        if len(words) < 2:
            continue
        if words[0] == "Node":
            node, pages = whole_number(words[1].rstrip(",")), {}
        elif words[0] in ("low", "managed") and (number := whole_number(words[1])) is not None:
            pages[words[0]] = number
        elif words[0] == "protection:" and node is not None and len(pages) == 2:
            kept = pages["low"] + (whole_number(words[-1].strip("()")) or 0)
            found[node] = found.get(node, 0.0) + min(pages["managed"], kept) * root.page_bytes() / MIB
    return found


def _policy(text: str) -> tuple[str, frozenset[int]]:
    """Policy of this process, and the nodes it is bound to (none: any).

    A mapping without a policy of its own shows the process's; heap and stack never have one of their own. Only ``bind``
    is strict: the others fall back to any allowed node when theirs are full (kernel doc numa_memory_policy.rst).
    """
    found: dict[str, frozenset[int]] = {}
    for line in text.splitlines():
        match = _POLICY.match(line)
        if match is None:
            continue
        nodes = parse_list(match["nodes"] or "") if match["mode"] == "bind" else frozenset()
        if match["rest"].split(" ")[1:2] in (["heap"], ["stack"]):
            return _named_policy(match["policy"]), nodes
        found[match["policy"]] = nodes
    # No heap and no stack in what could be read: believed when all lines agree.
    if len(found) == 1:
        ((policy, nodes),) = found.items()
        return _named_policy(policy), nodes
    return "", frozenset()


def _named_policy(policy: str) -> str:
    return "" if policy == "default" else policy


class _Owners:
    """Whose memory a node is, by the rules above. Read once; ``cpus``: how many CPUs each node lists."""

    def __init__(self, root: SystemRoot, cpus: Mapping[int, int]) -> None:
        gpus = root.names(GPUS)
        x86 = read_architecture(root).lower().startswith(_X86)
        params = root.text(_PARAMS) or ""
        mode = labelled(params, "CoherentGPUMemoryMode").strip('"')
        by_default = mode == "" and labelled(params, "EnableUserNUMAManagement") == "0"
        # The same setting is rolled out to machines with PCIe GPUs, where it means nothing.
        self.kept_by_driver = bool(gpus) and not x86 and (mode == "driver" or by_default)
        self._with_cpus = parse_list(root.text(f"{NODES}/has_cpu") or "") | {node for node in cpus if cpus[node]}
        self._named = {whole_number(labelled(root.text(f"{GPUS}/{gpu}/numa_status") or "", "Node")) for gpu in gpus}
        self._dax = {whole_number(root.text(f"{_DAX}/{name}/target_node") or "") for name in root.names(_DAX)}
        self._shown = "System RAM (NVIDIA)" in (root.text("/proc/iomem") or "") or (bool(gpus) and not x86)

    def kind(self, node: int) -> Literal["dram", "hbm", "cxl"]:
        """By the rules above."""
        # Where no node has CPUs, what should say so could not be read.
        if node in self._with_cpus or not self._with_cpus:
            return "dram"
        if node in self._named:
            return "hbm"
        if node in self._dax or self.kept_by_driver:
            return "cxl"
        return "hbm" if self._shown else "cxl"
