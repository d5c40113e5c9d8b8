"""How a build is kept within memory without builddoctor, on the same virtual clock: by a fixed ``-j``."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from builddoctor.core.events import (
    Admit,
    Decision,
    Fact,
    GiveUp,
    PhaseAsked,
    PhaseEnded,
)
from builddoctor.core.phase import Estimate, Outcome
from builddoctor.core.verdict import Verdict
from builddoctor.simulate.engine import simulate
from builddoctor.simulate.result import USUAL, Host, Result, Rules
from builddoctor.simulate.workload import Workload

NO_ESTIMATE = Estimate(peak_mib=0.0, spread_mib=0.0, source="none")

KILLED = (Outcome.KILLED_BY_KERNEL, Outcome.KILLED_BY_US, Outcome.KILLED_OUTSIDE)


class FixedJobs:
    """Whatever asks starts; a killed compiler is the end of the build."""

    suspects: frozenset[int] = frozenset()

    def handle(self, event: Fact) -> Sequence[Decision]:
        if isinstance(event, PhaseAsked):
            return [Admit(phase_id=event.phase.phase_id, estimate=NO_ESTIMATE, alone=False)]
        if isinstance(event, PhaseEnded) and event.outcome in KILLED:
            return [GiveUp(phase_id=event.phase_id, verdict=Verdict.EXTERNAL_KILL)]
        return []


def fixed(workload: Workload, host: Host, jobs: int, rules: Rules = USUAL) -> Result:
    """ninja ``-j jobs``."""
    return simulate(workload, FixedJobs(), host, msgspec.structs.replace(rules, jobs=jobs))
