"""From limits to a budget, and from a budget to a window. Pure arithmetic.

Covers: the reserve that is never handed out; the budget of phases; how many units to keep open.
Does *not* cover: where limits come from (``system.memory_sensor``).
"""

from __future__ import annotations

import msgspec

from builddoctor.core.limits import CGROUPS, LevelKind, MemoryLevel, MemoryReading, ProcessRoom

RESERVE_FLOOR_MIB = 1024.0
RESERVE_SHARE = 0.05
RESERVE_CAP_SHARE = 0.10
"""A reserve of 1 GiB would be a third of a 3 GiB container: never more than a tenth of the limit."""

UNIFIED_FLOOR_MIB = 8192.0
UNIFIED_SHARE = 0.07
"""GB10 and Jetson freeze for minutes when the pool runs out, where others kill a process
(docs/reference/host-memory.md, 7)."""

CI_RUNNER_MIB = 1024.0
"""For the CI agent: starved, it loses contact and the job ends without a word (runner-images#9823)."""

GROUP_KILL_FACTOR = 2.0
"""Where one process too many ends all of them, builddoctor included, the reserve is doubled (kubernetes#117793): by the
kernel (``memory.oom.group``) or by systemd (``OOMPolicy=stop``)."""

WHOLE_VM_FACTOR = 2.0
"""As for a group: when WSL2's memory runs out, processes of its own are killed too, and all shells end
(microsoft/WSL#40519). Of the machine's memory, not of a container's inside it."""

MOST_RESERVED_SHARE = 0.5
"""However bad the surroundings: half of the limit is for the build (docs/adr/0008)."""

LEAST_BUDGET_MIB = 64.0
"""Below this not one compiler can run: the smallest phases take 50 MiB (docs/reference/host-memory.md, 9)."""

OPEN_UNIT_MIB = 6.0
"""What one unit costs while it waits, at its nvcc gate or at a phase's: measured 3 to 4 MiB, and what the kernel keeps
for each process (docs/adr/0012). Resident sizes say 18: nearly all of that is files that all of them share."""

WINDOW_SHARE = 0.05
"""Waiting processes may take this share of the budget."""

WINDOW_PER_CORE = 32
"""Gates start at 15 ms of processor time each: so that those of a whole window delay the first phases by half a second
at most. And what a build tool starts that no gate stops (code generators) is held by its jobs alone."""

MOST_WINDOW = 512

FEW_PER_CORE = 3
FEW_SHARE_MIB = 600.0
"""Units that may be begun where that is dear: so many for a core, and one for each 600 MiB of the budget."""

PROCESSES_PER_UNIT = 8
"""An open unit at most: a shell, nvcc, its shell, gcc, a gate, the tool and its child, a launcher."""

FILES_PER_UNIT = 4
"""Descriptors of ours for one unit: two connections, a pidfd, a statm."""

OWN_FILES = 128
"""Ours besides, and the build tool's: it has one pipe for each unit."""

SLOTS_SHARE = 8
"""One phase more than cores for each eight of them: it runs while another's nvcc, shell and gate are between phases."""


class Allowance(msgspec.Struct, frozen=True, kw_only=True):
    """What the level that leaves least allows, its reserve taken off."""

    level: MemoryLevel
    reserve_mib: float
    budget_mib: float
    kill_headroom_mib: float
    """what is left before a process is killed, at the tightest level that kills at once"""


def allowance(reading: MemoryReading, own_use_mib: float) -> Allowance:
    """The budget: the least of all levels, each with the reserve that it needs.

    What is free and what we hold are not read at one moment. Where a large process ends between the two, their sum is
    more than there is: no budget is larger than the limits allow.
    """
    reserves = [(level, level_reserve_mib(level, reading)) for level in reading.levels]
    level, reserve = min(reserves, key=lambda pair: pair[0].headroom_mib - pair[1])
    # kubelet looks every ten seconds, and its figure rises again when the kernel gives up page cache.
    most = min(each.limit_mib - reserve_mib for each, reserve_mib in reserves)
    killing = [each.headroom_mib for each in reading.levels if each.kind is not LevelKind.EVICTION]
    return Allowance(
        level=level,
        reserve_mib=reserve,
        budget_mib=max(0.0, min(budget_mib(level.headroom_mib, own_use_mib, reserve), most)),
        kill_headroom_mib=min(killing, default=level.headroom_mib),
    )


def level_reserve_mib(level: MemoryLevel, reading: MemoryReading) -> float:
    """What stays free at one level: 1 GiB or 5 % of the smallest limit (but a tenth of it at most), and more where
    running out is worse (docs/adr/0008): at the host on unified memory or of a virtual machine that ends as a whole,
    beside a CI agent, in a group that dies whole.
    """
    around = reading.surroundings
    if level.kind is LevelKind.FLAG:
        return _base_mib(level.limit_mib)
    reserve = _base_mib(min(each.limit_mib for each in reading.levels))
    if level.kind is LevelKind.EVICTION:
        return reserve
    if around.unified_memory and level.kind in (LevelKind.HOST, LevelKind.NUMA):
        reserve = max(UNIFIED_FLOOR_MIB, UNIFIED_SHARE * level.limit_mib)
    elif around.whole_vm and level.kind in (LevelKind.HOST, LevelKind.NUMA):
        reserve = WHOLE_VM_FACTOR * _base_mib(level.limit_mib)
    if around.ci_runner:
        reserve += CI_RUNNER_MIB
    if (around.group_kill or around.unit_stops) and level.kind in CGROUPS:
        reserve *= GROUP_KILL_FACTOR
    return min(reserve, MOST_RESERVED_SHARE * level.limit_mib)


def _base_mib(limit_mib: float) -> float:
    return min(max(RESERVE_FLOOR_MIB, RESERVE_SHARE * limit_mib), RESERVE_CAP_SHARE * limit_mib)


def budget_mib(headroom_mib: float, own_use_mib: float, reserve: float) -> float:
    """What phases may hold together: what is free at the tightest level, plus what they hold, less the reserve."""
    return max(0.0, headroom_mib + own_use_mib - reserve)


def slots(cores: int) -> int:
    """Phases that may run at once: cores, and a few more, since a core idles between the phases of a unit.

    Measured on 2 cores (docs/adr/0007): with 2 at once a build takes 9 % longer than plain ninja's, with 3 as long.
    """
    return cores + max(1, cores // SLOTS_SHARE)


def window(cores: int, budget: float, room: ProcessRoom | None = None) -> int:
    """Units that a build tool may start (its jobs), most of which wait at their gates.

    As many as cost 5 % of the budget while they wait, so that the scheduler has a choice: at 4 cores and 6 GiB a build
    with 9 takes a fifth longer than with 40. At least cores + 1, so that a core never idles for want of a unit. Fewer
    where the system's limits on processes and files allow no more, but never fewer than ``few_units``.
    """
    by_memory = WINDOW_SHARE * budget / OPEN_UNIT_MIB
    wanted = int(min(by_memory, WINDOW_PER_CORE * cores, MOST_WINDOW))
    if room is not None:
        wanted = min(wanted, *_allowed_by(room))
    return max(few_units(cores, budget), wanted)


def few_units(cores: int, budget: float) -> int:
    """Units to begin where each costs more than waiting processes: their temporary files lie in memory, say."""
    return max(cores + 1, min(FEW_PER_CORE * cores, int(budget / FEW_SHARE_MIB)))


def most_open(cores: int, budget: float, jobs: int, *, temporary_mib: float | None, unit_files_mib: float) -> int:
    """Units that may be open at once, of ``jobs`` that the build tool started.

    ``temporary_mib``: what is left where nvcc's temporary files go, None: not known; 0 where they take memory.
    ``unit_files_mib``: what a unit puts there. Half of the room is for something else.
    """
    if temporary_mib is None:
        return jobs
    return max(few_units(cores, budget), min(jobs, int(temporary_mib / 2 / unit_files_mib)))


def _allowed_by(room: ProcessRoom) -> tuple[int, int, int]:
    return (
        MOST_WINDOW if room.processes is None else room.processes // PROCESSES_PER_UNIT,
        MOST_WINDOW if room.own_files is None else (room.own_files - OWN_FILES) // FILES_PER_UNIT,
        MOST_WINDOW if room.build_files is None else room.build_files - OWN_FILES,
    )
