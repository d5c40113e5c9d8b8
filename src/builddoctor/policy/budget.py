"""From limits to a budget, and from a budget to a window. Pure arithmetic.

Covers: the reserve that is never handed out; the budget of phases; how many units to keep open.
Does *not* cover: where limits come from (``sensors.limits``).
"""

from __future__ import annotations

from builddoctor.model.limits import Surroundings

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

OPEN_UNIT_MIB = 30.0
"""What one open unit costs while it waits: shell, gate and nvcc (DESIGN: about 30 MB each)."""

WINDOW_SHARE = 0.05
"""Waiting processes may take this share of the budget."""

WINDOW_PER_CORE = 3

SLOTS_SHARE = 8
"""One phase more than cores for each eight of them: it runs while another's nvcc, shell and gate are between phases."""


def reserve_mib(limit_mib: float, surroundings: Surroundings | None = None) -> float:
    """Memory kept free: 1 GiB or 5 %, but never above a tenth of the limit; more where running out is worse.

    On unified memory 8 GiB or 7 %; 1 GiB more beside a CI agent; twice as much where the kernel ends the whole group.
    """
    around = surroundings or Surroundings()
    reserve = min(max(RESERVE_FLOOR_MIB, RESERVE_SHARE * limit_mib), RESERVE_CAP_SHARE * limit_mib)
    if around.unified_memory:
        reserve = max(UNIFIED_FLOOR_MIB, UNIFIED_SHARE * limit_mib)
    if around.ci_runner:
        reserve += CI_RUNNER_MIB
    if around.group_kill:
        reserve *= GROUP_KILL_FACTOR
    return min(reserve, MOST_RESERVED_SHARE * limit_mib)


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
