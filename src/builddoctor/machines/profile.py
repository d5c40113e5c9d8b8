"""From a profile's nominal figures to a budget. Pure arithmetic.

Covers: units of memory as makers write them, and the share that a build never gets.
Does *not* cover: the profiles themselves (``machines.catalogue``), or the reserve (``policy.budget``).

**GB or GiB.** Memory is built in powers of two, and makers who write ``480 GB`` of it mean 480 GiB: 32 modules of 64 GB
make the 2 TB of a DGX H100, Azure hands out 900 GiB of the 960 GB of a GB200 node, and the kernel of a DGX Spark (128
GB) counts 124,546 MiB, more than 128 decimal GB. So 1 GB of memory is taken as 1024 MiB here, and 1 TB as 1024 GB.

**The share of the system.** MemTotal is less than what is built in (firmware, the kernel itself), and services take
some more before a build starts. Planners that schedule on machines they have not seen yet take 7.5 % off: that is the
default of Karpenter's ``VM_MEMORY_OVERHEAD_PERCENT`` for every instance type of AWS. A DGX Spark's MemTotal is 5.0 %
below its nominal memory. A desktop with a browser takes far more; there ``machine probe`` knows better.
"""

from __future__ import annotations

from typing import Any

from builddoctor.model.limits import MemoryLevel, MemoryReading, Surroundings
from builddoctor.model.profile import MachineProfile, NominalMachine
from builddoctor.policy.budget import allowance

SYSTEM_SHARE = 0.075
"""Nominal memory that is no build's: firmware, kernel, services."""


def gib(count: float) -> float:
    """``count`` GB of memory modules, in MiB."""
    return count * 1024.0


def surroundings(profile: MachineProfile) -> Surroundings:
    """What decides the reserve there."""
    return Surroundings(unified_memory=profile.unified_memory, ci_runner=profile.ci_runner)


def nominal(profile: MachineProfile) -> NominalMachine:
    """The profile with its nominal limit, headroom, reserve and budget."""
    headroom = profile.memory_mib * (1.0 - SYSTEM_SHARE)
    level = MemoryLevel(source=profile.name, kind="host", limit_mib=profile.memory_mib, headroom_mib=headroom)
    allowed = allowance(MemoryReading(levels=(level,), surroundings=surroundings(profile)), 0.0)
    known: dict[str, Any] = {name: getattr(profile, name) for name in MachineProfile.__struct_fields__}
    return NominalMachine(
        **known,
        limit_mib=profile.memory_mib,
        headroom_mib=round(headroom, 1),
        reserve_mib=round(allowed.reserve_mib, 1),
        budget_mib=round(allowed.budget_mib, 1),
    )
