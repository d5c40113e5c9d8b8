"""Workloads for tests and benches, and what is known of them beforehand.

Covers: generated workloads of any size; disturbed copies; what phases hold on average; only names (``cold``), or one
earlier build (``warm``), as a scheduler would be told of them.
Does *not* cover: workloads of real builds (``support.measured_builds``).
"""

from __future__ import annotations

import math
import random
from itertools import pairwise

import msgspec

from builddoctor.core.past import Course as SeenCourse
from builddoctor.core.past import PastPhase, PastUnit, Seen, UnitKey
from builddoctor.core.phase import PhaseKind
from builddoctor.estimation.course import CourseWatch
from builddoctor.simulate.engine import Known
from builddoctor.simulate.workload import Course, Growth, PhaseWork, UnitWork, Workload, course_of, held_share, unit_id

HEAVY_SHARE = 0.15
HOST_SHARE = 0.23
MOST_MIB = 6000.0
LOOK_S = 0.1


def without_links(workload: Workload) -> Workload:
    """Only the units that need nothing of others."""
    return msgspec.structs.replace(workload, units=tuple(unit for unit in workload.units if not unit.after_all))


def at_peaks(workload: Workload) -> Workload:
    """The same build with nothing known of what phases hold before they hold the most."""
    units = (
        msgspec.structs.replace(
            unit, phases=tuple(msgspec.structs.replace(phase, curve=(), steps=()) for phase in unit.phases)
        )
        for unit in workload.units
    )
    return msgspec.structs.replace(workload, units=tuple(units))


def disturbed(workload: Workload, *, share: float, seed: int, times: float = 0.0) -> Workload:
    """The same build with each phase's peak changed by up to ``share`` of it, up or down, evenly; and its time by up to
    ``times``."""
    chance = random.Random(seed)

    def moved(phase: PhaseWork) -> PhaseWork:
        peak_mib = phase.peak_mib * chance.uniform(1.0 - share, 1.0 + share)
        wall_s = phase.wall_s * chance.uniform(1.0 - times, 1.0 + times) if times else phase.wall_s
        return msgspec.structs.replace(phase, peak_mib=peak_mib, wall_s=wall_s)

    units = tuple(
        msgspec.structs.replace(unit, phases=tuple(moved(phase) for phase in unit.phases)) for unit in workload.units
    )
    return msgspec.structs.replace(workload, name=f"{workload.name} ±{100 * share:.0f} %", units=units)


def mean_share(course: Course) -> float:
    """What is held on average, as a share of the peak."""
    points = [*course, (1.0, course[-1][1])]
    return sum((to - at) * (first + last) / 2 for (at, first), (to, last) in pairwise(points))


def held_of(workload: Workload, growth: Growth) -> float:
    """Of all peaks times their phases' times, the share that is held: 1 for flat phases, a half for even ramps."""
    held = area = 0.0
    for phase in (each for unit in workload.units for each in unit.phases):
        area += phase.peak_mib * phase.wall_s
        held += phase.peak_mib * phase.wall_s * mean_share(course_of(phase, growth))
    return held / area if area else 1.0


def cold(workload: Workload) -> Known:
    """Nothing but names."""
    return {unit_id(index): (_key(workload, unit), None) for index, unit in enumerate(workload.units)}


def warm(workload: Workload, *, distance: float = 0.0, courses: bool = True, growth: Growth = "flat") -> Known:
    """One earlier build of exactly this workload; with a ``distance``, figures that are trusted that much less, as a
    recipe's of another version are. ``courses``: it was seen what phases held meanwhile; ``growth``: of those without a
    curve."""
    keys = [_key(workload, unit) for unit in workload.units]
    pairs = zip(keys, workload.units, strict=True)
    return {
        unit_id(index): (key, _past(key, unit, distance, growth if courses else None))
        for index, (key, unit) in enumerate(pairs)
    }


def generated(units: int, *, seed: int, archs: int = 1) -> Workload:
    """``units`` units for ``archs`` device architectures each; the same for the same arguments.

    A heavy-tailed mix as in TransformerEngine 2.8 (sm_100). Of its 65 units 15 % are heavy (front end 1.4 to 1.8 GiB,
    ``cicc`` 2.5 to 4.1 GiB), 23 % are host code alone, and the rest stays below 0.7 GiB except for a few with a large
    ``ptxas``. Peaks of ``cicc``, ``ptxas`` and the host compiler follow the fits of ``estimation.priors`` with the
    spread of the residuals, so that an estimator meets realistic errors. There are no links.
    """
    chance = random.Random(seed)
    names = tuple(f"sm_{80 + 10 * number}" for number in range(archs))
    made = []
    for number in range(units):
        kind = chance.random()
        if kind < HOST_SHARE:
            name, phases = f"host_{number}.cpp", (_host(chance, chance.lognormvariate(6.0, 0.8), 0.0),)
            made.append(UnitWork(name=name, source=name, phases=phases))
        else:
            name = f"kernel_{number}.cu"
            heavy = kind > 1.0 - HEAVY_SHARE
            made.append(UnitWork(name=name, source=name, archs=names, phases=_device(chance, names, heavy=heavy)))
    return Workload(name=f"generated {units} units, seed {seed}", units=tuple(made))


def risen_and_fallen(workload: Workload) -> Workload:
    """The same build, each phase of which rises to its peak and gives some back before it ends, as compilers do."""
    curve = ((0.25, 0.4), (0.7, 1.0), (0.8, 1.0), (0.85, 0.6), (1.0, 0.6))
    units = (
        msgspec.structs.replace(
            unit, phases=tuple(msgspec.structs.replace(phase, curve=curve) for phase in unit.phases)
        )
        for unit in workload.units
    )
    return msgspec.structs.replace(workload, units=tuple(units))


def _key(workload: Workload, unit: UnitWork) -> UnitKey:
    return UnitKey(project=workload.name, place=unit.source or unit.name, output=unit.name, archs=unit.archs)


def _past(key: UnitKey, unit: UnitWork, distance: float, growth: Growth | None) -> PastUnit:
    seen: dict[tuple[PhaseKind, str, str], list[Seen]] = {}
    for each in unit.phases:
        course = watched(each, growth) if growth is not None else ()
        figures = Seen(input_mib=each.input_mib, peak_mib=each.peak_mib, wall_s=each.wall_s, course=course)
        seen.setdefault((each.kind, each.arch, each.tool), []).append(figures)
    return PastUnit(
        key=key,
        phases=tuple(
            PastPhase(kind=kind, arch=arch, tool=tool, seen=tuple(found), distance=distance)
            for (kind, arch, tool), found in seen.items()
        ),
    )


def watched(phase: PhaseWork, growth: Growth = "flat") -> SeenCourse:
    """As the history has it: looked at ten times a second."""
    course, bend, watch = course_of(phase, growth), 0, CourseWatch(0.0)
    for look in range(1, 1 + math.floor(phase.wall_s / LOOK_S)):
        done = min(1.0, look * LOOK_S / phase.wall_s)
        while bend + 1 < len(course) and course[bend + 1][0] <= done:
            bend += 1
        watch.looked(look * LOOK_S, phase.peak_mib * held_share(course, bend, done))
    return watch.course(peak_mib=phase.peak_mib, wall_s=phase.wall_s)


def _device(chance: random.Random, archs: tuple[str, ...], *, heavy: bool) -> tuple[PhaseWork, ...]:
    front_mib = chance.uniform(1400.0, 1850.0) if heavy else 280.0 + chance.lognormvariate(4.2, 0.8)
    input_mib = 4.0 + 0.006 * front_mib * chance.uniform(0.6, 1.4)
    front_s = front_mib / 140.0 * chance.lognormvariate(0.0, 0.3) if heavy else front_mib / 350.0
    phases = [
        _phase(PhaseKind.PREPROCESS, 19.0, 0.012, tool="cc1plus"),
        _phase(PhaseKind.PREPROCESS, chance.uniform(60.0, 110.0), 0.3, tool="cc1plus"),
        _phase(PhaseKind.CUDAFE, front_mib, front_s, input_mib=input_mib),
    ]
    for arch in archs:
        cicc_mib = max(180.0, 2.37 * front_mib - 550.0 + chance.gauss(0.0, 40.0 + 0.05 * front_mib))
        cicc_s = front_s * 2.3 * chance.lognormvariate(0.0, 0.6)
        ptx_mib = chance.lognormvariate(0.0, 1.2)
        phases += [
            _phase(PhaseKind.PREPROCESS, chance.uniform(60.0, 110.0), 0.3, arch=arch, tool="cc1plus"),
            _phase(PhaseKind.CICC, cicc_mib, cicc_s, arch=arch, input_mib=input_mib),
            _phase(PhaseKind.PTXAS, 45.0 + 30.6 * ptx_mib, 0.9 * ptx_mib**1.2, arch=arch, input_mib=ptx_mib),
        ]
    host_mib = max(190.0, 0.9 * front_mib - 49.0 + chance.gauss(0.0, 40.0 + 0.08 * front_mib))
    return (*phases, _host(chance, host_mib, input_mib))


def _host(chance: random.Random, peak_mib: float, input_mib: float) -> PhaseWork:
    return _phase(
        PhaseKind.HOST,
        max(120.0, peak_mib),
        peak_mib / 90.0 * chance.lognormvariate(0.0, 0.4),
        input_mib=input_mib,
        tool="cc1plus",
    )


def _phase(
    kind: PhaseKind, peak_mib: float, wall_s: float, *, arch: str = "", input_mib: float = 0.0, tool: str = ""
) -> PhaseWork:
    peak_mib = min(MOST_MIB, peak_mib)
    return PhaseWork(
        kind=kind, arch=arch, input_mib=input_mib, peak_mib=peak_mib, wall_s=wall_s, tool=tool or kind.value
    )
