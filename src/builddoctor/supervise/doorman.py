"""Stands between the governor's word and the start of a phase: another build of this machine may go first.

Covers: phases that were let start and wait all the same, in their order; this one lets all in.
Does *not* cover: why one waits (``supervise.sharing``).
"""

from __future__ import annotations

from collections.abc import Callable

from builddoctor.model.phase import Outcome
from builddoctor.policy.actions import Admit, Kill, Requeue
from builddoctor.policy.events import Event, PhaseEnded, Sampled


class Doorman:
    """All methods are called in the event loop."""

    def __init__(self) -> None:
        self.withheld: dict[int, Admit] = {}
        """admitted by the governor, and waiting for another build; oldest first"""
        self.solo: set[int] = set()
        """phases that run again alone"""

    def lets_start(self, action: Admit) -> bool:
        """Now; else it is asked about again, after every look and every end."""
        first = next(iter(self.withheld), action.phase_id)
        if first == action.phase_id and self.may_start(action):
            self.withheld.pop(action.phase_id, None)
            return True
        self.withheld.setdefault(action.phase_id, action)
        return False

    def again(self, action: Requeue) -> None:
        """A phase will be let start once more."""
        (self.solo.add if action.solo else self.solo.discard)(action.phase_id)

    def happened(self, event: Event, admit: Callable[[Admit], None]) -> list[Kill]:
        """The governor dealt with ``event``: those who wait are tried, first come first served."""
        if isinstance(event, PhaseEnded):
            if event.outcome is Outcome.WITHDRAWN:
                # Other ends are of what ran; that may have been let start again meanwhile, and wait.
                self.withheld.pop(event.phase_id, None)
            self.phase_ended()
        if not isinstance(event, PhaseEnded | Sampled):
            return []
        for action in list(self.withheld.values()):
            admit(action)
            if action.phase_id in self.withheld:
                break
        return self.gives_way(event) if isinstance(event, Sampled) else []

    def as_seen(self, ended: PhaseEnded) -> PhaseEnded:
        """What the governor hears of an end."""
        return ended

    def gives_way(self, _sampled: Sampled) -> list[Kill]:
        """Nobody is there for whom a phase must end."""
        return []

    def may_start(self, _action: Admit) -> bool:
        """No other build is in the way."""
        return True

    def phase_ended(self) -> None:
        """Memory came free."""
