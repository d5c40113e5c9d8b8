"""A build as the simulator takes it: units in the order of the build tool, each with its phases in order.

Covers: the shapes, disturbed copies of a workload, and the lower bound that no scheduler beats.
Does *not* cover: where workloads come from (``simulate.measured``, ``simulate.generated``).
"""

from __future__ import annotations

import random

import msgspec

from builddoctor.model.phase import Phase, PhaseKind


class PhaseWork(msgspec.Struct, frozen=True, kw_only=True):
    """One phase as it really is; an estimator does not see ``peak_mib`` and ``wall_s``."""

    kind: PhaseKind
    arch: str = ""
    input_mib: float = 0.0
    peak_mib: float
    wall_s: float
    """time on a core of its own"""
    tool: str = ""
    curve: tuple[tuple[float, float], ...] = ()
    """what it held, as (share of its time, share of its peak), where that was recorded; only replays use it"""

    def asks(self, phase_id: int, unit_id: str, source: str) -> Phase:
        """What an estimator sees of it."""
        return Phase(
            phase_id=phase_id,
            unit_id=unit_id,
            kind=self.kind,
            source=source,
            arch=self.arch,
            input_mib=self.input_mib,
            tool=self.tool,
        )


class UnitWork(msgspec.Struct, frozen=True, kw_only=True):
    """One translation unit or link: ``phases`` run one after the other."""

    name: str
    source: str = ""
    archs: tuple[str, ...] = ()
    phases: tuple[PhaseWork, ...]
    after_all: bool = False
    """a link: the build tool begins it when every unit before it has ended"""

    @property
    def wall_s(self) -> float:
        return sum(each.wall_s for each in self.phases)

    @property
    def peak_mib(self) -> float:
        return max((each.peak_mib for each in self.phases), default=0.0)


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """All units, in the order in which the build tool would begin them."""

    name: str
    units: tuple[UnitWork, ...]

    @property
    def phases(self) -> int:
        return sum(len(unit.phases) for unit in self.units)

    @property
    def work_s(self) -> float:
        return sum(unit.wall_s for unit in self.units)

    @property
    def peak_mib(self) -> float:
        """The largest single phase."""
        return max((unit.peak_mib for unit in self.units), default=0.0)


def unit_id(index: int) -> str:
    """The id that the simulator gives the unit at this place of ``Workload.units``."""
    return f"u{index + 1}"


def lower_bound_s(workload: Workload, *, cores: int, limit_mib: float, held_share: float = 1.0) -> float:
    """No order is faster: all work over all cores, memory times time over all memory, or the longest unit.

    ``held_share``: what a phase holds on average, as a share of its peak; 0.5 where it grows evenly.
    """
    area = sum(each.peak_mib * each.wall_s for unit in workload.units for each in unit.phases)
    longest_s = max((unit.wall_s for unit in workload.units), default=0.0)
    return max(workload.work_s / cores, held_share * area / limit_mib, longest_s)


def without_links(workload: Workload) -> Workload:
    """Only the units that need nothing of others."""
    return msgspec.structs.replace(workload, units=tuple(unit for unit in workload.units if not unit.after_all))


def disturbed(workload: Workload, *, share: float, seed: int) -> Workload:
    """The same build with each phase's peak changed by up to ``share`` of it, up or down, evenly."""
    chance = random.Random(seed)  # noqa: S311 - a seed for repeatable figures, no secret

    def moved(phase: PhaseWork) -> PhaseWork:
        return msgspec.structs.replace(phase, peak_mib=phase.peak_mib * chance.uniform(1.0 - share, 1.0 + share))

    units = tuple(
        msgspec.structs.replace(unit, phases=tuple(moved(phase) for phase in unit.phases)) for unit in workload.units
    )
    return msgspec.structs.replace(workload, name=f"{workload.name} ±{100 * share:.0f} %", units=units)
