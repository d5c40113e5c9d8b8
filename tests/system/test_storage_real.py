"""A real tmpfs in a real memory cgroup: what lies there is memory that no process holds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.memcg import MemoryCgroup, memory_cgroup

pytestmark = pytest.mark.machines("v2", "next")

MIB = 1024**2

PROBE = """
import json, sys
from builddoctor.system.memory_sensor import MemorySensor
from builddoctor.system.root import SystemRoot
from builddoctor.system.storage import read_place

root = SystemRoot()
tightest = MemorySensor(root).read(0.0).tightest
place = read_place(root, sys.argv[1] + "/build/objects", role="TMPDIR")
print(json.dumps({"source": tightest.source, "headroom_mib": tightest.headroom_mib, "kind": place.filesystem,
    "mount": place.mount, "in_memory": place.in_memory, "used_mib": place.total_mib - place.free_mib}))
"""

# The shell outside of the group keeps the namespace, and with it the mount, alive; in the group nothing stays.
SCRIPT = """
group=$1 folder=$2 python=$3 probe=$4
in_group() { sh -c 'echo $$ > "$0"/cgroup.procs && exec "$@"' "$group" "$@"; }
mount -t tmpfs -o size=400m none "$folder"
mkdir "$folder/build"
in_group "$python" -c "$probe" "$folder"
in_group dd if=/dev/zero of="$folder/build/data" bs=1M count=200 2> /dev/null
echo "[$(tr '\\n' ' ' < "$group/cgroup.procs")]"
in_group "$python" -c "$probe" "$folder"
rm "$folder/build/data"
in_group "$python" -c "$probe" "$folder"
"""


def filled_and_emptied(group: MemoryCgroup, folder: Path) -> list[object]:
    """Probe, members after 200 MiB were written, probe, and a probe after they were deleted."""
    argv = ["unshare", "--mount", "--propagation", "private", "sh", "-euc", SCRIPT, "sh"]
    done = subprocess.run(
        [*argv, str(group.folder), str(folder), sys.executable, PROBE],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.needs_memcg
@pytest.mark.trap(10)
def test_files_on_a_tmpfs_take_the_groups_memory_without_a_process(tmp_path: Path) -> None:
    """200 MiB on a tmpfs, no process left: the headroom of a 300 MiB group is 200 MiB less until they are deleted,
    and the folder's mount is named as in memory."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    with memory_cgroup(300 * MIB) as group:
        before, members, after, emptied = filled_and_emptied(group, folder)
        assert group.kernel_kills == 0
        name = group.folder.name
    assert members == []
    assert isinstance(before, dict)
    assert isinstance(after, dict)
    assert isinstance(emptied, dict)
    assert all(name in probe["source"] for probe in (before, after, emptied))
    assert before["headroom_mib"] - after["headroom_mib"] == pytest.approx(200, abs=25)
    assert emptied["headroom_mib"] == pytest.approx(before["headroom_mib"], abs=25)
    assert (after["in_memory"], after["kind"], after["mount"]) == (True, "tmpfs", str(folder))
    assert after["used_mib"] - before["used_mib"] == pytest.approx(200, abs=1)
    assert not list(folder.iterdir()), "the mount is seen outside of its namespace"


MOUNTS = """
folder=$1 python=$2 probe=$3
cd "$folder"
mkdir "my disk" over stacked hidden endless bound lower
mkdir lower/inside
mount -t tmpfs -o size=64m none "my disk"
mkdir "my disk/upper" "my disk/work" "my disk/inside"
mount -t overlay -o "lowerdir=$folder/lower,upperdir=$folder/my disk/upper,workdir=$folder/my disk/work" none over
mount -t tmpfs -o size=16m none stacked && mount --bind lower stacked
mkdir hidden/inside && mount -t tmpfs -o size=16m none hidden/inside && mount --bind lower hidden
mount -t tmpfs -o size=0,nr_inodes=0,noexec none endless
mount --bind "my disk" bound && mount -o remount,bind,ro bound
"$python" -c "$probe" "my disk" over/x/y stacked/inside hidden/inside endless bound/inside
"""

PLACES = """
import json, os, sys
from builddoctor.system.storage import mount_of, read_mounts
from builddoctor.system.root import SystemRoot
from builddoctor.system.storage import read_place

root = SystemRoot()
for name in sys.argv[1:]:
    place = read_place(root, os.path.abspath(name), role="x")
    relative = read_place(root, name, role="x")
    agrees = True
    if not place.missing:
        found = mount_of(read_mounts(root), os.path.abspath(name))
        fd = os.open(name, os.O_PATH)
        agrees = f"mnt_id:\\t{found.id}\\n" in (root.text(f"/proc/self/fdinfo/{fd}") or "")
    print(json.dumps([name, agrees, place.in_memory, place.noexec, place.read_only, place.writable,
        place.total_mib is None, place.free_inodes is None, relative.mount == place.mount]))
"""


@pytest.mark.needs_memcg
def test_mounts_are_told_apart_as_the_kernel_does(tmp_path: Path) -> None:
    """Blanks, an overlay on tmpfs, stacked, hidden, endless and bound mounts: the same mount as the kernel's mnt_id."""
    argv = ["unshare", "--mount", "--propagation", "private", "sh", "-euc", MOUNTS, "sh"]
    done = subprocess.run(
        [*argv, str(tmp_path), sys.executable, PLACES],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = {row[0]: row[1:] for row in map(json.loads, done.stdout.splitlines())}
    assert all(agrees and same for agrees, *_, same in rows.values()), rows
    assert [name for name, row in rows.items() if row[1]] == ["my disk", "over/x/y", "endless", "bound/inside"]
    assert [name for name, row in rows.items() if row[2]] == ["endless"]
    assert [name for name, row in rows.items() if row[3]] == ["bound/inside"]
    assert [name for name, row in rows.items() if not row[4]] == ["bound/inside"]
    assert [name for name, row in rows.items() if row[5]] == ["endless"]
    assert [name for name, row in rows.items() if row[6]] == ["endless"]
