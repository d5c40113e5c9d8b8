"""How builds are kept within memory without builddoctor, on the same virtual clock; a fixed ``-j`` is in ``simulate``.

Covers: the best fixed ``-j``, flash-attention's formula for it, memory per job as LLVM's and others' build files have
it, GNU parallel's ``--memfree``, and a jobserver that gives no token below a floor of free memory (as Gentoo's steve
does). Each is the kindest reading of it: memory is what the container really has, nothing else runs, nvcc has one
thread, and a scheduler that looks at free memory starts one job a look (four a second, by default), not all at once.
Does *not* cover: swap, suspending (``--memsuspend``), link pools.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from builddoctor.core.events import (
    Admit,
    Decision,
    Fact,
    GiveUp,
    Kill,
    KillReason,
    MemorySampled,
    PhaseAsked,
    PhaseEnded,
    Requeue,
    UnitEnded,
)
from builddoctor.core.phase import Phase
from builddoctor.core.verdict import Verdict
from builddoctor.simulate.baselines import KILLED, NO_ESTIMATE, fixed
from builddoctor.simulate.engine import simulate
from builddoctor.simulate.result import USUAL, Host, Result, Rules
from builddoctor.simulate.workload import Workload

FLASH_GIB_PER_THREAD = 5.0
"""flash-attention's setup.py, with NVCC_THREADS=1: min(cores / 2, GB free / 5)."""


class MemoryFloor:
    """A job starts while so much is free, or when none runs; begun, it runs on.

    ``kill_share``: with less free than this share of the floor, the youngest job is killed and begun again later (GNU
    parallel; never the only one). 0: nothing is, and a job that the kernel kills is the end (a jobserver).
    """

    suspects: frozenset[int] = frozenset()

    def __init__(self, floor_mib: float, *, kill_share: float = 0.0) -> None:
        self._floor_mib = floor_mib
        self._kill_mib = kill_share * floor_mib
        self._retries = kill_share > 0
        self._may_start = False
        self._in_line: list[Phase] = []
        self._begun: dict[str, int] = {}
        """units that have started, oldest first, with the phase that runs"""
        self._unit_of: dict[int, str] = {}
        self._killing: int | None = None

    def handle(self, event: Fact) -> Sequence[Decision]:
        if isinstance(event, PhaseAsked):
            phase = event.phase
            if phase.unit_id in self._begun:
                return [self._start(phase)]
            self._in_line.append(phase)
        elif isinstance(event, PhaseEnded):
            return self._ended(event)
        elif isinstance(event, UnitEnded):
            self._begun.pop(event.unit_id, None)
        elif isinstance(event, MemorySampled):
            self._may_start = event.headroom_mib >= self._floor_mib
            if event.headroom_mib < self._kill_mib and len(self._begun) > 1 and self._killing is None:
                self._killing = list(self._begun.values())[-1]
                return [Kill(phase_id=self._killing, reason=KillReason.HEADROOM, headroom_mib=event.headroom_mib)]
        return self._start_one()

    def _ended(self, event: PhaseEnded) -> list[Decision]:
        unit = self._unit_of.pop(event.phase_id)
        if event.phase_id == self._killing:
            self._killing = None
        if event.outcome not in KILLED:
            return []
        del self._begun[unit]
        if not self._retries:
            return [GiveUp(phase_id=event.phase_id, verdict=Verdict.EXTERNAL_KILL)]
        return [Requeue(phase_id=event.phase_id, estimate=NO_ESTIMATE, solo=False)]

    def _start_one(self) -> list[Decision]:
        if not self._in_line or self._killing is not None or (self._begun and not self._may_start):
            return []
        self._may_start = False
        return [self._start(self._in_line.pop(0))]

    def _start(self, phase: Phase) -> Admit:
        self._begun[phase.unit_id] = phase.phase_id
        self._unit_of[phase.phase_id] = phase.unit_id
        return Admit(phase_id=phase.phase_id, estimate=NO_ESTIMATE, alone=False)


def best_fixed(workload: Workload, host: Host, rules: Rules = USUAL) -> tuple[int, Result] | None:
    """The fastest ``-j`` that survives, of all up to the number of cores; None when none does, not even ``-j1``."""
    found: tuple[int, Result] | None = None
    for jobs in range(1, host.cores + 1):
        result = fixed(workload, host, jobs, rules)
        if result.completed and (found is None or result.makespan_s < found[1].makespan_s):
            found = (jobs, result)
    return found


def flash_attention_jobs(host: Host) -> int:
    """What flash-attention would choose."""
    return max(1, min(host.cores // 2, int(host.limit_mib / 1024 / FLASH_GIB_PER_THREAD)))


def memory_per_job(host: Host, per_job_mib: float) -> int:
    """What a build chooses that was told the memory of one job (LLVM_RAM_PER_COMPILE_JOB and its kin)."""
    return max(1, min(host.cores, int(host.limit_mib / per_job_mib)))


def memfree(workload: Workload, host: Host, floor_mib: float, rules: Rules = USUAL) -> Result:
    """``parallel --memfree floor --retries N -j cores``, a unit a job."""
    rules = msgspec.structs.replace(rules, jobs=host.cores, redo="unit")
    return simulate(workload, MemoryFloor(floor_mib, kill_share=0.5), host, rules)


def jobserver(workload: Workload, host: Host, floor_mib: float, rules: Rules = USUAL) -> Result:
    """A jobserver with as many tokens as cores, and none given below the floor."""
    return simulate(workload, MemoryFloor(floor_mib), host, msgspec.structs.replace(rules, jobs=host.cores))
