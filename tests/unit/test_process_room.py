"""Limits on processes and open files."""

from __future__ import annotations

import pytest

from builddoctor.model.process_room import ProcessRoom
from builddoctor.sensors.process_room import read_process_room
from unit.trees import TextRoot

LIMITS = (
    "Limit                     Soft Limit           Hard Limit           Units     \n"
    "Max processes             {nproc}                 127000               processes \n"
    "Max open files            1024                 524288               files     \n"
)
PIDS = "40 31 0:35 / /sys/fs/cgroup/pids rw,nosuid shared:17 - cgroup cgroup rw,pids\n"


def process(uid: int, threads: int) -> str:
    return f"Name:\tx\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nThreads:\t{threads}\n"


def tree(*, nproc: str = "unlimited", uid: int = 1000, **files: str | None) -> TextRoot:
    return TextRoot({"/proc/self/limits": LIMITS.format(nproc=nproc), "/proc/self/status": process(uid, 1), **files})


def test_without_limits_on_processes_there_are_those_on_files() -> None:
    """The hard limit is ours, since we raise it for ourselves; the soft one is the build's."""
    assert read_process_room(tree()) == ProcessRoom(processes=None, own_files=524288, build_files=1024)


@pytest.mark.parametrize(
    ("nproc", "uid", "room"), [("4096", 1000, 4093), ("2", 1000, 0), ("4096", 0, None), ("63000", 1000, None)]
)
def test_a_users_threads_count_against_his_limit(nproc: str, uid: int, room: int | None) -> None:
    """Of all processes those of this user, with all their threads; root has no such limit; a far one is none."""
    others = {"/proc/7/status": process(1000, 1), "/proc/8/status": process(1000, 2), "/proc/9/status": process(7, 50)}
    assert read_process_room(tree(nproc=nproc, uid=uid, **others)).processes == room


def test_the_tightest_cgroup_counts() -> None:
    """A pod's pids.max above the container's own."""
    root = tree(
        nproc="4096",
        **{
            "/proc/self/cgroup": "5:pids:/pod/box\n",
            "/proc/self/mountinfo": PIDS,
            "/sys/fs/cgroup/pids/pod/box/pids.max": "max\n",
            "/sys/fs/cgroup/pids/pod/box/pids.current": "12\n",
            "/sys/fs/cgroup/pids/pod/pids.max": "1024\n",
            "/sys/fs/cgroup/pids/pod/pids.current": "24\n",
        },
    )
    assert read_process_room(root).processes == 1000


@pytest.mark.parametrize("text", [None, "", "Max processes", "Max processes lots more\nMax open files \x00 9\n"])
def test_odd_limits_are_unknown(text: str | None) -> None:
    """What cannot be read limits nothing here: the build would say so itself."""
    room = read_process_room(TextRoot({"/proc/self/limits": text}))
    assert room.processes is None
    assert room.build_files is None
