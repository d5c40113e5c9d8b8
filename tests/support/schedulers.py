"""Short ways to drive a scheduler: made from settings, told an event at a time."""

from __future__ import annotations

from typing import Any

import msgspec

from builddoctor.core.events import Decision, Fact, Queue
from builddoctor.core.settings import SchedulerSettings
from builddoctor.estimation.estimator import Estimator
from builddoctor.scheduler.scheduler import Scheduler


def scheduler_of(estimator: Estimator, **settings: Any) -> Scheduler:
    """A scheduler with these settings."""
    return Scheduler(SchedulerSettings(**settings), estimator)


def handle(scheduler: Any, event: Fact, now_s: float) -> list[Decision]:
    """Hand it this event at this time; what it decides, but for the ``Queue`` that follows every question."""
    decisions = scheduler.handle(msgspec.structs.replace(event, at_s=now_s))
    return [each for each in decisions if not isinstance(each, Queue)]
