"""What a simulation is given beside the workload, and what it answers."""

from __future__ import annotations

from typing import Literal

import msgspec

from builddoctor.core.limits import LevelKind, MemoryLevel, MemoryReading
from builddoctor.core.phase import PhaseKind
from builddoctor.scheduler.budget import allowance
from builddoctor.simulate.workload import Growth


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """The simulated machine: nothing else uses it."""

    cores: int
    limit_mib: float
    own_budget_mib: float | None = None
    """what the policy may hand out; None: what production would make of the limit"""

    @property
    def budget_mib(self) -> float:
        if self.own_budget_mib is not None:
            return self.own_budget_mib
        level = MemoryLevel(
            source="simulated", kind=LevelKind.CGROUP_V2, limit_mib=self.limit_mib, headroom_mib=self.limit_mib
        )
        return allowance(MemoryReading(levels=(level,)), 0.0).budget_mib

    @property
    def reserve_mib(self) -> float:
        return max(0.0, self.limit_mib - self.budget_mib)


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """How the simulated world behaves."""

    jobs: int | None = None
    """units that the build tool keeps open; None: all"""
    held: bool = False
    """units wait at their compiler driver until the policy opens them"""
    growth: Growth = "flat"
    """a phase without a recorded curve holds its peak from its start on, or grows evenly to it over its run"""
    sample_s: float | None = 0.25
    """memory is looked at on multiples of this, where something has changed since; None: once, before the build. With
    flat growth gigabytes come from one look to the next, which no compiler does and every scheduler takes for danger"""
    looks: Literal["even", "production's"] = "even"
    """each ``sample_s``, or the sooner the less is left (``scheduler.look_period``)"""
    quiet_s: float = 5.0
    """and this long after the last look where nothing has; then what the policy sees is that time passes"""
    rest_s: float = 0.0
    """what holds still is looked at again after this, as ``scheduler.rules`` has it; 0: at each look, with all
    others"""
    kill_s: float = 0.02
    kill_s_per_gib: float = 0.08
    """from a kill being decided to its memory being back, as measured (48 kills, docs/adr/0035): 10 ms, and 80 a GiB"""
    gap_s: float = 0.0
    """between two phases of a unit: the driver and the next gate"""
    enforced: bool = True
    """the kernel ends the largest phase beyond the limit; False: the limit is not kept, as with ``--memory``"""
    redo: Literal["phase", "unit"] = "phase"
    """what is run again after a kill"""
    portable: frozenset[PhaseKind] = frozenset()
    """what other machines can run; which there are is said by events (``NodeSeen``)"""
    way_s: float = 0.0
    """of a phase, to another machine and back"""
    way_s_per_mib: float = 0.0
    """and for each MiB that it reads"""
    most_tries: int = 50
    """runs of one phase (or unit); then the simulation ends, unfinished"""


USUAL = Rules()
"""All units open, memory at once, four looks a second."""


class PhaseRun(msgspec.Struct, frozen=True, kw_only=True):
    """One phase that ran to its end."""

    phase_id: int
    unit: str
    kind: PhaseKind
    asked_s: float
    waited_s: float
    """in line, all its tries together"""
    ended_s: float
    tries: int
    expected_mib: float
    """median of the last estimate that it was admitted with"""
    reserve_mib: float
    peak_mib: float


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A phase that the policy gave up, and with it the build."""

    unit: str
    kind: PhaseKind
    verdict: str


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One simulated build."""

    makespan_s: float
    failure: Failure | None
    unfinished: int
    """units that did not end well; 0 for a build that completed"""
    kernel_kills: int
    kills: int
    """by the policy"""
    requeued: int
    suspended: int
    """times that a phase was stopped for a while"""
    stood_s: float
    """that phases stood still, in all"""
    lost_s: float
    """processor time of what was killed"""
    peak_mib: float
    """most that phases held together; at most the limit where the kernel holds it"""
    over_limit_s: float
    """time beyond the limit: only where it is not enforced"""
    mean_running: float
    warnings: tuple[str, ...]
    phases: tuple[PhaseRun, ...]
    """in the order of their ends"""

    @property
    def completed(self) -> bool:
        return self.unfinished == 0

    @property
    def waited_s(self) -> float:
        """Of all phases together."""
        return sum(each.waited_s for each in self.phases)
