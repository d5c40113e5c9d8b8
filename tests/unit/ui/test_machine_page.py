"""Machines and toolkits as pages."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from builddoctor.core.limits import LevelKind, MemoryLevel
from builddoctor.core.machine import HostMemory, Machine, Numa, NumaNode, Place, Platform, ProcessCap
from builddoctor.machines.named import FigureSource, MachineProfile, find_machine, nominal, profiles
from builddoctor.toolkits.install import InstallPlan, PlannedPackage
from builddoctor.toolkits.listing import FoundToolkit, ToolkitKind
from builddoctor.ui.machine_page import machine_page, plan_rows, profile_page, profile_rows, toolkit_rows
from support.pages import plain

GIB = 1024.0


def found(**changes: object) -> Machine:
    """A machine as the sensors give it."""
    level = MemoryLevel(source="/sys/fs/cgroup/memory.max", kind=LevelKind.CGROUP_V2, limit_mib=8192, headroom_mib=6000)
    known: dict = {
        "cores": 4,
        "cores_source": "affinity",
        "limit_mib": 8192.0,
        "headroom_mib": 6000.0,
        "budget_mib": 5180.8,
        "reserve_mib": 819.2,
        "limited_by": level.source,
        "levels": (level,),
        "host": HostMemory(total_mib=16000, free_mib=9000, available_mib=12000),
        "platform": Platform(kernel="6.1.0", architecture="x86_64"),
    }
    return Machine(**{**known, **changes})


def test_the_list_has_a_line_for_each(tmp_path: Path) -> None:
    """Name, cores, memory, what is left, architecture and GPUs, in columns."""
    rows = plain(profile_rows([nominal(each) for each in profiles()]))
    assert len(rows) == len(profiles()) + 1
    row = next(each for each in rows if each.startswith("gb200-node "))
    assert row.split()[:6] == ["gb200-node", "144", "960.0", "GiB", "840.0", "GiB"]
    assert row.endswith("4 x NVIDIA GB200 186 GB")
    assert rows[0].index("arch") == row.index("aarch64")


@pytest.mark.parametrize("profile", profiles(), ids=[profile.name for profile in profiles()])
def test_a_page_shows_every_source(profile: MachineProfile) -> None:
    """With an address that can be pasted as it stands."""
    page = plain(profile_page(nominal(profile)))
    assert page[0] == f"{profile.name}: {profile.title}"
    for source in profile.sources:
        assert f"    {source.where}" in page
    assert any("nominal" in line for line in page)


def test_the_page_of_a_found_machine_says_what_decides() -> None:
    """Limit, who sets it, what is free, NUMA nodes not for us, folders in memory, and what was not readable."""
    nodes = (
        NumaNode(node=0, kind="dram", cpus=72, total_mib=480 * GIB, available_mib=400 * GIB, allowed=True),
        NumaNode(node=1, kind="hbm", cpus=0, total_mib=96 * GIB, available_mib=95 * GIB, allowed=False),
    )
    machine = found(
        numa=Numa(nodes=nodes, coherent_mode="numa", policy="bind:0"),
        platform=Platform(
            kernel="6.8", architecture="aarch64", page_kib=64, container="docker", kubernetes=True, ci="ci"
        ),
        process_caps=(ProcessCap(name="RLIMIT_AS", limit_mib=4096),),
        places=(
            Place(role="TMPDIR", path="/tmp", filesystem="tmpfs", in_memory=True, free_mib=2048),
            Place(role="build folder", path="/b", filesystem="", writable=False),
        ),
        unread=("/sys/fs/cgroup/x/memory.max",),
    )
    page = "\n".join(plain(machine_page(machine)))
    for words in (
        "8.0 GiB; 5.9 GiB of it free now",
        "/sys/fs/cgroup/memory.max",
        "64 KiB",
        "docker, Kubernetes",
        "mode numa",
        "bind:0",
        "0: dram, 72 CPUs, 400.0 GiB of 480.0 GiB free",
        "1: hbm, no CPUs, 95.0 GiB of 96.0 GiB free, not for this process",
        "RLIMIT_AS 4.0 GiB",
        "/tmp: 2.0 GiB free, tmpfs, in memory",
        "/b: free space unknown, unknown file system, not writable",
        "could not read",
    ):
        assert words in page


def test_text_of_a_file_reaches_the_terminal_as_text() -> None:
    """Control characters and newlines in any of its words become blanks, one line a fact."""
    evil = "\x1b]0;owned\x07\n\x9b31m"
    source = FigureSource(figures=("cores",), says=evil, where=evil)
    profile = msgspec.structs.replace(
        find_machine("gh200"), name=evil, title=evil, gpus=evil, notes=(evil,), sources=(source,)
    )
    level = MemoryLevel(source=evil, kind=LevelKind.HOST, limit_mib=1, headroom_mib=1, note=evil)
    machine = found(
        name=evil,
        levels=(level,),
        limited_by=evil,
        cores_source=evil,
        unread=(evil,),
        platform=Platform(kernel=evil, architecture=evil, gpus=(evil,), ci=evil, container=evil, unified_memory=evil),
        places=(Place(role=evil, path=evil, filesystem=evil),),
        numa=Numa(policy=evil),
    )
    for line in plain([*profile_page(nominal(profile)), *machine_page(machine), *profile_rows([nominal(profile)])]):
        assert line.isprintable()


def test_toolkits_are_shown_one_a_line_with_what_they_lack() -> None:
    """Another processor's, and one that cannot be used, are told apart."""
    rows = plain(
        toolkit_rows(
            [
                FoundToolkit(
                    path="/usr/local/cuda", version="13.0.88", kind=ToolkitKind.SYSTEM, arch="x86_64", lacks=("cudnn",)
                ),
                FoundToolkit(
                    path="/data/cuda-13.0.88-aarch64", version="13.0.88", kind=ToolkitKind.MANAGED, arch="aarch64"
                ),
                FoundToolkit(path="/opt/x", kind=ToolkitKind.NAMED, arch="x86_64", problem="it does not run"),
            ],
            here="x86_64",
        )
    )
    assert rows[1] == "13.0.88  system   /usr/local/cuda"
    assert rows[2].strip() == "without cudnn"
    assert rows[3].endswith("/data/cuda-13.0.88-aarch64 (aarch64)")
    assert rows[5].strip() == "cannot be used: it does not run"
    assert plain(toolkit_rows([], here="x86_64")) == ["no CUDA toolkit on this machine"]


def test_a_plan_tells_packages_sizes_and_place() -> None:
    """What is in the cache is told; free space only where it is known."""
    package = PlannedPackage(requirement="nvidia-nvvm==13.0.88.*", cached=True)
    plan = InstallPlan(
        release="13.0.3.0", arch="x86_64", components=(), packages=(package,), folder="/data/x", fetch_mib=100.0,
        disk_mib=270.0, free_mib=None,
    )  # fmt: skip
    rows = plain(plan_rows(plan))
    assert rows[0] == "CUDA 13.0.3.0 for x86_64 in /data/x"
    assert rows[1].endswith("in the cache")
    assert rows[-1] == "about 100 MiB to fetch, 270 MiB on disk"
