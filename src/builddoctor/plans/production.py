"""A recipe's units as builddoctor would run them on a machine: with which threads, and how fast at best. Pure.

Does *not* cover: simulating it (``plans.gated``).
"""

from __future__ import annotations

import msgspec

from builddoctor.intercept.knobs import settle
from builddoctor.model.recipe import Recipe
from builddoctor.plans.hosts import PlanHost
from builddoctor.policy.budget import window
from builddoctor.simulate.of_recipe import AROUND_S, workload
from builddoctor.simulate.workload import Workload

HELD_SHARE = 0.6
"""What a phase holds on average, as a share of its peak, and what is kept for it before it holds that."""


class Production:
    """One recipe, for any machine with pages of one size."""

    def __init__(self, recipe: Recipe, *, allowance_mib: float) -> None:
        self._recipe = recipe
        self._allowance_mib = allowance_mib
        archs = ({phase.arch for phase in unit.phases if phase.arch} for unit in recipe.units)
        self._archs = max(1, max(map(len, archs), default=1))
        self.one_thread = workload(recipe, allowance_mib=allowance_mib, around_s=AROUND_S)
        self._area = sum(phase.peak_mib * phase.wall_s for unit in self.one_thread.units for phase in unit.phases)
        self._work_s = self.one_thread.work_s
        self._longest_s = max((unit.wall_s for unit in self.one_thread.units), default=0.0)

    def threads(self, host: PlanHost) -> int:
        """nvcc's in command lines; one where no unit is for several architectures."""
        jobs = window(host.cores, host.budget_mib)
        return min(self._archs, settle({}, window=jobs, cores=host.cores, ignore_caps=False).threads)

    def work(self, host: PlanHost) -> Workload:
        """A unit at its gate gets a thread for each of its architectures, where its share of the cores allows that, and
        one where memory, and not cores, is what is short (``policy.opening``)."""
        tight = HELD_SHARE * self._area / max(host.budget_mib, 1.0) > self._work_s / host.cores
        if self._archs == 1 or tight:
            return self.one_thread
        shared = workload(
            self._recipe,
            threads=self._archs,
            cores=host.cores,
            allowance_mib=self._allowance_mib,
            around_s=AROUND_S,
        )
        # Each architecture asks for itself, so that a unit fits whose architectures do not fit together.
        pairs = zip(shared.units, self.one_thread.units, strict=True)
        units = (many if many.peak_mib <= host.budget_mib else one for many, one in pairs)
        return msgspec.structs.replace(shared, units=tuple(units))

    def bound_s(self, host: PlanHost) -> float:
        """No order is much faster, with one thread."""
        by_memory_s = HELD_SHARE * self._area / max(host.budget_mib, 1.0)
        return max(self._work_s / host.cores, by_memory_s, self._longest_s)
