"""Machines with NUMA nodes as kernel files: functions that give path to content, for ``plant`` and ``TextRoot``.

Layouts: a GB200 tray as in kubernetes/enhancements#5726 and TransformerEngine#1996, GH200, DGX Spark (unslothai/unsloth
#10705), x86 with CXL. Formats: /sys and /proc of Linux 6.18; NVIDIA's files as its open kernel modules print them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

NODE = "/sys/devices/system/node"
GPUS = "/proc/driver/nvidia/gpus"
KIB = 1024**2
"""KiB in a GiB"""

LPDDR_GIB = 478
HBM_GIB = 184.5
GB200_HBM_NODES = (2, 10, 18, 26)

MAPS = """55b100818000 {policy} file=/usr/bin/python3.12 mapped=2 N0=2 kernelpagesize_kB={page}
55b14012c000 {policy} heap anon=4 dirty=4 active=0 N0=4 kernelpagesize_kB={page}
7f4d81669000 {policy} file=/usr/lib/locale/C.utf8/LC_CTYPE mapped=32 mapmax=12 N0=32 kernelpagesize_kB={page}
7f4d818b9000 {policy}
7ffee7377000 {policy} stack anon=4 dirty=4 active=1 N0=4 kernelpagesize_kB={page}
"""

NODE_MEMINFO = """Node {node} MemTotal:       {total} kB
Node {node} MemFree:        {free} kB
Node {node} MemUsed:        {used} kB
Node {node} SwapCached:            0 kB
Node {node} Active:         {active} kB
Node {node} Inactive:       {inactive} kB
Node {node} Active(anon):          0 kB
Node {node} Inactive(anon):        0 kB
Node {node} Active(file):   {active} kB
Node {node} Inactive(file): {inactive} kB
Node {node} Unevictable:           0 kB
Node {node} Dirty:                28 kB
Node {node} FilePages:      {files} kB
Node {node} Shmem:                 0 kB
Node {node} KReclaimable:   {slab} kB
Node {node} Slab:           {slab} kB
Node {node} SReclaimable:   {slab} kB
Node {node} SUnreclaim:            0 kB
Node {node} HugePages_Total:     0
Node {node} HugePages_Free:      0
"""

IOMEM = "00000000-00000000 : System RAM\n  00000000-00000000 : Kernel code\n00000000-00000000 : PCI Bus 0000:00\n"


def node(
    number: int,
    total_gib: float,
    *,
    free_gib: float | None = None,
    inactive_gib: float = 0.0,
    active_gib: float = 0.0,
    slab_gib: float = 0.0,
    cpus: str = "",
) -> dict[str, str]:
    """One node's folder. All of it free unless said otherwise; no CPUs unless said otherwise."""
    total, inactive, active = round(total_gib * KIB), round(inactive_gib * KIB), round(active_gib * KIB)
    free = total if free_gib is None else round(free_gib * KIB)
    text = NODE_MEMINFO.format(
        node=number,
        total=total,
        free=free,
        used=total - free,
        active=active,
        inactive=inactive,
        files=active + inactive,
        slab=round(slab_gib * KIB),
    )
    return {f"{NODE}/node{number}/meminfo": text, f"{NODE}/node{number}/cpulist": f"{cpus}\n"}


def node_sets(online: str, *, memory: str, cpu: str) -> dict[str, str]:
    """The sets of nodes that the kernel keeps."""
    return {f"{NODE}/online": f"{online}\n", f"{NODE}/has_memory": f"{memory}\n", f"{NODE}/has_cpu": f"{cpu}\n"}


def process(allowed: str, *, policy: str = "default", page_kib: int = 4) -> dict[str, str]:
    """What this process may use: cpuset and memory policy."""
    status = f"Name:\tpython\nCpus_allowed_list:\t0-1\nMems_allowed:\t00000003\nMems_allowed_list:\t{allowed}\n"
    return {"/proc/self/status": status, "/proc/self/numa_maps": MAPS.format(policy=policy, page=page_kib)}


def system(architecture: str, *, min_free_kib: int = 0, kernel: str = "6.8.0-1024-nvidia-64k") -> dict[str, str]:
    """Architecture, kernel and what it keeps free; ``min_free_kib`` 0 keeps sums round."""
    return {
        "/proc/sys/kernel/arch": f"{architecture}\n",
        "/proc/sys/kernel/osrelease": f"{kernel}\n",
        "/proc/sys/vm/min_free_kbytes": f"{min_free_kib}\n",
        "/proc/sys/vm/watermark_scale_factor": f"{10 if min_free_kib else 0}\n",
    }


def gpus(model: str, addresses: Sequence[str], *, nodes: Mapping[str, int] | None = None) -> dict[str, str]:
    """/proc/driver/nvidia/gpus. ``nodes``: address to the node that the driver shows its memory as."""
    files: dict[str, str] = {}
    for minor, address in enumerate(addresses):
        files[f"{GPUS}/{address}/information"] = (
            f"Model: \t\t {model}\nIRQ:   \t\t 128\nGPU UUID: \t GPU-00000000-0000-0000-0000-00000000000{minor}\n"
            f"Video BIOS: \t 97.00.b9.00.0d\nBus Type: \t PCIe\nDMA Size: \t 52 bits\nBus Location: \t {address}\n"
            f"Device Minor: \t {minor}\nGPU Excluded:\t No\n"
        )
    for address, number in (nodes or {}).items():
        files[f"{GPUS}/{address}/numa_status"] = f"Node:      {number}\nStatus:    online\n"
    return files


def params(mode: str | None, *, user_numa: int = 1) -> dict[str, str]:
    """/proc/driver/nvidia/params; ``mode`` None: a driver that does not know the setting."""
    coherent = "" if mode is None else f'CoherentGPUMemoryMode: "{mode}"\n'
    text = f'ResmanDebugLevel: 4294967295\nEnableUserNUMAManagement: {user_numa}\n{coherent}RegistryDwords: ""\n'
    return {"/proc/driver/nvidia/params": text}


def whole(total_gib: float, *, free_gib: float, available_gib: float) -> dict[str, str]:
    """/proc/meminfo, which knows no nodes."""
    figures = (("MemTotal", total_gib), ("MemFree", free_gib), ("MemAvailable", available_gib))
    return {"/proc/meminfo": "".join(f"{name + ':':<16}{round(size * KIB)} kB\n" for name, size in figures)}


def gb200_tray(*, mode: str | None = "", allowed: str = "0-33", policy: str = "default") -> dict[str, str]:
    """Two Grace with 72 cores each, four GPUs, 34 nodes: GPUs at 2, 10, 18, 26, each followed by 7 empty ones for MIG.

    With ``mode`` "driver" the GPUs' nodes are there as well, but empty.
    """
    addresses = ("0008:01:00.0", "0009:01:00.0", "0018:01:00.0", "0019:01:00.0")
    hbm_gib = 0.0 if mode == "driver" else HBM_GIB
    memory = "0-1" if mode == "driver" else "0-2,10,18,26"
    total_gib = 2 * LPDDR_GIB + 4 * hbm_gib
    files = (
        system("aarch64") | node_sets("0-33", memory=memory, cpu="0-1") | process(allowed, policy=policy, page_kib=64)
    )
    files |= gpus("NVIDIA GB200", addresses) | params(mode, user_numa=0 if mode == "driver" else 1)
    files |= whole(total_gib, free_gib=total_gib, available_gib=total_gib)
    for number in range(34):
        if number < 2:
            files |= node(number, LPDDR_GIB, cpus=f"{72 * number}-{72 * number + 71}")
        else:
            files |= node(number, hbm_gib if number in GB200_HBM_NODES else 0.0)
    return files


def gh200(*, named: bool = True) -> dict[str, str]:
    """One Grace, one Hopper at node 1, seven empty nodes; ``named``: the driver's numa_status says which is its own."""
    address = "0009:01:00.0"
    files = system("aarch64") | node_sets("0-8", memory="0-1", cpu="0") | process("0-8", page_kib=64)
    files |= gpus("NVIDIA GH200 480GB", (address,), nodes={address: 1} if named else None) | params("")
    files |= whole(576, free_gib=570, available_gib=570)
    files |= node(0, 480, cpus="0-71") | node(1, 96)
    for number in range(2, 9):
        files |= node(number, 0.0)
    return files


def dgx_spark() -> dict[str, str]:
    """GB10: one node, CPU and GPU in it. A model was read from disk: almost nothing is free, and most is available."""
    files = system("aarch64", kernel="6.14.0-1015-nvidia") | node_sets("0", memory="0", cpu="0") | process("0")
    files |= gpus("NVIDIA GB10", ("000f:01:00.0",)) | params("")
    files |= whole(119.7, free_gib=1.5, available_gib=110)
    files |= node(0, 119.7, free_gib=1.5, inactive_gib=104, active_gib=6, slab_gib=2, cpus="0-19")
    files["/sys/class/dmi/id/product_name"] = "NVIDIA_DGX_Spark\n"
    return files


def cxl(*, gpu: bool = False, mode: str | None = "", allowed: str = "0-2") -> dict[str, str]:
    """x86, two sockets, and 256 GiB of CXL memory as node 2; ``gpu``: eight PCIe GPUs beside it."""
    files = system("x86_64", kernel="6.8.0-45-generic") | node_sets("0-2", memory="0-2", cpu="0-1") | process(allowed)
    files |= whole(1280, free_gib=1280, available_gib=1280) | {"/proc/iomem": IOMEM}
    files |= node(0, 512, cpus="0-47,96-143") | node(1, 512, cpus="48-95,144-191") | node(2, 256)
    if gpu:
        files |= gpus("NVIDIA H100 80GB HBM3", [f"0000:{bus}:00.0" for bus in ("1b", "43", "52", "61")]) | params(mode)
    return files


def two_sockets(*, allowed: str = "0-1", policy: str = "default") -> dict[str, str]:
    """x86, two sockets of 128 GiB; the second is nearly empty, the first nearly full."""
    files = system("x86_64") | node_sets("0-1", memory="0-1", cpu="0-1") | process(allowed, policy=policy)
    files |= whole(256, free_gib=124, available_gib=124)
    return files | node(0, 128, free_gib=4, cpus="0-31") | node(1, 128, free_gib=120, cpus="32-63")
