"""Trees of kernel files under a folder, for sensors that read a system root."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from builddoctor.system.root import SystemRoot

GIB = 1024**3
MIB = 1024**2

CGROUP2 = "31 23 0:27 {root} {point} rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
CGROUP1 = "40 31 0:35 {root} {point} rw,nosuid,nodev,noexec,relatime shared:17 - cgroup cgroup rw,memory\n"
OTHER = "24 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"

V2 = "/sys/fs/cgroup"
V1 = "/sys/fs/cgroup/memory"


class TextRoot(SystemRoot):
    """A root whose files are given as text; nothing else exists. A file whose text is None cannot be read."""

    def __init__(self, files: Mapping[str, str | None] | None = None) -> None:
        super().__init__()
        self.files: dict[str, str | None] = dict(files or {})

    def text(self, absolute: str) -> str | None:
        return self.files.get(absolute)

    def path_text(self, absolute: str) -> str | None:
        return self.files.get(absolute)

    def link(self, absolute: str) -> str:
        return self.files.get(absolute) or ""

    def exists(self, absolute: str) -> bool:
        return absolute in self.files or any(name.startswith(f"{absolute}/") for name in self.files)

    def names(self, absolute: str) -> list[str]:
        prefix = absolute.rstrip("/") + "/"
        return sorted({name[len(prefix) :].split("/")[0] for name in self.files if name.startswith(prefix)})


def plant(root: Path, files: Mapping[str, object]) -> SystemRoot:
    """Write ``files`` (absolute path to content) under ``root``."""
    for name, content in files.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else str(content).encode())
    return SystemRoot(root)


def meminfo(total_gib: float = 24.0, available_gib: float = 20.0) -> dict[str, str]:
    """/proc/meminfo of a host."""
    total, available = round(total_gib * 1024**2), round(available_gib * 1024**2)
    text = f"MemTotal: {total} kB\nMemFree: 1024 kB\nMemAvailable: {available} kB\nHugePages_Total: 0\n"
    return {"/proc/meminfo": text}


def v2(path: str = "/", *, root: str = "/", point: str = V2) -> dict[str, str]:
    """A pure cgroup v2 system on which this process is in ``path``."""
    return {
        "/proc/self/mountinfo": OTHER + CGROUP2.format(root=root, point=point),
        "/proc/self/cgroup": f"0::{path}\n",
    }


def v1(path: str = "/", *, root: str = "/", point: str = V1) -> dict[str, str]:
    """A cgroup v1 system on which this process is in ``path`` of the memory hierarchy."""
    return {
        "/proc/self/mountinfo": OTHER + CGROUP1.format(root=root, point=point),
        "/proc/self/cgroup": f"12:cpu,cpuacct:/elsewhere\n9:memory:{path}\n1:name=systemd:/elsewhere\n",
    }


def level_v2(directory: str, *, limit: object = "max", usage: int = 0, high: object = "max", stat: str = "") -> dict:
    """Files of one v2 level."""
    return {
        f"{directory}/memory.max": f"{limit}\n",
        f"{directory}/memory.high": f"{high}\n",
        f"{directory}/memory.low": "1048576\n",
        f"{directory}/memory.min": "1048576\n",
        f"{directory}/memory.current": f"{usage}\n",
        f"{directory}/memory.stat": stat,
        f"{directory}/memory.events": "low 0\nhigh 4\nmax 9\noom 1\noom_kill 3\n",
    }


def level_v1(directory: str, *, limit: object = 9223372036854771712, usage: int = 0, stat: str = "") -> dict:
    """Files of one v1 level."""
    return {
        f"{directory}/memory.limit_in_bytes": f"{limit}\n",
        f"{directory}/memory.soft_limit_in_bytes": "1048576\n",
        f"{directory}/memory.usage_in_bytes": f"{usage}\n",
        f"{directory}/memory.failcnt": "1186\n",
        f"{directory}/memory.stat": stat,
        f"{directory}/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
    }
