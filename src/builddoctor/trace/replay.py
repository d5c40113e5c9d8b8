"""A trace replayed: the decider of today over the facts of a recorded build, beside what was decided then.

Covers: whether it decides the same, and at which event first it does not. The tool for every change of policy: what
would the new one have done in yesterday's build?
Does *not* cover: what would have happened after a different decision (``simulate`` answers that); builds replayed with
stand-ins for compilers (``scripts/replay``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast, get_args

import msgspec

from builddoctor.core.errors import TraceError
from builddoctor.core.events import BuildEvent, Decision, Event, Fact, Header
from builddoctor.estimation.estimator import LearningEstimator
from builddoctor.scheduler.scheduler import Scheduler

FACTS = get_args(Fact)
DECISIONS = get_args(Decision)


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The first fact on which the scheduler of today decides otherwise."""

    number: int
    """of the fact, from 1"""
    fact: Event
    then: tuple[Event, ...]
    """what was decided"""
    now: tuple[Event, ...]


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    facts: int
    """that were handed to the scheduler: all of them, or up to the first on which it decides otherwise"""
    decisions: int
    """that were made then, up to there"""
    difference: Difference | None = None

    @property
    def agrees(self) -> bool:
        return self.difference is None


def replay(events: Iterable[BuildEvent]) -> Replay:
    """Decide again. Raises TraceError for a trace that does not hold what was decided upon (schema 1)."""
    scheduler: Scheduler | None = None
    fact: Event | None = None
    then: list[Event] = []
    facts = decisions = 0
    whole = False
    for event in events:
        if isinstance(event, Header):
            if event.settings is None:
                raise TraceError(
                    "this trace cannot be replayed: it does not hold the facts that were decided upon",
                    hint="traces that builddoctor writes since schema 2 do; `builddoctor trace show` reads both",
                )
            scheduler = Scheduler(event.settings, LearningEstimator())
        elif isinstance(event, DECISIONS):
            then.append(event)
            decisions += 1
        elif isinstance(event, FACTS):
            if (difference := _compare(scheduler, fact, then, facts)) is not None:
                return Replay(facts=facts, decisions=decisions, difference=difference)
            fact, then = event, []
            facts += 1
        whole = not isinstance(event, (*FACTS, *DECISIONS))
    if not whole:
        # Cut off: what was decided on the last fact may be missing.
        return Replay(facts=max(0, facts - 1), decisions=decisions - len(then))
    return Replay(facts=facts, decisions=decisions, difference=_compare(scheduler, fact, then, facts))


def _compare(scheduler: Scheduler | None, fact: Event | None, then: list[Event], number: int) -> Difference | None:
    if fact is None or scheduler is None:
        return None
    now = scheduler.handle(cast(Fact, fact))
    if now == then:
        return None
    return Difference(number=number, fact=fact, then=tuple(then), now=tuple(now))
