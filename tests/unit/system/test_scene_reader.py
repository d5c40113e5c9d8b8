"""A snapshot around a failed phase, and the kernel's log."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from builddoctor.core.evidence import Evidence, ProcessLimits, Scene
from builddoctor.system.cgroup import CgroupPlace, find_place
from builddoctor.system.oom_evidence import MOST_KEPT, KernelLog, read_evidence
from builddoctor.system.root import SystemRoot
from builddoctor.system.scene_reader import SceneReader
from unit.trees import V1, V2, level_v1, level_v2, meminfo, plant, v1, v2

MIB = 1024**2
LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max cpu time              60                   60                   seconds
Max file size             102400               unlimited            bytes
Max data size             unlimited            unlimited            bytes
Max address space         204800000            204800000            bytes
Max processes             4000                 4000                 processes
Max open files            1024                 1048576              files
"""
OOM = (
    "6,10,500,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/pod,"
    "task_memcg=/pod/ours,task=cicc,pid=4711,uid=0\n"
)


def look(
    root: SystemRoot, *, env: dict[str, str] | None = None, before: Evidence | None = None, **more: object
) -> Scene:
    place = find_place(root)
    surveyor = SceneReader(root, env or {})
    scene = surveyor.look(place=place, before=before or Evidence(), **more)  # type: ignore[arg-type]
    surveyor.close()
    return scene


def test_nothing_to_be_read_is_nothing_known(tmp_path: Path) -> None:
    """An empty system: no figure is made up, and nothing raises."""
    scene = look(SystemRoot(tmp_path))
    assert scene.limits == ProcessLimits()
    assert (scene.groups, scene.pids_max, scene.available_mib, scene.host_kills) == ((), None, None, None)
    assert "/proc/self/limits" in scene.unread
    assert not scene.kernel_log_read
    assert [folder.role for folder in scene.folders] == ["TMPDIR"]


@pytest.mark.parametrize("garbage", [b"", b"\xff\xfe\x00", b"max\nmax\n", b"-1\n" * 5, b"9" * 400])
def test_garbage_is_nothing_known_either(tmp_path: Path, garbage: bytes) -> None:
    """Whatever the files hold."""
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat", "memory.oom_control", "memory.failcnt")
    files: dict[str, object] = {f"{V1}/a/{name}": garbage for name in names}
    files |= {f"/proc/{name}": garbage for name in ("meminfo", "vmstat", "self/limits", "7/limits", "7/environ")}
    scene = look(plant(tmp_path, {**v1("/a"), **files}), pid=7)
    assert scene.groups[0].used_mib is None
    assert scene.limits == ProcessLimits()


@pytest.mark.trap(21)
def test_v1_tells_which_level_was_full_and_where_the_kill_was_counted(tmp_path: Path) -> None:
    """The parent's failcnt rose, the leaf's oom_kill did; what each holds is told without page cache."""
    stat = f"total_inactive_file {50 * MIB}\ntotal_active_file 0\ntotal_shmem {30 * MIB}\n"
    files = {
        **v1("/pod/ours"),
        **level_v1(f"{V1}/pod/ours", usage=150 * MIB, stat=stat),
        **level_v1(f"{V1}/pod", limit=600 * MIB, usage=550 * MIB, stat=stat),
        "/proc/vmstat": "oom_kill 7\n",
    }
    root = plant(tmp_path, files)
    before = read_evidence(root, find_place(root))
    surveyor = SceneReader(root, {})
    plant(
        tmp_path,
        {
            f"{V1}/pod/memory.failcnt": "1190\n",
            f"{V1}/pod/ours/memory.oom_control": "oom_kill 3\n",
            "/proc/vmstat": "oom_kill 8\n",
        },
    )
    scene = surveyor.look(place=find_place(root), before=before)
    own, parent = scene.groups[0], scene.groups[1]
    assert (own.limit_mib, own.used_mib, own.shmem_mib, own.reached, own.kills) == (None, 100.0, 30.0, 0, 1)
    assert (parent.limit_mib, parent.used_mib, parent.reached, parent.kills) == (600.0, 500.0, 4, 0)
    assert scene.host_kills == 1


@pytest.mark.trap(26)
def test_v2_tells_by_the_local_counters(tmp_path: Path) -> None:
    """``oom`` of events.local, where there is one: ``max`` rises for page cache too."""
    local = "low 0\nhigh 0\nmax {max}\noom {oom}\noom_kill {kill}\n"
    files = {
        **v2("/pod/ours"),
        **level_v2(f"{V2}/pod/ours", usage=100 * MIB),
        **level_v2(f"{V2}/pod", limit=600 * MIB, usage=550 * MIB, stat=f"inactive_file {MIB}\nshmem {2 * MIB}\n"),
        f"{V2}/pod/ours/memory.events.local": local.format(max=1, oom=0, kill=0),
        f"{V2}/pod/memory.events.local": local.format(max=5, oom=1, kill=0),
    }
    root = plant(tmp_path, files)
    before = read_evidence(root, find_place(root))
    plant(
        tmp_path,
        {
            f"{V2}/pod/ours/memory.events.local": local.format(max=9, oom=0, kill=1),
            f"{V2}/pod/memory.events.local": local.format(max=7, oom=2, kill=0),
        },
    )
    scene = look(root, before=before)
    own, parent = scene.groups[0], scene.groups[1]
    assert (own.reached, own.kills) == (0, 1)
    assert (parent.limit_mib, parent.used_mib, parent.shmem_mib, parent.reached) == (600.0, 549.0, 2.0, 1)


def test_the_gates_limits_are_read_and_not_ours(tmp_path: Path) -> None:
    """``ulimit`` in the build's own shell: our limits say nothing of it."""
    root = plant(tmp_path, {"/proc/7/limits": LIMITS, "/proc/self/limits": LIMITS.replace("204800000", "unlimited")})
    limits = look(root, pid=7).limits
    assert (limits.address_space_mib, limits.data_mib, limits.file_size_mib) == (195.3, None, 0.1)
    assert (limits.processes, limits.files, limits.cpu_s) == (4000, 1024, 60)
    assert look(root).limits.address_space_mib is None


def test_a_gate_that_is_gone_leaves_what_we_know_of_ourselves(tmp_path: Path) -> None:
    """Its files cannot be read any more."""
    root = plant(tmp_path, {"/proc/self/limits": LIMITS})
    assert look(root, pid=7).limits.cpu_s == 60


def test_the_gates_own_folders_are_looked_at(tmp_path: Path) -> None:
    """TMPDIR as the build set it, the object's folder as seen from where the compiler runs; nothing else is taken."""
    (tmp_path / "scratch/t").mkdir(parents=True)
    (tmp_path / "src/out").mkdir(parents=True)
    root = plant(tmp_path, {"/proc/7/environ": b"SECRET=hunter2\0TMPDIR=/scratch/t\0"})
    (tmp_path / "proc/7/cwd").symlink_to("/src")
    scene = look(root, pid=7, env={"TMPDIR": "/elsewhere"}, folders=[("objects", "out"), ("trace", "/scratch/t")])
    # A folder that is two things is told once.
    assert [(folder.role, folder.path) for folder in scene.folders] == [
        ("TMPDIR", "/scratch/t"),
        ("objects", "/src/out"),
    ]
    assert all(folder.free_mib is not None and not folder.missing for folder in scene.folders)
    assert "hunter2" not in repr(scene)


def test_a_gate_with_mounts_of_its_own_is_asked_through_its_root(tmp_path: Path) -> None:
    """unshare, a container's step: /tmp there is not ours."""
    (tmp_path / "proc/7/root/tmp").mkdir(parents=True)
    mounts = "30 1 0:9 / / rw - ext4 /dev/a rw\n31 30 0:10 / /tmp rw - tmpfs tmpfs rw,size=1m\n"
    root = plant(tmp_path, {"/proc/7/mountinfo": mounts, "/proc/7/environ": b""})
    (tmp_path / "proc/self/ns").mkdir(parents=True)
    (tmp_path / "proc/7/ns").mkdir()
    (tmp_path / "proc/self/ns/mnt").symlink_to("mnt:[1]")
    (tmp_path / "proc/7/ns/mnt").symlink_to("mnt:[2]")
    (temporary,) = look(root, pid=7).folders
    assert (temporary.path, temporary.filesystem, temporary.in_memory, temporary.missing) == (
        "/tmp",
        "tmpfs",
        True,
        False,
    )
    assert temporary.total_mib is not None


def test_the_pids_cgroup_that_leaves_least_is_told(tmp_path: Path) -> None:
    """Limit and use of the same level."""
    files = {
        **v2("/pod/ours"),
        f"{V2}/pod/ours/pids.max": "max\n",
        f"{V2}/pod/ours/pids.current": "12\n",
        f"{V2}/pod/pids.max": "100\n",
        f"{V2}/pod/pids.current": "98\n",
    }
    scene = look(plant(tmp_path, files))
    assert (scene.pids_max, scene.pids_now) == (100, 98)


@pytest.mark.parametrize(("mode", "left"), [("0", None), ("2", 8192.0)])
def test_strict_overcommit_tells_what_may_still_be_promised(tmp_path: Path, mode: str, left: float | None) -> None:
    """CommitLimit means nothing in the other modes."""
    text = "MemAvailable: 1024 kB\nCommitLimit: 12582912 kB\nCommitted_AS: 4194304 kB\n"
    root = plant(tmp_path, {"/proc/meminfo": text, "/proc/sys/vm/overcommit_memory": f"{mode}\n"})
    scene = look(root)
    assert (scene.commit_left_mib, scene.available_mib) == (left, 1.0)


@pytest.mark.trap(14)
def test_nodes_that_are_left_out_are_told(tmp_path: Path) -> None:
    """The gate is bound to one of two nodes, we are not."""
    node = "Node {n} MemTotal: 8388608 kB\nNode {n} MemFree: {free} kB\n"
    files: dict[str, object] = {
        "/sys/devices/system/node/has_memory": "0-1\n",
        "/sys/devices/system/node/node0/meminfo": node.format(n=0, free=1024),
        "/sys/devices/system/node/node1/meminfo": node.format(n=1, free=8000000),
    }
    for process, policy in (("self", "default"), ("7", "bind:0")):
        files[f"/proc/{process}/status"] = "Mems_allowed_list:\t0-1\n"
        files[f"/proc/{process}/numa_maps"] = f"00400000 {policy} heap anon=1\n"
    root = plant(tmp_path, files)
    scene = look(root, pid=7)
    assert (scene.nodes_allowed, scene.policy, scene.nodes_free_mib) == ("0-1", "bind:0", 1.0)
    assert look(root).nodes_allowed == ""


@pytest.mark.trap(16)
def test_a_schedulers_job_is_named(tmp_path: Path) -> None:
    """Its number and what it allots; no other variable of the environment."""
    env = {"SLURM_JOB_ID": "4711", "SLURM_MEM_PER_NODE": "2048", "SLURM_JOB_NAME": "hunter2"}
    scene = look(plant(tmp_path, meminfo()), env=env)
    assert (scene.scheduler, scene.job, scene.allotted_mib) == ("slurm", "4711", 2048.0)
    assert "hunter2" not in repr(scene)


# -- the kernel's words ------------------------------------------------------------------------------------------


def said(root: Path, *lines: str) -> None:
    with (root / "dev/kmsg").open("a") as file:
        file.writelines(lines)


def test_only_what_came_since_and_is_about_the_build_is_kept(tmp_path: Path) -> None:
    """Compilers by name, a tool by its number, others by their cgroup; of the rest of the machine nothing."""
    root = plant(tmp_path, {"/dev/kmsg": OOM})
    messages = KernelLog(root)
    said(
        tmp_path,
        OOM,
        "3,11,501,-;Out of memory: Killed process 99 (postgres) total-vm:1kB, anon-rss:1kB\n",
        "6,12,502,-;script.sh[88]: segfault at 0 ip 1 sp 2 error 4\n",
        "6,13,503,-;oom-kill:constraint=CONSTRAINT_NONE,task_memcg=/host/pod/ours,task=script.sh,pid=89,uid=0\n",
        " SUBSYSTEM=memory\n",
        "6,14,504,-;cudafe++[90]: segfault at 8 ip 1 sp 2 error 4\n",
    )
    kept = messages.read(names={"cicc", "cudafe++"}, pids={88}, group="/pod/ours")
    assert [line.partition("[")[0][:20] for line in kept] == [
        "oom-kill:constraint=",
        "script.sh",
        *["oom-kill:constraint="],
        "cudafe++",
    ]
    assert messages.read(names={"cicc"}, pids=(), group="") == ()
    messages.close()


def test_a_log_full_of_kills_stays_small(tmp_path: Path) -> None:
    """The last dozen, cut at 400 characters."""
    root = plant(tmp_path, {"/dev/kmsg": ""})
    messages = KernelLog(root)
    said(tmp_path, *(f"6,{n},9,-;Killed process {n} (cicc) {'x' * 3000}\n" for n in range(300)))
    kept = messages.read(names={"cicc"}, pids=())
    messages.close()
    assert len(kept) == MOST_KEPT
    assert kept[-1].startswith("Killed process 299 (cicc)")
    assert max(map(len, kept)) == 400


@pytest.mark.trap(28)
def test_a_log_that_may_not_be_read_says_nothing(tmp_path: Path) -> None:
    """Which is not the same as nothing having happened."""
    (tmp_path / "dev/kmsg").mkdir(parents=True)
    scene = look(SystemRoot(tmp_path))
    assert (scene.kernel_log, scene.kernel_log_read) == ((), False)


def test_a_look_leaves_no_descriptor_behind(tmp_path: Path) -> None:
    """Twenty of them, and the kernel's log closed."""
    root = plant(tmp_path, {**v1("/a"), **level_v1(f"{V1}/a"), **meminfo(), "/dev/kmsg": OOM})
    before = len(os.listdir("/proc/self/fd"))
    surveyor = SceneReader(root, {})
    for _ in range(20):
        surveyor.look(place=CgroupPlace(version=1, directories=(f"{V1}/a",)), before=Evidence(), pid=7)
    surveyor.close()
    assert len(os.listdir("/proc/self/fd")) == before
