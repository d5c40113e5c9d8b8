"""How hard the kernel works for memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from builddoctor.core.machine import MemoryPressure
from builddoctor.system.pressure import PressureSensor
from unit.trees import MIB, TextRoot, level_v1, level_v2, meminfo, plant, v1, v2

PSI = "some avg10=1.53 avg60=0.20 avg300=0.00 total=4500000\nfull avg10=99.00 avg60=99.00 avg300=99.00 total=1250000\n"


def read(files: dict[str, str], *, page_bytes: int = 4096):
    return PressureSensor(TextRoot(files), page_bytes=page_bytes).read()


def test_totals_are_read_and_averages_are_not() -> None:
    """The averages are two seconds old; totals are as of this read."""
    reading = read({"/proc/pressure/memory": PSI})
    assert (reading.some_s, reading.full_s) == (4.5, 1.25)


def test_the_last_ten_seconds_are_for_people() -> None:
    """By the file that says it; None where nothing does."""
    recent = PressureSensor(TextRoot({"/proc/pressure/memory": PSI}), page_bytes=4096).recent()
    assert recent == MemoryPressure(source="/proc/pressure/memory", some_percent=1.53, full_percent=99.0)
    assert PressureSensor(TextRoot({}), page_bytes=4096).recent() is None


def test_inside_a_container_its_own_pressure_counts() -> None:
    """/proc/pressure there is the host's."""
    files = {**v2(), **level_v2("/sys/fs/cgroup"), "/proc/pressure/memory": PSI.replace("1250000", "9")}
    assert read({**files, "/sys/fs/cgroup/memory.pressure": PSI}).full_s == 1.25
    assert read(files).full_s == 9e-6


@pytest.mark.trap(29)
@pytest.mark.parametrize("text", ["", "some", "full total=", "full total=x\n", "\0\0", "full avg10=99.00"])
def test_pressure_that_is_missing_or_odd_is_none(text: str) -> None:
    """Never zero, and never an error."""
    reading = read({"/proc/pressure/memory": text})
    assert (reading.some_s, reading.full_s) == (None, None)
    assert read({}).full_s is None


@pytest.mark.trap(29)
def test_a_pressure_file_that_refuses_to_be_read_is_none(tmp_path: Path) -> None:
    """With PSI switched off the file is there and its read fails (EOPNOTSUPP; a folder fails like it)."""
    (tmp_path / "proc/pressure/memory").mkdir(parents=True)
    assert PressureSensor(plant(tmp_path, {}), page_bytes=4096).read().full_s is None


def test_processes_held_back_at_memory_high_are_counted_at_every_level() -> None:
    """v2 alone has it; an ancestor counts its whole subtree, and all of it only ever grows."""
    above = {"/sys/fs/cgroup/job/memory.events": "low 0\nhigh 7\nmax 2\noom 0\n"}
    files = {**v2("/job/step"), **level_v2("/sys/fs/cgroup/job"), **level_v2("/sys/fs/cgroup/job/step"), **above}
    assert read(files).high_events == 4 + 7
    assert read({**v1("/a"), **level_v1("/sys/fs/cgroup/memory/a")}).high_events is None
    assert read({**v2("/job"), "/sys/fs/cgroup/job/memory.current": "1\n"}).high_events is None


@pytest.mark.parametrize(
    ("stat", "pages"),
    [
        ("anon 5\nworkingset_refault_anon 256\nworkingset_refault_file 512\nworkingset_activate_file 9\n", 768),
        ("workingset_refault 512\nworkingset_activate 3\n", 512),
        ("workingset_refault_file 512\n", 512),
    ],
)
def test_refaults_have_other_names_before_linux_5_9(stat: str, pages: int) -> None:
    """Anonymous and file pages together, in pages of this kernel."""
    files = {**v2(), **level_v2("/sys/fs/cgroup", stat=stat)}
    assert read(files).refault_mib == pages * 4096 / MIB
    assert read(files, page_bytes=65536).refault_mib == pages * 65536 / MIB
    assert read({"/proc/vmstat": stat}).refault_mib == pages * 4096 / MIB


def test_refaults_of_the_whole_group_are_read_on_v1() -> None:
    """``total_`` has the groups below; a kernel without them there has them for the host."""
    directory = "/sys/fs/cgroup/memory/job"
    stat = "workingset_refault_file 1\ntotal_workingset_refault_anon 0\ntotal_workingset_refault_file 1024\n"
    files = {**v1("/job"), **level_v1(directory, stat=stat), "/proc/vmstat": "nr_free 1\nworkingset_refault_file 512\n"}
    assert read(files).refault_mib == 4
    assert read({**files, f"{directory}/memory.stat": "total_cache 1\n"}).refault_mib == 2
    assert read({}).refault_mib is None


def test_the_fullest_level_counts_with_its_page_cache() -> None:
    """Raw use: a group that hangs over mapped files holds nothing else."""
    files = {
        **v2("/a/b"),
        **meminfo(24, 20),
        **level_v2("/sys/fs/cgroup/a/b", limit=1000, usage=100),
        **level_v2("/sys/fs/cgroup/a", limit=1000, usage=990),
        **level_v2("/sys/fs/cgroup"),
    }
    assert read(files).fullness == pytest.approx(0.99)


def test_without_a_limit_the_hosts_available_memory_counts() -> None:
    """A v1 limit beyond the machine's memory is none."""
    files = {**v1(), **meminfo(24, 6), **level_v1("/sys/fs/cgroup/memory", usage=500)}
    assert read(files).fullness == pytest.approx(0.75)
    assert read(meminfo(24, 30)).fullness == 0
    assert read({}).fullness is None
