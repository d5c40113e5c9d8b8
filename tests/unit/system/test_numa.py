"""NUMA nodes: whose memory they are, and who may use it."""

from __future__ import annotations

from pathlib import Path

import pytest

from builddoctor.system.numa import NumaSensor, numa_level, read_numa
from builddoctor.system.root import labelled, parse_list
from unit.numa_trees import (
    GB200_HBM_NODES,
    GPUS,
    HBM_GIB,
    IOMEM,
    LPDDR_GIB,
    NODE,
    cxl,
    dgx_spark,
    gb200_tray,
    gh200,
    gpus,
    node,
    node_sets,
    params,
    process,
    system,
    two_sockets,
)
from unit.trees import TextRoot, plant

GIB = 1024.0


def kinds(files: dict[str, str]) -> dict[int, str]:
    return {each.node: each.kind for each in read_numa(TextRoot(files)).nodes}


@pytest.mark.trap(12)
@pytest.mark.parametrize("mode", ["", "numa", None])
def test_gpu_memory_of_a_gb200_tray_is_not_counted(tmp_path: Path, mode: str | None) -> None:
    """Of 34 nodes six have memory; the level is the two Grace's LPDDR, and says what it leaves out."""
    root = plant(tmp_path, gb200_tray(mode=mode))
    numa = read_numa(root)
    assert [each.node for each in numa.nodes] == [0, 1, *GB200_HBM_NODES]
    assert [each.kind for each in numa.nodes] == ["dram", "dram", "hbm", "hbm", "hbm", "hbm"]
    assert [each.cpus for each in numa.nodes[:3]] == [72, 72, 0]
    assert numa.coherent_mode == "numa"
    level = numa_level(numa)
    assert level is not None
    assert level.limit_mib == level.headroom_mib == 2 * LPDDR_GIB * GIB
    assert level.source == f"{NODE}/node{{0,1}}/meminfo"
    assert level.note == "4 HBM nodes, 738.0 GiB, not counted"
    assert (level.kind, level.confidence) == ("numa", "medium")


@pytest.mark.trap(12)
def test_a_gb200_tray_whose_driver_keeps_its_memory_is_its_lpddr(tmp_path: Path) -> None:
    """CDMM: the GPUs' nodes are empty, so there is nothing to leave out and no level."""
    root = plant(tmp_path, gb200_tray(mode="driver"))
    numa = read_numa(root)
    assert [(each.node, each.kind, each.total_mib) for each in numa.nodes] == [
        (0, "dram", LPDDR_GIB * GIB),
        (1, "dram", LPDDR_GIB * GIB),
    ]
    assert numa.coherent_mode == "cdmm"
    assert numa_level(numa) is None


def test_a_driver_that_keeps_gpu_memory_unasked_is_seen() -> None:
    """Newer drivers leave the mode empty and switch NUMA management off."""
    files = gb200_tray(mode="driver") | params("", user_numa=0)
    assert read_numa(TextRoot(files)).coherent_mode == "cdmm"


def test_memory_without_cpus_beside_a_driver_that_keeps_its_own_is_counted() -> None:
    """With CDMM no node can be a GPU's, whatever it looks like."""
    files = gb200_tray(mode="") | params("driver")
    assert set(kinds(files).values()) == {"dram", "cxl"}
    assert numa_level(read_numa(TextRoot(files))) is None


@pytest.mark.trap(12)
@pytest.mark.parametrize("named", [True, False])
def test_gpu_memory_of_a_gh200_is_not_counted(named: bool) -> None:
    """Whether the driver names its node or only the architecture tells."""
    numa = read_numa(TextRoot(gh200(named=named)))
    assert {each.node: each.kind for each in numa.nodes} == {0: "dram", 1: "hbm"}
    level = numa_level(numa)
    assert level is not None
    assert (level.limit_mib, level.note) == (480 * GIB, "1 HBM node, 96.0 GiB, not counted")
    assert level.source == f"{NODE}/node0/meminfo"


def test_one_gpu_given_to_a_container_does_not_hide_the_others_memory() -> None:
    """A container sees one GPU's folder of four; all four nodes are GPUs' all the same."""
    files = {name: text for name, text in gb200_tray().items() if not name.startswith(GPUS)}
    files |= gpus("NVIDIA GB200", ("0008:01:00.0",), nodes={"0008:01:00.0": 2})
    assert [number for number, kind in kinds(files).items() if kind == "hbm"] == list(GB200_HBM_NODES)


def test_gpu_memory_is_known_by_its_name_in_iomem() -> None:
    """Where NVIDIA's folder is hidden, as in some sandboxes, the kernel's map of memory still names it."""
    files = {name: text for name, text in gb200_tray().items() if not name.startswith("/proc/driver")}
    assert set(kinds(files).values()) == {"dram", "cxl"}
    files["/proc/iomem"] = IOMEM + "00000000-00000000 : System RAM (NVIDIA)\n"
    assert [number for number, kind in kinds(files).items() if kind == "hbm"] == list(GB200_HBM_NODES)


def test_what_the_driver_names_is_a_gpus_on_any_architecture() -> None:
    """Its own word comes before every guess, and only for the node it names; one with CPUs stays theirs (GB10)."""
    address = "0000:1b:00.0"
    files = cxl(gpu=True, mode="driver") | gpus("NVIDIA H100 80GB HBM3", (address,), nodes={address: 2})
    assert kinds(files) == {0: "dram", 1: "dram", 2: "hbm"}
    files |= gpus("NVIDIA H100 80GB HBM3", (address,), nodes={address: 0})
    assert kinds(files) == {0: "dram", 1: "dram", 2: "cxl"}


@pytest.mark.trap(13)
@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize("mode", ["", "driver", None])
def test_cxl_memory_is_kept(tmp_path: Path, gpu: bool, mode: str | None) -> None:
    """A node without CPUs on x86 is no GPU's, with PCIe GPUs in the machine or without."""
    numa = read_numa(plant(tmp_path, cxl(gpu=gpu, mode=mode)))
    assert [(each.node, each.kind, each.allowed) for each in numa.nodes] == [
        (0, "dram", True),
        (1, "dram", True),
        (2, "cxl", True),
    ]
    assert numa.coherent_mode == ""
    assert numa_level(numa) is None


@pytest.mark.trap(13)
def test_cxl_memory_counts_where_a_socket_may_not_be_used() -> None:
    """A cpuset of one socket and the CXL node has the memory of both."""
    level = numa_level(read_numa(TextRoot(cxl(gpu=True, allowed="1-2"))))
    assert level is not None
    assert (level.limit_mib, level.note) == ((512 + 256) * GIB, "2 of 3 nodes allowed")


@pytest.mark.trap(13)
def test_cxl_memory_beside_coherent_gpus_is_known_by_its_dax_device() -> None:
    """A machine may have both: what dax/kmem brought in is no GPU's."""
    files = gh200() | node_sets("0-8", memory="0-2", cpu="0") | node(2, 256)
    assert kinds(files)[2] == "hbm"
    files["/sys/bus/dax/devices/dax0.0/target_node"] = "2\n"
    assert kinds(files) == {0: "dram", 1: "hbm", 2: "cxl"}


@pytest.mark.parametrize(
    ("cpuinfo", "kind"),
    [
        ("processor\t: 0\nvendor_id\t: GenuineIntel\n", "cxl"),
        ("processor\t: 0\nBogoMIPS\t: 2000.00\nCPU implementer\t: 0x41\n", "hbm"),
        ("processor\t: 0\ncpu\t\t: POWER9, altivec supported\n", "hbm"),
        ("", "hbm"),
        (None, "hbm"),
    ],
)
def test_before_linux_6_1_cpuinfo_says_which_architecture(cpuinfo: str | None, kind: str) -> None:
    """And where nothing says it, a GPU's memory is suspected: counting too little only costs time."""
    files = cxl(gpu=True)
    del files["/proc/sys/kernel/arch"]
    if cpuinfo is not None:
        files["/proc/cpuinfo"] = cpuinfo
    assert kinds(files)[2] == kind


@pytest.mark.trap(14)
def test_a_cpuset_of_one_node_has_that_nodes_memory(tmp_path: Path) -> None:
    """The first node is nearly full: its 4 GiB count, and not the 124 that the machine has."""
    numa = read_numa(plant(tmp_path, two_sockets(allowed="0")))
    assert [each.allowed for each in numa.nodes] == [True, False]
    level = numa_level(numa)
    assert level is not None
    assert (level.limit_mib, level.headroom_mib, level.confidence) == (128 * GIB, 4 * GIB, "high")
    assert (level.source, level.note) == ("/proc/self/status Mems_allowed_list 0", "1 of 2 nodes allowed")


def test_all_nodes_of_a_plain_machine_are_no_level() -> None:
    """/proc/meminfo says it better."""
    assert numa_level(read_numa(TextRoot(two_sockets()))) is None


@pytest.mark.trap(14)
@pytest.mark.parametrize("policy", ["bind:0", "bind=static:0", "bind=static|balancing:0", "bind=relative:0"])
def test_a_bound_process_has_the_memory_of_its_nodes(policy: str) -> None:
    """numactl --membind: the cpuset allows both nodes, the policy one. Spelled as Linux 6.18 prints it."""
    numa = read_numa(TextRoot(two_sockets(policy=policy)))
    assert (numa.allowed, numa.policy) == ("0-1", policy)
    level = numa_level(numa)
    assert level is not None
    assert (level.source, level.headroom_mib) == (f"/proc/self/numa_maps {policy}", 4 * GIB)


@pytest.mark.parametrize(
    "policy", ["prefer:0", "prefer (many):0", "interleave:0-1", "weighted interleave:0-1", "local"]
)
def test_a_policy_that_falls_back_to_other_nodes_limits_nothing(policy: str) -> None:
    """Only ``bind`` is strict; two of the others have a blank in their name."""
    numa = read_numa(TextRoot(two_sockets(policy=policy)))
    assert numa.policy == policy
    assert numa_level(numa) is None


def test_a_policy_of_one_mapping_is_not_the_process_own() -> None:
    """Heap and stack tell: a library may bind its own buffers."""
    files = two_sockets()
    files["/proc/self/numa_maps"] = "7f00 bind:1 anon=4 N1=4 kernelpagesize_kB=4\n" + files["/proc/self/numa_maps"]
    assert read_numa(TextRoot(files)).policy == ""
    files["/proc/self/numa_maps"] = "7f00 bind:1 anon=4\n7f01 default\n"
    assert read_numa(TextRoot(files)).policy == ""
    files["/proc/self/numa_maps"] = "7f00 bind:1 anon=4\n7f01 bind:1 file=/usr/lib/heap\n"
    assert read_numa(TextRoot(files)).policy == "bind:1"


def test_a_build_kept_off_gpu_memory_by_its_cpuset_is_told_by_its_nodes() -> None:
    """Grace only, by Slurm or numactl: the same figure as without, and now the kernel's own rule."""
    level = numa_level(read_numa(TextRoot(gb200_tray(allowed="0-1"))))
    assert level is not None
    assert (level.limit_mib, level.confidence) == (2 * LPDDR_GIB * GIB, "high")


def test_a_process_bound_to_gpu_memory_alone_has_none() -> None:
    """A GPU's memory is never handed out, not even when nothing else is allowed."""
    level = numa_level(read_numa(TextRoot(gb200_tray(policy="bind:2"))))
    assert level is not None
    assert (level.limit_mib, level.headroom_mib) == (0, 0)
    assert level.note == "0 of 2 nodes allowed; 4 HBM nodes, 738.0 GiB, not counted"


@pytest.mark.trap(42)
def test_page_cache_of_a_spark_is_available_memory(tmp_path: Path) -> None:
    """1.5 GiB are free, 110 available: no level of its own, and the node's figure counts the page cache."""
    numa = read_numa(plant(tmp_path, dgx_spark()))
    assert numa_level(numa) is None
    (spark,) = numa.nodes
    assert spark.kind == "dram"
    assert spark.available_mib == pytest.approx((1.5 + 104 + 6 + 2) * GIB, abs=1)


def test_a_share_of_what_the_kernel_keeps_free_is_not_available() -> None:
    """Low watermark: the node's share of min_free_kbytes and a quarter more, or the scale factor's part of the node."""
    files = two_sockets(allowed="1") | {"/proc/sys/vm/min_free_kbytes": f"{2 * 1024 * 1024}\n"}
    level = numa_level(read_numa(TextRoot(files)))
    assert level is not None
    assert level.headroom_mib == pytest.approx(120 * GIB - 1.25 * GIB)
    files["/proc/sys/vm/watermark_scale_factor"] = "1000\n"
    level = numa_level(read_numa(TextRoot(files)))
    assert level is not None
    assert level.headroom_mib == pytest.approx(120 * GIB - 1 * GIB - 12.8 * GIB)


def test_gpu_memory_takes_no_share_of_what_the_kernel_keeps_free() -> None:
    """It is movable memory, for which the kernel sets nothing aside."""
    files = gb200_tray() | {"/proc/sys/vm/min_free_kbytes": f"{8 * 1024 * 1024}\n"}
    level = numa_level(read_numa(TextRoot(files)))
    assert level is not None
    assert level.headroom_mib == pytest.approx((2 * LPDDR_GIB - 1.25 * 8) * GIB)


ZONES = """Node 0, zone    DMA32
  per-node stats
      nr_inactive_anon 3
  pages free     700000
        boost    0
        min      8000
        low      {dma_low}
        high     12000
        spanned  1044480
        present  800000
        managed  {dma_managed}
        cma      0
        protection: (0, 6000, {kept})
      nr_free_pages 700000
  pagesets
    cpu: 0
              count: 3
              high:  14
Node 0, zone   Normal
  pages free     700000
        min      800
        low      1000
        high     1200
        managed  30000000
        protection: (0, 0, 0)
Node 0, zone  Movable
  pages free     0
        min      0
        low      0
        managed  0
        protection: (0, 0, 0)
Node 1, zone   Normal
  pages free     9
        low      3000
        managed  30000000
        protection: (0, 0, 0)
"""


def zones(*, dma_low: int = 10000, dma_managed: int = 790000, kept: int = 5000) -> dict[str, str]:
    return {"/proc/zoneinfo": ZONES.format(dma_low=dma_low, dma_managed=dma_managed, kept=kept)}


@pytest.mark.trap(17)
@pytest.mark.parametrize(
    ("allowed", "text", "pages"),
    [
        ("0", zones(), 10000 + 5000 + 1000),
        ("1", zones(), 3000),
        # A zone of 16 MiB whose reserve is larger than itself: all of it is the kernel's.
        ("0", zones(dma_managed=3840, kept=80000), 3840 + 1000),
    ],
)
@pytest.mark.parametrize("page_kib", [4, 64])
def test_the_kernels_own_watermarks_count_where_they_can_be_read(
    monkeypatch: pytest.MonkeyPatch, allowed: str, text: dict[str, str], pages: int, page_kib: int
) -> None:
    """Low watermarks and what zones keep, in pages of this kernel's size; shares are worked out only without them."""
    files = two_sockets(allowed=allowed) | node(0, 128, cpus="0-31") | node(1, 128, cpus="32-63") | text
    files["/proc/sys/vm/min_free_kbytes"] = f"{64 * 1024 * 1024}\n"
    root = TextRoot(files)
    monkeypatch.setattr(root, "page_bytes", lambda: page_kib * 1024)
    level = numa_level(read_numa(root))
    assert level is not None
    assert level.headroom_mib == pytest.approx(128 * GIB - pages * page_kib / 1024)


def test_gpu_memory_that_is_no_movable_memory_has_its_own_watermark() -> None:
    """Brought online as normal memory it has a share of min_free: the CPUs' nodes keep theirs, and no more."""
    files = gh200() | {"/proc/sys/vm/min_free_kbytes": f"{512 * 1024 * 1024}\n"}
    files["/proc/zoneinfo"] = "".join(
        f"Node {number}, zone   Normal\n  low {low}\n  managed 9999999\n  protection: (0, 0)\n"
        for number, low in ((0, 4000), (1, 800))
    )
    root = TextRoot(files)
    level = numa_level(read_numa(root))
    assert level is not None
    assert level.headroom_mib == pytest.approx(480 * GIB - 4000 * root.page_bytes() / 1024**2)


@pytest.mark.parametrize("text", ["", "Node\n", "Node 0, zone Normal\n low x\n protection: ()\n", "protection: (1)\n"])
def test_watermarks_that_say_nothing_are_worked_out(text: str) -> None:
    """An empty or strange zoneinfo is none."""
    files = two_sockets(allowed="1") | {"/proc/sys/vm/min_free_kbytes": f"{2 * 1024 * 1024}\n"}
    level = numa_level(read_numa(TextRoot(files | {"/proc/zoneinfo": text})))
    assert level is not None
    assert level.headroom_mib == pytest.approx(120 * GIB - 1.25 * GIB)


def test_more_available_than_a_node_has_counts_as_all() -> None:
    """Whatever the counters say."""
    files = two_sockets(allowed="0") | node(0, 8, free_gib=6, inactive_gib=60, cpus="0-31")
    level = numa_level(read_numa(TextRoot(files)))
    assert level is not None
    assert level.headroom_mib == level.limit_mib == 8 * GIB


def test_a_node_file_that_says_less_than_meminfo_limits_nothing() -> None:
    """Seen in a VM with hot-plugged memory: node 0 shows 3.8 GiB, /proc/meminfo 23.5; the one node is all there is."""
    files = system("x86_64") | node_sets("0", memory="0", cpu="0") | process("0") | node(0, 3.8, cpus="0-1")
    assert numa_level(read_numa(TextRoot(files))) is None


def test_a_kernel_without_numa_has_no_nodes() -> None:
    """Nothing is known, nothing is limited, nothing is missing."""
    sensor = NumaSensor(TextRoot())
    assert read_numa(TextRoot()).nodes == ()
    assert sensor.level() is None
    assert sensor.unread == ()


def test_without_sets_of_nodes_the_folders_are_looked_at() -> None:
    """Older kernels have no ``has_memory``, some sandboxes no sets at all."""
    files = {name: text for name, text in gb200_tray().items() if not name.startswith(f"{NODE}/has_")}
    expected = kinds(gb200_tray())
    assert kinds(files) == expected
    del files[f"{NODE}/online"]
    assert kinds(files) == expected


def test_a_machine_whose_nodes_all_seem_to_have_no_cpus_is_not_all_gpu_memory() -> None:
    """What says which CPUs a node has could not be read: the memory is taken to be ordinary."""
    files = {name: text for name, text in gb200_tray().items() if "cpu" not in name}
    assert set(kinds(files).values()) == {"dram"}


@pytest.mark.parametrize("allowed", ["", "none", "77", "-1", "0x1"])
def test_a_cpuset_that_cannot_be_read_allows_all_and_is_said_to_be_unread(allowed: str) -> None:
    """No process can run without memory, so a list that names no node is not one."""
    sensor = NumaSensor(TextRoot(two_sockets(allowed=allowed)))
    assert sensor.level() is None
    assert sensor.unread == ("/proc/self/status Mems_allowed_list",)


def test_what_cannot_be_read_is_named() -> None:
    """A node's size and the policy, where there is a choice of nodes."""
    files: dict[str, str | None] = dict(two_sockets())
    files |= {"/proc/self/numa_maps": None, f"{NODE}/node1/meminfo": None}
    assert NumaSensor(TextRoot(files)).unread == (f"{NODE}/node1/meminfo", "/proc/self/numa_maps")


def test_a_policy_outside_of_the_cpuset_is_no_policy() -> None:
    """The kernel drops it as well."""
    level = numa_level(read_numa(TextRoot(two_sockets(allowed="1", policy="bind=static:0"))))
    assert level is not None
    assert level.limit_mib == 128 * GIB
    assert level.headroom_mib == 120 * GIB


def test_the_level_follows_the_memory_and_the_topology_when_looked_at_again(tmp_path: Path) -> None:
    """Memory at every reading; a changed cpuset, or a node that went away, after another look."""
    sensor = NumaSensor(plant(tmp_path, two_sockets(allowed="0")))
    level = sensor.level()
    assert level is not None
    assert level.headroom_mib == 4 * GIB
    plant(tmp_path, node(0, 192, free_gib=94, cpus="0-31") | process("1"))
    level = sensor.level()
    assert level is not None
    assert (level.limit_mib, level.headroom_mib) == (192 * GIB, 94 * GIB)
    sensor.look_again()
    level = sensor.level()
    assert level is not None
    assert level.headroom_mib == 120 * GIB
    (tmp_path / f"{NODE}/node1/meminfo".lstrip("/")).unlink()
    level = sensor.level()
    assert level is not None
    assert (level.headroom_mib, level.confidence) == (120 * GIB, "low")


class CountingRoot(TextRoot):
    """Which files were read."""

    def __init__(self, files: dict[str, str]) -> None:
        super().__init__(files)
        self.read: list[str] = []

    def text(self, absolute: str) -> str | None:
        self.read.append(absolute)
        return super().text(absolute)


@pytest.mark.parametrize(
    ("files", "read"),
    [(gb200_tray(), [f"{NODE}/node0/meminfo", f"{NODE}/node1/meminfo"]), (two_sockets(), []), (dgx_spark(), [])],
)
def test_a_reading_opens_only_the_nodes_that_count(files: dict[str, str], read: list[str]) -> None:
    """Twenty times a second: two files on a tray with 34 nodes, none where there is nothing to limit."""
    root = CountingRoot(files)
    sensor = NumaSensor(root)
    root.read.clear()
    sensor.level()
    assert root.read == read


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"Node\n", b"Node 0 MemTotal: -5 kB\n" * 3, b"9" * 5000])
def test_garbage_in_every_file_is_no_error(tmp_path: Path, content: bytes) -> None:
    """Nodes that cannot be read are not there."""
    root = plant(tmp_path, dict.fromkeys(gb200_tray(), content))
    assert read_numa(root).nodes == ()
    assert NumaSensor(root).level() is None


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("", set()),
        ("0\n", {0}),
        ("0-3,8,10-11\n", {0, 1, 2, 3, 8, 10, 11}),
        ("3-1,5", {5}),
        ("0-99999999999999,2", {2}),
        ("a,-,1-,-2,4", {4}),
        ("²", set()),
    ],
)
def test_sets_of_numbers(text: str, numbers: set[int]) -> None:
    """Ranges and numbers; what is neither is passed over, and no range is big enough to fill memory."""
    assert parse_list(text) == numbers


def test_labelled_values() -> None:
    """The first line of that name; names are whole, values may hold colons."""
    text = 'GPU: a\nBus Location: \t 0000:01:00.0\nMode: ""\nMode: "x"\nno colon\n'
    assert labelled(text, "Bus Location") == "0000:01:00.0"
    assert labelled(text, "Mode") == '""'
    assert labelled(text, "Location") == labelled(text, "no colon") == labelled("", "Mode") == ""


def test_figures_match_the_tree() -> None:
    """738 GiB of HBM in the tray, as TransformerEngine#1996 has it."""
    assert 4 * HBM_GIB == 738
