"""Run a command in a container by crun: a group with a limit and memory.oom.group, and namespaces as Kubernetes has.

python3 container.py --group /kubepods/pod1/c1 --memory-mib 4096 COMMAND...
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--group", required=True)
    parser.add_argument("--memory-mib", type=int, required=True)
    parser.add_argument("--no-oom-group", action="store_true")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    words = parser.parse_args()
    bundle = Path(tempfile.mkdtemp(prefix="bundle-", dir="/run"))
    (bundle / "rootfs").mkdir()
    subprocess.run(["mount", "--rbind", "/", bundle / "rootfs"], check=True)
    everything = [f"CAP_{name}" for name in ("SYS_ADMIN", "SYS_PTRACE", "KILL", "DAC_OVERRIDE", "CHOWN", "FOWNER")]
    everything += [f"CAP_{name}" for name in ("SETUID", "SETGID", "SYS_RESOURCE", "IPC_LOCK")]
    mounts = [("/proc", "proc"), ("/dev", "tmpfs"), ("/dev/pts", "devpts"), ("/dev/shm", "tmpfs"), ("/sys", "sysfs")]
    mounts.append(("/sys/fs/cgroup", "cgroup"))
    config = {
        "ociVersion": "1.0.0",
        "hostname": "pod",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": words.command,
            "env": [f"{name}={value}" for name, value in os.environ.items()],
            "cwd": os.getcwd(),
            "capabilities": dict.fromkeys(("bounding", "effective", "permitted"), everything),
        },
        "root": {"path": "rootfs"},
        "mounts": [{"destination": where, "type": kind, "source": kind} for where, kind in mounts],
        "linux": {
            "namespaces": [{"type": kind} for kind in ("pid", "mount", "network", "ipc", "uts", "cgroup")],
            "cgroupsPath": words.group,
            "resources": {
                "memory": {"limit": words.memory_mib << 20},
                "unified": {} if words.no_oom_group else {"memory.oom.group": "1"},
            },
        },
    }
    (bundle / "config.json").write_text(json.dumps(config))
    command = ["crun", "--cgroup-manager=cgroupfs", "run", "--bundle", str(bundle), f"job{os.getpid()}"]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
