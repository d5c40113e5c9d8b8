"""From limits to a budget, and from a budget to a window. Pure arithmetic.

Covers: the reserve that is never handed out; the budget of phases; how many units to keep open.
Does *not* cover: where limits come from (``sensors.limits``).
"""

from __future__ import annotations

RESERVE_FLOOR_MIB = 1024.0
RESERVE_SHARE = 0.05
RESERVE_CAP_SHARE = 0.10
"""A reserve of 1 GiB would be a third of a 3 GiB container: never more than a tenth of the limit."""

OPEN_UNIT_MIB = 30.0
"""What one open unit costs while it waits: shell, gate and nvcc (DESIGN: about 30 MB each)."""

WINDOW_SHARE = 0.05
"""Waiting processes may take this share of the budget."""

WINDOW_PER_CORE = 3

SLOTS_SHARE = 8
"""One phase more than cores for each eight of them: it runs while another's nvcc, shell and gate are between phases."""


def reserve_mib(limit_mib: float) -> float:
    """Memory kept free: 1 GiB or 5 %, but never above a tenth of the limit."""
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
