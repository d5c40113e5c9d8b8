"""From limits to a budget, and from a budget to a window. Pure arithmetic.

Covers: the reserve that is never handed out; the budget of phases; how many units to keep open.
Does *not* cover: where limits come from (``sensors.limits``).
"""

from __future__ import annotations

import msgspec

from builddoctor.model.limits import MemoryLevel, MemoryReading

RESERVE_FLOOR_MIB = 1024.0
RESERVE_SHARE = 0.05
RESERVE_CAP_SHARE = 0.10
"""A reserve of 1 GiB would be a third of a 3 GiB container: never more than a tenth of the limit."""

UNIFIED_FLOOR_MIB = 8192.0
UNIFIED_SHARE = 0.07
"""GB10 and Jetson freeze for minutes when the pool runs out, where others kill a process (memory.md 1.6)."""

CI_RUNNER_MIB = 1024.0
"""For the CI agent: starved, it loses contact and the job ends without a word (runner-images#9823)."""

GROUP_KILL_FACTOR = 2.0
"""Where one process too many ends all of them, builddoctor included, the reserve is doubled (kubernetes#117793)."""

MOST_RESERVED_SHARE = 0.5
"""However bad the surroundings: half of the limit is for the build (docs/adr/0008)."""

LEAST_BUDGET_MIB = 64.0
"""Below this not one compiler can run: the smallest phases take 50 MiB (DESIGN 2)."""

OPEN_UNIT_MIB = 30.0
"""What one open unit costs while it waits: shell, gate and nvcc (DESIGN: about 30 MB each)."""

WINDOW_SHARE = 0.05
"""Waiting processes may take this share of the budget."""

WINDOW_PER_CORE = 3

SLOTS_SHARE = 8
"""One phase more than cores for each eight of them: it runs while another's nvcc, shell and gate are between phases."""


class Allowance(msgspec.Struct, frozen=True, kw_only=True):
    """What the level that leaves least allows, its reserve taken off."""

    level: MemoryLevel
    reserve_mib: float
    budget_mib: float
    kill_headroom_mib: float
    """what is left before somebody is killed, at the tightest level that kills at once"""


def allowance(reading: MemoryReading, own_use_mib: float) -> Allowance:
    """The budget: the least of all levels, each with the reserve that it needs."""
    reserves = [(level, level_reserve_mib(level, reading)) for level in reading.levels]
    level, reserve = min(reserves, key=lambda pair: pair[0].headroom_mib - pair[1])
    # kubelet looks every ten seconds, and its figure rises again when the kernel gives up page cache.
    killing = [each.headroom_mib for each in reading.levels if each.kind != "eviction"]
    return Allowance(
        level=level,
        reserve_mib=reserve,
        budget_mib=budget_mib(level.headroom_mib, own_use_mib, reserve),
        kill_headroom_mib=min(killing, default=level.headroom_mib),
    )


def level_reserve_mib(level: MemoryLevel, reading: MemoryReading) -> float:
    """What stays free at one level: 1 GiB or 5 % of the smallest limit (but a tenth of it at most), and more where
    running out is worse (docs/adr/0008): at the host on unified memory, beside a CI agent, in a group that dies whole.
    """
    around = reading.surroundings
    if level.kind == "flag":
        return _base_mib(level.limit_mib)
    reserve = _base_mib(min(each.limit_mib for each in reading.levels))
    if level.kind == "eviction":
        return reserve
    if around.unified_memory and level.kind in ("host", "numa"):
        reserve = max(UNIFIED_FLOOR_MIB, UNIFIED_SHARE * level.limit_mib)
    if around.ci_runner:
        reserve += CI_RUNNER_MIB
    if around.group_kill and level.kind in ("cgroup-v1", "cgroup-v2"):
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


def window(cores: int, budget: float) -> int:
    """Open units: enough that the governor has a choice, few enough that those waiting cost 5 % of the budget.

    At least cores + 1, so that a core never idles for want of an open unit.
    """
    by_memory = int(WINDOW_SHARE * budget / OPEN_UNIT_MIB)
    return max(cores + 1, min(WINDOW_PER_CORE * cores, by_memory))
