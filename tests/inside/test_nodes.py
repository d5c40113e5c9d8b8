"""NUMA nodes without CPUs, and pages of more than 4 KiB, on a real kernel: aarch64, 34 nodes of 512 MiB.

Covers: whose nodes those without CPUs are, without NVIDIA's driver and with its files faked; what a process gets on
some nodes; figures of builds and of the kernel's own words, in pages of 64 KiB and of 16.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from builddoctor.core.events import Header, MemorySampled, PhaseEnded, Status
from builddoctor.diagnose.kernel_log import KernelLog, OomReport
from builddoctor.diagnose.log_lines import clean
from support.memcg import MIB, memory_cgroup
from support.node_cases import ADDRESSES, CASES, DRIVER, WHOLE_MACHINE, laid_over, look
from support.program import Program
from support.reading import asking, reading_of
from support.stand_ins import HOG, stand_in
from support.truth import HOG as UNTIL_KILLED
from unit.numa_trees import IOMEM, gpus, params

BUS = "/sys/bus"
WITHOUT_CPUS = range(2, 34)
NODE_MIB = 512


def probe(program: Program, seeing: Sequence[str]) -> dict[str, Any]:
    """What ``machine probe --json`` says where ``seeing`` leads."""
    argv = [*seeing, *program.argv("machine", "probe", "--json")]
    done = subprocess.run(
        argv, cwd=program.folder, env=program.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def kinds(machine: Mapping[str, Any]) -> dict[int, str]:
    return {node["node"]: node["kind"] for node in machine["numa"]["nodes"]}


def cpus_own(machine: Mapping[str, Any]) -> float:
    return float(sum(node["total_mib"] for node in machine["numa"]["nodes"] if node["cpus"]))


@pytest.mark.machines("grace")
@pytest.mark.trap(13)
def test_nodes_without_cpus_count_where_no_driver_says_that_they_are_gpus(program: Program) -> None:
    """All 32 are taken for CXL: the machine has 17 GiB, of which the kernel keeps a part."""
    machine = probe(program, ())
    assert kinds(machine) == {0: "dram", 1: "dram"} | dict.fromkeys(WITHOUT_CPUS, "cxl")
    assert machine["numa"]["coherent_mode"] == ""
    assert "numa" not in {level["kind"] for level in machine["levels"]}
    assert 0.97 * 34 * NODE_MIB < machine["limit_mib"] < 34 * NODE_MIB
    assert machine["headroom_mib"] > 0.85 * 34 * NODE_MIB


@pytest.mark.machines("grace")
@pytest.mark.trap(12)
@pytest.mark.trap(13)
@pytest.mark.parametrize("dax", [range(0), range(10, 18)], ids=["gpus", "gpus and cxl"])
def test_gpus_nodes_are_left_out_and_those_of_cxl_beside_them_are_not(program: Program, dax: range) -> None:
    """With the driver's files the nodes are GPUs'; what a dax device brought in is counted all the same."""
    files = gpus("NVIDIA GB200", ADDRESSES, nodes=dict(zip(ADDRESSES, (2, 3, 4, 5), strict=True))) | params("")
    files |= {f"{BUS}/dax/devices/dax{node}.0/target_node": f"{node}\n" for node in dax}
    with laid_over(files, DRIVER, *([BUS] if dax else [])) as seeing:
        machine = probe(program, seeing)
    expected = {0: "dram", 1: "dram"} | {node: "cxl" if node in dax else "hbm" for node in WITHOUT_CPUS}
    assert kinds(machine) == expected
    assert machine["numa"]["coherent_mode"] == "numa"
    counted = [node for node in machine["numa"]["nodes"] if node["kind"] != "hbm"]
    (level,) = (each for each in machine["levels"] if each["kind"] == "numa")
    assert machine["limited_by"] == level["source"]
    assert level["limit_mib"] == pytest.approx(sum(node["total_mib"] for node in counted))
    # Kernel, programs and tests lie in the first two nodes, and the low watermark is a sixteenth of each.
    assert 0.7 * level["limit_mib"] < level["headroom_mib"] < 0.95 * level["limit_mib"]
    assert f"{32 - len(dax)} HBM nodes" in level["note"]


@pytest.mark.machines("grace")
@pytest.mark.trap(12)
def test_a_driver_that_keeps_its_memory_leaves_the_nodes_to_the_host(program: Program) -> None:
    """CDMM: no node can be a GPU's."""
    with laid_over(gpus("NVIDIA GB200", ADDRESSES) | params("driver"), DRIVER) as seeing:
        machine = probe(program, seeing)
    assert set(kinds(machine).values()) == {"dram", "cxl"}
    assert machine["numa"]["coherent_mode"] == "cdmm"
    assert machine["limit_mib"] > 0.97 * 34 * NODE_MIB


@pytest.mark.machines("grace")
@pytest.mark.trap(12)
def test_the_map_of_memory_names_gpus_where_their_folder_is_hidden(program: Program) -> None:
    """``System RAM (NVIDIA)`` in /proc/iomem is enough in a container. The doctor says what it leaves out."""
    files = {"/proc/iomem": IOMEM + "00000000-00000000 : System RAM (NVIDIA)\n"}
    with laid_over(files, "/proc/iomem") as seeing:
        argv = [*seeing, *program.argv("doctor", "--json")]
        done = subprocess.run(argv, cwd=program.folder, env=program.env, capture_output=True, text=True, check=False)
        machine = probe(program, seeing)
    assert [node for node, kind in kinds(machine).items() if kind == "hbm"] == list(WITHOUT_CPUS)
    said = json.loads(done.stdout)
    assert said["limit_mib"] == pytest.approx(cpus_own(machine), abs=1)
    assert any("HBM: 32 nodes" in check["text"] for check in said["checks"])


@pytest.mark.machines("grace")
@pytest.mark.trap(12)
@pytest.mark.trap(14)
@pytest.mark.trap(17)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.nightly if name == WHOLE_MACHINE else ()) for name in CASES]
)
def test_what_is_said_to_be_free_on_some_nodes_can_be_had(name: str) -> None:
    """Never more than a process gets until the kernel kills it, and at most a tenth or 64 MiB less.

    But for what lies on the CPUs' own lists: that can be read only together with all of /proc/zoneinfo.
    """
    row = look(name)
    assert not row.too_high, row
    assert not row.too_low, row


@pytest.mark.machines("grace", "arm16k")
@pytest.mark.trap(17)
@pytest.mark.parametrize("script", ["exec {hog}", "{hog} & wait"], ids=["itself", "by a child"])
def test_a_build_is_seen_in_this_kernels_pages(program: Program, script: str) -> None:
    """A compiler that holds 300 MiB: samples, the log's peak and the summary say 300 and what Python takes.

    The kernel of grace has no lists of children (CONFIG_PROC_CHILDREN), that of arm16k has.
    """
    assert os.sysconf("SC_PAGESIZE") > 4096, "without larger pages this shows nothing"
    done = program.folder / "done"
    stand_in(program, script.format(hog=f"{HOG} 300 0 {done}"))
    process = program.start(program.supervised("clang++", "-c", "one.cpp"))
    program.await_record(Status, process, ours_mib=lambda held_mib: held_mib >= 300)
    done.touch()
    output, _ = process.communicate()
    assert process.returncode == 0, output
    records = program.records()
    (end,) = [record for record in records if isinstance(record, PhaseEnded)]
    sampled = [mib for record in records if isinstance(record, MemorySampled) for _, mib in record.rss_mib]
    for figure in (end.peak_mib, max(sampled), program.summary()["peak_mib"]):
        assert 300 <= figure < 330
    (header,) = [record for record in records if isinstance(record, Header)]
    assert header.page_kib == os.sysconf("SC_PAGESIZE") // 1024


PLUGGED_MIB = 1024
BLOCKS = tuple(Path("/sys/devices/system/node/node2").glob("memory*/state"))
"""Of the third node of the machine ``plugged``: all of its memory."""


def plug(state: str) -> None:
    """Linux gives a node back only what it can move away: ``online_movable``, as NVIDIA's driver and CXL have it."""
    for block in BLOCKS:
        # What is offline cannot be put offline.
        if block.read_text().strip() != state:
            block.write_text(state)


def status(program: Program, process: subprocess.Popen[str], **wanted: object) -> Status:
    found = program.await_record(Status, process, **wanted)
    assert isinstance(found, Status)
    return found


@pytest.fixture
def waiting(program: Program) -> Iterator[list[str]]:
    """A build that runs until its file ``done`` is there; the third node is not online, before and after."""
    done = program.folder / "done"
    stand_in(program, f"exec {HOG} 100 0 {done}")
    assert BLOCKS
    yield program.supervised("clang++", "-c", "one.cpp", options=["--no-doctor"])
    plug("offline")


@pytest.mark.machines("plugged")
@pytest.mark.trap(13)
def test_memory_that_is_plugged_in_and_out_in_mid_run_is_followed(program: Program, waiting: list[str]) -> None:
    """A node of 1 GiB goes online under a build, and away again: limit and headroom are those of that moment."""
    process = program.start(waiting)
    before = status(program, process)
    plug("online_movable")
    with_it = status(program, process, limit_mib=lambda mib: mib > before.limit_mib + 0.9 * PLUGGED_MIB)
    assert with_it.headroom_mib > before.headroom_mib + 0.8 * PLUGGED_MIB
    plug("offline")
    status(program, process, at_s=lambda at_s: at_s > with_it.at_s, limit_mib=before.limit_mib)
    (program.folder / "done").touch()
    output, _ = process.communicate()
    assert process.returncode == 0, output


@pytest.mark.machines("plugged")
@pytest.mark.trap(12)
def test_a_gpus_memory_that_goes_online_in_mid_run_is_not_taken_for_ours(program: Program, waiting: list[str]) -> None:
    """The driver brings its node in while a build runs: never is that memory in the budget."""
    with laid_over(gpus("NVIDIA GB200", ADDRESSES[:1], nodes={ADDRESSES[0]: 2}) | params(""), DRIVER) as seeing:
        process = program.start([*seeing, *waiting])
        before = status(program, process)
        plug("online_movable")
        status(program, process, limited_by=lambda source: "node" in source)
        (program.folder / "done").touch()
        output, _ = process.communicate()
    assert process.returncode == 0, output
    looks = [record for record in program.records() if isinstance(record, Status) and record.at_s > before.at_s]
    assert max(each.headroom_mib for each in looks) < before.headroom_mib + 0.2 * PLUGGED_MIB


def last_report(pid: int) -> OomReport:
    """The kernel's own words of the last kill, which was of this process."""
    reader = KernelLog()
    log = subprocess.run(["dmesg"], capture_output=True, check=True).stdout
    for number, line in enumerate(log.splitlines(), 1):
        reader.feed(number, clean(line))
    assert reader.reports[-1].pid == pid, reader.reports
    return reader.reports[-1]


def taken_until_killed(argv: Sequence[str]) -> tuple[int, float]:
    """Start what takes memory until it is killed; its process number, and what it had."""
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        output, _ = process.communicate()
    assert process.returncode == -signal.SIGKILL
    return process.pid, float(output.split()[-1])


@pytest.mark.machines("grace", "arm16k")
@pytest.mark.trap(17)
def test_the_kernels_table_of_tasks_is_read_in_its_own_pages() -> None:
    """A real kill in a group of 256 MiB: the table is in pages, whose size its own lines tell."""
    with memory_cgroup(256 * MIB) as group:
        pid, held_mib = taken_until_killed(group.wrapped([sys.executable, "-c", UNTIL_KILLED, "1024"]))
    report = last_report(pid)
    assert (report.scope, report.limit_mib) == ("group", 256)
    assert report.page_kib == os.sysconf("SC_PAGESIZE") // 1024
    assert report.victim_mib is not None
    assert held_mib <= report.victim_mib < held_mib + 30
    assert report.mib(report.tasks[0].pages) == pytest.approx(report.victim_mib, abs=1)


@pytest.mark.machines("grace")
@pytest.mark.trap(14)
def test_a_kill_on_some_nodes_is_told_as_that() -> None:
    """``numactl --membind=0``: the kernel's own words, and the table of all that runs, in pages of 64 KiB."""
    words = ["numactl", "--membind=0", sys.executable, "-c", UNTIL_KILLED, "1024"]
    pid, held_mib = taken_until_killed(words)
    report = last_report(pid)
    assert (report.scope, report.constraint, report.page_kib) == ("nodes", "MEMORY_POLICY", 64)
    assert report.victim_mib is not None
    assert held_mib <= report.victim_mib < held_mib + 30


@pytest.mark.machines("grace", "arm16k")
@pytest.mark.trap(17)
def test_the_machine_is_told_with_its_page_size(program: Program) -> None:
    """``machine probe``: architecture, page size, cores of both nodes."""
    machine = probe(program, ())
    assert machine["platform"]["architecture"] == "aarch64"
    assert machine["platform"]["page_kib"] == os.sysconf("SC_PAGESIZE") // 1024
    assert machine["cores"] == 2
    assert machine["unread"] == []
    assert 0 < machine["budget_mib"] < machine["headroom_mib"] < machine["limit_mib"]


@pytest.mark.machines("grace", "arm16k")
@pytest.mark.trap(6)
@pytest.mark.parametrize("limit", ["max", str(2**63 - 1), str(2**62)])
def test_no_limit_is_none_in_pages_of_any_size(limit: str) -> None:
    """The kernel rounds to pages: whatever it makes of these, the machine's own memory is what there is."""
    with memory_cgroup(1024 * MIB) as group:
        assert reading_of(group.run(asking()).stdout).tightest.kind == "cgroup-v2"
        group.limit_file.write_text(limit)
        assert reading_of(group.run(asking()).stdout).tightest.kind == "host"


SAYS_AND_DIES = """
import os, resource, sys
from builddoctor.system.machine_probe import read_neighbours
from builddoctor.system.root import SystemRoot
resource.setrlimit(resource.RLIMIT_CORE, (int(sys.argv[1]),) * 2)
dumps = read_neighbours(SystemRoot(), os.getcwd()).dumps
print(dumps.pattern, dumps.written, flush=True)
os.abort()
"""


@pytest.mark.machines("arm16k")
@pytest.mark.parametrize("bytes_less", [1, 0])
def test_a_limit_below_a_page_of_this_kernel_is_no_core_dump(tmp_path: Path, bytes_less: int) -> None:
    """One byte less than a page: the kernel writes no file, and the doctor knows. A page: it does.

    The kernel of grace has no core dumps at all.
    """
    limit_bytes = os.sysconf("SC_PAGESIZE") - bytes_less
    argv = [sys.executable, "-c", SAYS_AND_DIES, str(limit_bytes)]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGABRT, done.stderr
    written = (tmp_path / "core").exists()
    assert written is (bytes_less == 0)
    assert done.stdout == f"core {written}\n"
