"""Builds that nobody measured, of any size: a heavy-tailed mix as in TransformerEngine 2.8 (sm_100).

Of its 65 units 15 % are heavy (front end 1.4 to 1.8 GiB, ``cicc`` 2.5 to 4.1 GiB), 23 % are host code alone, and the
rest stays below 0.7 GiB but for a few whose ``ptxas`` is large. Peaks of ``cicc``, ``ptxas`` and the host compiler
follow the fits of ``policy.priors`` with the residuals' spread, so that an estimator meets the errors it would meet.
Does *not* cover: links, and what other projects look like.
"""

from __future__ import annotations

import random

from builddoctor.model.phase import PhaseKind
from builddoctor.simulate.workload import PhaseWork, UnitWork, Workload

HEAVY_SHARE = 0.15
HOST_SHARE = 0.23
MOST_MIB = 6000.0


def generated(units: int, *, seed: int, archs: int = 1) -> Workload:
    """``units`` units for ``archs`` device architectures each; the same for the same arguments."""
    chance = random.Random(seed)  # noqa: S311 - a seed for repeatable figures, no secret
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
