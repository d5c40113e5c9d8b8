"""A build under builddoctor with the settings that production would choose."""

from __future__ import annotations

import msgspec

from builddoctor.policy.budget import slots, window
from builddoctor.policy.estimator import Estimator, LearningEstimator
from builddoctor.policy.governor import Governor
from builddoctor.simulate.engine import simulate
from builddoctor.simulate.result import Host, Result, Rules
from builddoctor.simulate.workload import Workload


def governor(host: Host, estimator: Estimator | None = None) -> Governor:
    """The governor of a build on ``host``; without history unless ``estimator`` has one."""
    return Governor(estimator or LearningEstimator(), slots=slots(host.cores), budget_mib=host.budget_mib)


def shipped_jobs(host: Host) -> int:
    """Units that ninja is told to keep open."""
    return window(host.cores, host.budget_mib)


def as_shipped(
    workload: Workload, host: Host, *, estimator: Estimator | None = None, rules: Rules | None = None
) -> Result:
    """Governor, budget, slots and window as in production; ``rules`` are taken as they are where given."""
    if rules is None:
        rules = msgspec.structs.replace(Rules(), jobs=shipped_jobs(host))
    return simulate(workload, governor(host, estimator), host, rules)
