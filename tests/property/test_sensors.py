"""Sensors on any content of the files they read."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builddoctor.system.cgroup import find_place
from builddoctor.system.memory_sensor import MemorySensor
from builddoctor.system.oom_evidence import KillCounter
from builddoctor.system.platform import usable_cores
from builddoctor.system.process import Processes, RssProbe
from builddoctor.toolchain.nvcc import parse_settings, parse_version
from unit.trees import CGROUP1, CGROUP2, V1, V2, TextRoot, level_v1, level_v2, meminfo, plant, v1, v2

FIGURES = st.one_of(
    st.integers(0, 2**65).map(str),
    st.integers(0, 40).map(lambda bits: str(2**bits)),
    st.integers(20, 5000).map(lambda digits: "9" * digits),
    st.sampled_from(["max", "", "0", "-1", "²", "1e9", "0x10", " 7 ", "9223372036854771712"]),
    st.text(max_size=6),
)
KEYS = st.sampled_from(
    [
        *("inactive_file", "active_file", "file_dirty", "slab_reclaimable", "hierarchical_memory_limit", "oom_kill"),
        *("total_inactive_file", "total_dirty", "MemTotal:", "MemAvailable:", "MemFree:", ""),
    ]
)
KEYED = st.lists(st.tuples(KEYS, FIGURES), max_size=6).map(
    lambda lines: "".join(f"{key} {figure}\n" for key, figure in lines)
)
NOISE = st.one_of(st.text(max_size=80), KEYED)
MOUNT_TEXTS = st.sampled_from(
    [CGROUP1.format(root="/", point=V1), CGROUP2.format(root="/", point=V2), CGROUP1.format(root="/..", point=V1)]
)
VERSIONS = st.sampled_from([(v1("/a"), level_v1), (v2("/a"), level_v2)])


@given(version=VERSIONS, limit=FIGURES, usage=FIGURES, stat=KEYED, host=KEYED)
def test_headroom_is_never_above_the_limit(version: tuple, limit: str, usage: str, stat: str, host: str) -> None:
    """For any figures, no level has more headroom than its limit, and nothing is raised."""
    tree, level = version
    where = V1 if level is level_v1 else V2
    files = meminfo() | tree | level(f"{where}/a", limit=limit, usage=usage, stat=stat)
    for text in (files["/proc/meminfo"], host):
        files["/proc/meminfo"] = text
        reading = MemorySensor(TextRoot(files=files), user_limit_mib=1000.0).read(10.0)
        assert all(each.headroom_mib <= each.limit_mib for each in reading.levels)
        assert reading.tightest in reading.levels


@given(mounts=st.lists(MOUNT_TEXTS | st.text(max_size=60), max_size=4), membership=st.text(max_size=60), noise=NOISE)
def test_any_mounts_and_memberships_are_taken(mounts: list[str], membership: str, noise: str) -> None:
    """Whatever mountinfo and cgroup say, a place is found or not; it lies in some directory."""
    for text in (membership, f"4:memory:/{membership}\n0::/{membership}\n"):
        files = {"/proc/self/mountinfo": "\n".join(mounts), "/proc/self/cgroup": text, "/proc/vmstat": noise}
        for point in (V1, V2):
            files |= {f"{point}/memory.events": noise, f"{point}/memory.oom_control": noise}
        place = find_place(TextRoot(files=files))
        assert place is None or place.directories
        counter = KillCounter(TextRoot(files=files))
        for kills in (counter.own(), counter.host()):
            assert kills is None or kills >= 0


@given(quota=FIGURES, period=FIGURES)
def test_there_is_always_a_core(quota: str, period: str) -> None:
    """No quota, however odd, leaves none."""
    assert usable_cores(TextRoot(files={"/sys/fs/cgroup/cpu.max": f"{quota} {period}"})) >= 1
    folder = "/sys/fs/cgroup/cpu"
    assert (
        usable_cores(TextRoot(files={f"{folder}/cpu.cfs_quota_us": quota, f"{folder}/cpu.cfs_period_us": period})) >= 1
    )


@pytest.fixture(scope="module")
def proc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("proc")


@given(content=st.binary(max_size=120) | NOISE.map(lambda text: text.encode(errors="replace")))
def test_any_statm_is_some_memory(proc: Path, content: bytes) -> None:
    """Memory is a number that is not negative, whatever the file says."""
    probe = RssProbe(plant(proc, {"/proc/12/statm": content}), 12, page_bytes=65536)
    assert probe.anon_mib() >= 0
    probe.close()


@given(text=st.text(max_size=80), fields=st.lists(FIGURES, max_size=24), name=st.text(max_size=20))
def test_any_process_is_described_or_not(text: str, fields: list[str], name: str) -> None:
    """Family and identity of a process are numbers or unknown, never an error."""
    for stat in (text, f"12 ({name}) {' '.join(fields)}"):
        files = {"/proc/12/stat": stat, "/proc/12/cmdline": text, "/proc/12/task/12/children": " ".join(fields)}
        processes = Processes(TextRoot(files=files))
        for number in (processes.parent(12), processes.start_ticks(12)):
            assert number is None or isinstance(number, int)
        assert all(pid >= 0 for pid in processes.descendants(12))
        assert isinstance(processes.argv(12), list)


@given(text=st.text(max_size=60), here=st.text(max_size=20), flags=st.text(max_size=30))
def test_any_output_of_nvcc_is_read(text: str, here: str, flags: str) -> None:
    """Settings are found where they are; nothing else is an error."""
    assert parse_settings(text) is None or "_HERE_" in text
    settings = parse_settings(f"{text}\n#$ _HERE_=/x{here}\n#$ TOP=/y\n#$ INCLUDES={flags}\n")
    assert settings is not None
    assert settings.top == "/y"
    assert isinstance(parse_version(text), str)
