"""A build under builddoctor with the settings that production would choose."""

from __future__ import annotations

import msgspec

from builddoctor.policy.budget import slots, window
from builddoctor.policy.estimator import Estimator, LearningEstimator
from builddoctor.policy.governor import Governor
from builddoctor.simulate.engine import simulate
from builddoctor.simulate.result import Host, Result, Rules
from builddoctor.simulate.workload import Workload


def governor(host: Host, estimator: Estimator | None = None, *, searches: bool = True) -> Governor:
    """The governor of a build on ``host``; without history unless ``estimator`` has one.

    ``searches``: it looks for a better order of units than the longest first, as production does. That takes most of a
    simulation's time, and some percent off a build's.
    """
    known = estimator or LearningEstimator()
    return Governor(known, slots=slots(host.cores), budget_mib=host.budget_mib, searches=searches)


def shipped_jobs(host: Host) -> int:
    """Units that ninja is told to keep open."""
    return window(host.cores, host.budget_mib)


def as_shipped(
    workload: Workload,
    host: Host,
    *,
    estimator: Estimator | None = None,
    rules: Rules | None = None,
    searches: bool = True,
) -> Result:
    """Governor, budget, slots and window as in production; ``rules`` are taken as they are where given."""
    if rules is None:
        rules = msgspec.structs.replace(Rules(), jobs=shipped_jobs(host))
    return simulate(workload, governor(host, estimator, searches=searches), host, rules)
