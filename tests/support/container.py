"""A root like a container's, without a container engine: what docker gives a process, by the same system calls.

Namespaces of its own for mounts, pids, IPC, the host's name and (v2) cgroups; a root that cannot be written, HOME with
it, but for /tmp and /dev/shm, which are its own; /proc of its pids alone; /sys read-only, with nothing of the memory
cgroup but its own group; no names of users; no capabilities. The first process in it is the command itself, with pid 1,
and all ends with it, mounts included.
Does *not* cover: images (the programs are this machine's), networks (it has the machine's), seccomp.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import builddoctor
from support.memcg import MemoryCgroup, here

NOBODY = 12345
"""No user of this machine's."""

_ENTER = r"""
root=$1 tmp=$2 access=$3 user=$4 group=$5 cgroups=$6
shift 6
path=$PATH PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount --bind / "$root"
mount -o remount,bind,ro "$root"
mount --bind "$tmp" "$root/tmp"
mount -t tmpfs -o mode=755 tmpfs "$root/root"
mount --bind /dev/null "$root/etc/passwd"
mount --bind /dev/null "$root/etc/group"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount -t sysfs -o ro sysfs "$root/sys"
if [ "$cgroups" = 1 ]; then
  mount -t tmpfs tmpfs "$root/sys/fs/cgroup"
  mkdir "$root/sys/fs/cgroup/memory"
  mount --bind "$group" "$root/sys/fs/cgroup/memory"
  mount -o remount,bind,ro "$root/sys/fs/cgroup/memory"
  mount -o remount,ro "$root/sys/fs/cgroup"
else
  mount -t cgroup2 -o ro cgroup2 "$root/sys/fs/cgroup"
fi
while [ "$1" != -- ]; do
  mkdir -p "$root$3"
  mount --bind "$2" "$root$3"
  mount -o "remount,bind,$1" "$root$3"
  shift 3
done
shift
mount -o "remount,bind,$access" "$root/tmp"
mount -o remount,bind,ro "$root/root"
cd "$root"
pivot_root . .
umount -l .
cd /
exec setpriv --reuid "$user" --regid "$user" --clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all \
  -- env PATH="$path" "$@"
"""


@dataclass(frozen=True)
class Volume:
    """A folder of this machine that the container has too."""

    folder: Path
    at: Path
    access: str = "ro"
    """or ``rw``"""


@dataclass(frozen=True)
class Container:
    """Made anew for each command, as for each RUN of a Dockerfile; its /tmp and its volumes are kept."""

    folder: Path
    """Its root is mounted in it, and its /tmp lies there."""
    user: int = NOBODY
    tmp: str = "rw"
    """or ``ro``"""
    volumes: tuple[Volume, ...] = ()

    def run(
        self, command: Sequence[str], group: MemoryCgroup, env: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """A command in it, within ``group``, to its end."""
        root, tmp = self.folder / "root", self.folder / "tmp"
        root.mkdir(parents=True, exist_ok=True)
        tmp.mkdir(exist_ok=True)
        tmp.chmod(0o1777)
        version = here().version
        namespaces = ["--mount", "--pid", "--ipc", "--uts", *(["--cgroup"] if version == 2 else [])]
        what = [str(root), str(tmp), self.tmp, str(self.user), str(group.folder), str(version), *self._mounts()]
        enter = ["unshare", "--fork", "--kill-child", *namespaces, "sh", "-euc", _ENTER, "sh", *what, "--"]
        return subprocess.run(
            group.wrapped([*enter, *command]),
            env=dict(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def _mounts(self) -> list[str]:
        """Our code and its Python, where the root of the machine has them in a folder that is hidden here."""
        ours = [Path(builddoctor.__file__).parents[1], Path(sys.prefix), Path(sys.base_prefix)]
        hidden = [Volume(each, each) for each in ours if each.is_relative_to("/tmp") or each.is_relative_to("/root")]
        return [word for each in (*hidden, *self.volumes) for word in (each.access, str(each.folder), str(each.at))]
