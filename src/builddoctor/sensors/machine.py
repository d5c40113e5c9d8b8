"""This machine as data: everything that decides how a build may run here, read once.

Covers: cores, memory levels and their reserve, NUMA, platform, limits on processes, the folders that a build writes to.
Does *not* cover: toolchains (``intercept``), or judging any of it (``doctor``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from builddoctor.model.machine import Machine
from builddoctor.policy.budget import allowance
from builddoctor.sensors.cores import read_cores
from builddoctor.sensors.host import HostSensor
from builddoctor.sensors.limits import MemorySensor
from builddoctor.sensors.numa import read_numa
from builddoctor.sensors.platform import read_platform
from builddoctor.sensors.rlimits import process_caps
from builddoctor.sensors.root import SystemRoot
from builddoctor.sensors.storage import read_places


def probe_machine(
    root: SystemRoot,
    env: Mapping[str, str],
    *,
    folders: Sequence[tuple[str, Path]] = (),
    memory_mib: float | None = None,
) -> Machine:
    """Read it all. ``folders``: (role, path) of further folders to look at; ``memory_mib``: a limit of the user's."""
    reading = MemorySensor(root, env=env, user_limit_mib=memory_mib).read(0.0)
    allowed = allowance(reading, 0.0)
    cores = read_cores(root)
    return Machine(
        cores=cores.count,
        cores_source=cores.source,
        limit_mib=round(reading.limit_mib, 1),
        headroom_mib=round(allowed.level.headroom_mib, 1),
        budget_mib=round(allowed.budget_mib, 1),
        reserve_mib=round(allowed.reserve_mib, 1),
        limited_by=allowed.level.source,
        levels=reading.levels,
        unread=reading.unread,
        surroundings=reading.surroundings,
        hidden_above=reading.hidden_above,
        host=HostSensor(root).facts(),
        numa=read_numa(root),
        platform=read_platform(root, env),
        process_caps=process_caps(root),
        places=read_places(root, env, folders),
    )
