"""Host limits under any content of their files: no sensor crashes, and no budget is above a limit that holds.

More than 20,000 cases in the nightly (``CASES``). Two kinds: trees in which the true limits are known, because the test
made them, under every way of mounting; and whole systems with files torn, mixed up, made unreadable or filled with
noise.
"""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builddoctor.core.limits import MemoryReading
from builddoctor.scheduler.budget import allowance
from builddoctor.system.cgroup import controller_directories
from builddoctor.system.machine_probe import read_neighbours
from builddoctor.system.memory_sensor import UNKNOWN_HOST_MIB, HostSensor, MemorySensor, allotment
from builddoctor.system.numa import numa_level, read_numa
from builddoctor.system.oom_evidence import KillCounter
from builddoctor.system.platform import read_cores, read_platform
from builddoctor.system.process import process_caps
from builddoctor.system.root import SystemRoot
from support.examples import examples
from unit.trees import MIB, OTHER, V1, V2, TextRoot, level_v1, level_v2

CASES = {"known limits": 8000, "torn systems": 8000, "host": 2500, "scheduler": 2000}
TOTAL_MIB = 64 * 1024

sizes_mib = st.integers(0, 100 * 1024)
names = st.text(
    st.characters(codec="utf-8", exclude_characters="/\n\0", exclude_categories=["Cs"]), min_size=1, max_size=8
).filter(lambda name: name.strip(".") != "")


class Level(msgspec.Struct, frozen=True):
    """One cgroup as the test made it: these are its true figures, in MiB."""

    limit: int | None
    used: int
    cache: int
    readable: bool

    @property
    def room(self) -> float:
        """What can be taken here: cache that is inactive counts as room. From MemTotal on it is no limit."""
        binds = self.limit is not None and self.limit < TOTAL_MIB
        return self.limit - (self.used - self.cache) if binds and self.limit is not None else float("inf")


levels = st.builds(
    lambda limit, used, share, readable: Level(limit, used, int(used * share), readable),
    st.none() | sizes_mib,
    sizes_mib,
    st.floats(0, 1),
    st.booleans() | st.just(True),
)


def escaped(path: str) -> str:
    """As mountinfo writes it."""
    for char, code in (("\\", "\\134"), (" ", "\\040"), ("\t", "\\011"), ("\n", "\\012")):
        path = path.replace(char, code)
    return path


def tree(version: int, chain: list[tuple[str, Level]], mounted_at: int) -> dict[str, str | None]:
    """Kernel files of a chain of cgroups of which the mount shows those from ``mounted_at`` on."""
    point = V1 if version == 1 else V2
    whole = "/" + "/".join(name for name, _ in chain)
    root = "/" + "/".join(name for name, _ in chain[:mounted_at])
    kind = "cgroup cgroup rw,memory" if version == 1 else "cgroup2 cgroup2 rw"
    files: dict[str, str | None] = {
        "/proc/self/mountinfo": OTHER + f"40 31 0:35 {escaped(root)} {point} rw - {kind}\n",
        "/proc/self/cgroup": f"9:memory:{whole}\n" if version == 1 else f"0::{whole}\n",
        "/proc/meminfo": f"MemTotal: {TOTAL_MIB * 1024} kB\nMemFree: 1 kB\nMemAvailable: {TOTAL_MIB * 1024} kB\n",
    }
    below = ""
    for depth, (name, level) in enumerate(chain):
        if depth >= mounted_at:
            below += f"/{name}"
        elif depth < mounted_at - 1:
            continue
        directory = f"{point}{below}"
        limit = "max" if level.limit is None else level.limit * MIB
        if version == 1:
            shown = 9223372036854771712 if level.limit is None else limit
            stat = f"total_inactive_file {level.cache * MIB}\ntotal_active_file 0\n"
            files |= level_v1(directory, limit=shown, usage=level.used * MIB, stat=stat)
            limit_file = f"{directory}/memory.limit_in_bytes"
        else:
            files |= level_v2(
                directory, limit=limit, usage=level.used * MIB, stat=f"inactive_file {level.cache * MIB}\n"
            )
            limit_file = f"{directory}/memory.max"
        if not level.readable:
            files[limit_file] = None
    return files


def budget_of(reading: MemoryReading) -> float:
    """What the scheduler would get."""
    return allowance(reading, 0.0).budget_mib


@examples(CASES["known limits"])
@given(
    version=st.sampled_from([1, 2]),
    chain=st.lists(st.tuples(names, levels), min_size=1, max_size=5),
    hidden=st.integers(0, 3),
)
def test_no_budget_is_above_a_limit_that_holds(version: int, chain: list[tuple[str, Level]], hidden: int) -> None:
    """Every readable level from the mount down binds with its own use; an unreadable one is named."""
    mounted_at = min(hidden, len(chain))
    reading = MemorySensor(TextRoot(tree(version, chain, mounted_at))).read(0.0)
    visible = [level for depth, (_, level) in enumerate(chain) if depth >= max(0, mounted_at - 1)]
    least = min((level.room for level in visible if level.readable), default=float("inf"))
    assert budget_of(reading) <= max(0.0, min(least, TOTAL_MIB))
    assert reading.limit_mib <= min(
        (lv.limit for lv in visible if lv.readable and lv.limit is not None), default=TOTAL_MIB
    )
    assert len(reading.unread) == sum(not level.readable for level in visible)


SYSTEMS: list[dict[str, str]] = []
for _version in (1, 2):
    _files = tree(_version, [("a", Level(9000, 4000, 1000, True)), ("b:c", Level(None, 3000, 0, True))], 0)
    SYSTEMS.append({name: text or "" for name, text in _files.items()})
for _system in SYSTEMS:
    _system |= {
        "/proc/self/stat": "4176 (python3) S 1 1 1\n",
        "/proc/self/limits": "Max address space 1073741824 unlimited bytes\nMax data size unlimited unlimited bytes\n",
        "/proc/self/status": "Name:\tpython3\nMems_allowed_list:\t0-1\n",
        "/proc/self/numa_maps": "00400000 bind:0 file=/usr/bin/python3\n",
        "/proc/vmstat": "oom_kill 3\n",
        "/proc/sys/vm/overcommit_memory": "2\n",
        "/proc/sys/kernel/osrelease": "6.8.0-64k\n",
        "/proc/sys/kernel/core_pattern": "|/usr/lib/systemd/systemd-coredump %P\n",
        "/proc/spl/kstat/zfs/arcstats": "size 4 1000\nc_min 4 10\n",
        "/proc/driver/nvidia/params": 'CoherentGPUMemoryMode: "driver"\n',
        "/proc/driver/nvidia/gpus/0009:01:00.0/information": "Model: NVIDIA GB200\n",
        "/proc/12/comm": "earlyoom\n",
        "/sys/block/zram0/mm_stat": "1 2 3\n",
        "/sys/fs/cgroup/cpu.max": "150000 100000\n",
        "/sys/devices/system/node/online": "0-3\n",
        "/sys/devices/system/node/has_memory": "0-2\n",
        "/sys/devices/system/node/has_cpu": "0-1\n",
        **{
            f"/sys/devices/system/node/node{n}/meminfo": f"Node {n} MemTotal: 1000000 kB\nNode {n} MemFree: 900000 kB\n"
            for n in range(4)
        },
        **{f"/sys/devices/system/node/node{n}/cpulist": "0-3\n" if n < 2 else "\n" for n in range(4)},
    }

noise = st.one_of(
    st.binary(max_size=60).map(lambda raw: raw.decode(errors="replace")),
    st.integers(0, 2**70).map(str),
    st.sampled_from(
        ["", "max", "-1", "0", "18446744073709551615", "9" * 4000, "² 3", "\0", "0-999999999", "1,,2-", "a: b kB\n" * 9]
    ),
)
damage = st.sampled_from(["noise", "gone", "unreadable", "torn", "doubled", "swapped", "digits"])


@examples(CASES["torn systems"])
@given(
    base=st.sampled_from(SYSTEMS),
    wounds=st.lists(st.tuples(st.integers(0, 200), damage, noise, st.integers(0, 200)), min_size=1, max_size=6),
    env=st.dictionaries(
        st.sampled_from(
            ["SLURM_JOB_ID", "SLURM_MEM_PER_NODE", "KUBERNETES_SERVICE_HOST", "CI", "GITHUB_ACTIONS", "LSB_JOBID"]
        ),
        noise,
        max_size=3,
    ),
)
def test_no_torn_file_breaks_a_sensor(
    base: dict[str, str], wounds: list[tuple[int, str, str, int]], env: dict[str, str]
) -> None:
    """Each sensor answers, no level has more headroom than its limit, and the budget stays below every level."""
    files: dict[str, str | None] = dict(base)
    keys = sorted(base)
    for which, how, text, at in wounds:
        key, other = keys[which % len(keys)], keys[at % len(keys)]
        old = files.get(key) or ""
        if how == "gone":
            files.pop(key, None)
            continue
        files[key] = {
            "noise": text,
            "unreadable": None,
            "torn": old[: at % (len(old) + 1)],
            "doubled": old + old,
            "swapped": files.get(other),
            "digits": old.replace("1", "9" * (1 + at % 30)),
        }[how]
    system = TextRoot(files)
    reading = MemorySensor(system, env=env, user_limit_mib=5000.0).read(100.0)
    for level in reading.levels:
        assert level.limit_mib >= 0
        assert level.headroom_mib <= level.limit_mib
        assert budget_of(reading) <= max(0.0, level.headroom_mib)
        assert level.source
    assert read_cores(system, allowed=8).count in range(1, 9)
    assert controller_directories(system, "cpu")
    numa = read_numa(system)
    assert (node := numa_level(numa)) is None or node.limit_mib >= 0
    assert all(cap.limit_mib >= 0 for cap in process_caps(system))
    read_platform(system, env)
    read_neighbours(system, "/tmp")
    counter = KillCounter(system)
    assert all(kills is None or kills >= 0 for kills in (counter.own(), counter.host()))


FIELD = st.sampled_from(
    [
        "MemTotal",
        "MemFree",
        "MemAvailable",
        "Inactive(file)",
        "CommitLimit",
        "Committed_AS",
        "Hugetlb",
        "SwapFree",
        "Hugepagesize",
    ]
)


@examples(CASES["host"])
@given(fields=st.lists(st.tuples(FIELD, st.integers(0, 2**64) | noise), max_size=12), mode=noise, arc=noise)
def test_the_host_never_has_more_than_memtotal(fields: list[tuple[str, object]], mode: str, arc: str) -> None:
    """Whatever MemAvailable, ZFS and huge pages say."""
    text = "".join(f"{name}: {value} kB\n" for name, value in fields)
    files = {
        "/proc/meminfo": text,
        "/proc/sys/vm/overcommit_memory": mode,
        "/proc/spl/kstat/zfs/arcstats": f"size 4 {arc}\n",
    }
    sensor = HostSensor(TextRoot(files))
    total_mib = sensor.total_mib() or UNKNOWN_HOST_MIB
    for level in sensor.levels(kubernetes=True):
        if level.kind != "overcommit":
            assert level.limit_mib <= total_mib
        assert level.headroom_mib <= level.limit_mib
    assert sensor.facts().zfs_arc_mib >= 0


SLURM = ["SLURM_JOB_ID", "SLURM_MEM_PER_NODE", "SLURM_MEM_PER_CPU", "SLURM_MEM_PER_GPU", "SLURM_CPUS_ON_NODE"]
BATCH = [*SLURM, "SLURM_GPUS_ON_NODE", "SLURM_JOB_GPUS", "LSB_JOBID", "LSB_CG_MEMLIMIT", "PBS_JOBID", "PBS_RESC_MEM"]


@examples(CASES["scheduler"])
@given(env=st.dictionaries(st.sampled_from(BATCH), noise | st.integers(0, 10**7).map(str)))
def test_any_scheduler_is_a_cap_or_none(env: dict[str, str]) -> None:
    """Never an error, never a cap that is not positive; ``--mem`` for the node is taken as it is."""
    found = allotment(env)
    assert found is None or (found.memory_mib > 0 and found.source)


def test_there_are_twenty_thousand_cases() -> None:
    """What the documentation says of this file."""
    assert sum(CASES.values()) >= 20_000


@pytest.mark.parametrize("missing", ["/", "/nowhere"])
def test_a_real_root_without_files_is_no_error(missing: str, tmp_path: object) -> None:
    """A folder with nothing in it, and one that is not there."""
    reading = MemorySensor(SystemRoot(tmp_path / missing.strip("/"))).read(0.0)  # type: ignore[operator]
    assert reading.tightest.confidence == "low"
