"""Whose memory a NUMA node is: the CPUs', a GPU's, or CXL.

Covers: telling the three apart, without privilege.
Does *not* cover: how much memory a node has, or who may use it (``sensors.numa``).

A node with CPUs is theirs. For one without, the first of these that applies decides:

1. NVIDIA's driver names it in /proc/driver/nvidia/gpus/…/numa_status (open-gpu-kernel-modules, nv-procfs.c): the GPU's.
2. A dax device has it as ``target_node``: CXL or persistent memory that dax/kmem brought in. NVIDIA's driver adds its
   memory without a dax device.
3. The driver keeps GPU memory to itself (CDMM): not the GPU's. ``CoherentGPUMemoryMode: "driver"`` in
   /proc/driver/nvidia/params says so. Newer drivers do it unasked, with an empty mode: then
   ``EnableUserNUMAManagement`` is 0 (os-registry.c).
4. /proc/iomem has ``System RAM (NVIDIA)`` (addresses are hidden, names are not): the GPU's.
5. GPUs are there and this is not an x86: the GPU's. Only Grace (and POWER9 before it) shows GPU memory as nodes; CXL
   beside PCIe GPUs is found on x86. An unknown architecture counts as Grace: counting too little costs time, counting
   a GPU's memory costs somebody's job.
6. Else not the GPU's: CXL, or what else has no CPUs. It is counted like any memory.

A container sees the folders of its own GPUs only, so 1 alone would miss the others' nodes: 4 and 5 are of the machine.
Neither distance nor size tells: firmware makes the distances up, and both kinds come with 100 to 500 GiB a node. Nor
does a GPU's ``numa_node`` in /sys/bus/pci: that is the node of its CPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from builddoctor.sensors.kernel_text import labelled, parse_list
from builddoctor.sensors.platform import GPUS, read_architecture
from builddoctor.sensors.root import SystemRoot
from builddoctor.units import whole_number

NODES = "/sys/devices/system/node"

_PARAMS = "/proc/driver/nvidia/params"
_DAX = "/sys/bus/dax/devices"
_X86 = ("x86", "i386", "i686", "amd64")


class Owners:
    """Read once, asked for every node. ``cpus``: how many CPUs each node lists."""

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
