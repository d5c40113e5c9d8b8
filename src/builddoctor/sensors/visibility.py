"""What can be seen from here of kills and pressure: asked before a build, so that nobody is surprised after it.

Does *not* cover: reading the figures (``sensors.limits``, ``sensors.pressure``, ``sensors.evidence``).
"""

from __future__ import annotations

import os

from builddoctor.model.visibility import Visibility
from builddoctor.sensors.limits import KillCounter
from builddoctor.sensors.root import SystemRoot


def read_visibility(root: SystemRoot) -> Visibility:
    """Nothing is read from the kernel log: whether it may be opened is asked, without waiting."""
    counter = KillCounter(root)
    return Visibility(
        own_kills=counter.own() is not None,
        host_kills=counter.host() is not None,
        pressure=bool(root.text("/proc/pressure/memory")),
        kernel_log=_opens(root, "/dev/kmsg"),
    )


def _opens(root: SystemRoot, path: str) -> bool:
    try:
        os.close(os.open(root.at(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError:
        return False
    return True
