"""Limits on every single process: RLIMIT_AS and RLIMIT_DATA.

They count virtual memory. Beyond them malloc fails and the compiler says so (``out of memory allocating … bytes``,
exit code 1); nothing is killed. RLIMIT_RSS has had no effect since Linux 2.4 (getrlimit(2)): it is no limit.
"""

from __future__ import annotations

from builddoctor.model.machine import ProcessCap
from builddoctor.sensors.root import SystemRoot
from builddoctor.units import MIB, whole_number

_LINES = (("RLIMIT_AS", "Max address space"), ("RLIMIT_DATA", "Max data size"))


def process_caps(root: SystemRoot) -> tuple[ProcessCap, ...]:
    """The soft limits that are set, from /proc/self/limits."""
    found: list[ProcessCap] = []
    for line in (root.text("/proc/self/limits") or "").splitlines():
        for name, label in _LINES:
            if line.startswith(label):
                words = line[len(label) :].split()
                size = whole_number(words[0]) if words else None
                if size is not None:
                    found.append(
                        ProcessCap(name="RLIMIT_AS" if name == "RLIMIT_AS" else "RLIMIT_DATA", limit_mib=size / MIB)
                    )
    return tuple(found)
