"""All phases that run, and what each adds to their load: kept, since hundreds are added up at each event. Pure.

Covers: the running phases by id, and their sums.
Does *not* cover: what one is taken to need (``policy.running``), or whether another may start (``policy.room``).

Sums are made anew of kept parts, never carried on by adding and subtracting: they are exact, whatever came and went.
"""

from __future__ import annotations

from collections.abc import Callable

from builddoctor.model.phase import PhaseKind
from builddoctor.policy.running import Load, Running, risk_share

KINDS = tuple(PhaseKind)


class Runs(dict[int, Running]):
    """By phase id, in the order in which they started. Changed by the methods below alone."""

    def __init__(self) -> None:
        super().__init__()
        self._expected_mib: dict[int, float] = {}
        self._squares_mib2: dict[int, float] = {}
        self._risks: dict[PhaseKind, float] = {}
        self._killed: set[int] = set()

    @property
    def killing(self) -> bool:
        """One of them was killed, and its memory is not back yet."""
        return bool(self._killed)

    def start(self, run: Running) -> None:
        """A phase was admitted."""
        if len(self) == 1:
            # The one that ran alone has company now; of several none did.
            for other in self.values():
                other.alone = False
        self[run.phase.phase_id] = run
        self._add(run)

    def end(self, phase_id: int) -> Running | None:
        """A phase ended; None when it did not run."""
        self._killed.discard(phase_id)
        self._expected_mib.pop(phase_id, None)
        self._squares_mib2.pop(phase_id, None)
        return self.pop(phase_id, None)

    def kill(self, phase_id: int) -> Running:
        """It is to be killed; gives it."""
        run = self[phase_id]
        run.killed = True
        self._killed.add(phase_id)
        return run

    def sampled(self, run: Running, rss_mib: float, now_s: float, number: int) -> None:
        """See ``Running.sampled``."""
        if run.sampled(rss_mib, now_s, number):
            self._add(run)

    def load(self, evenness: Callable[[PhaseKind], float]) -> Load:
        """All together, for the evenness of each kind (``risk_share``)."""
        risks = {kind: risk_share(evenness(kind)) for kind in KINDS}
        if risks != self._risks:
            before, self._risks = self._risks, risks
            for run in self.values():
                if risks[run.phase.kind] != before.get(run.phase.kind):
                    self._add(run)
        return Load(len(self), sum(self._expected_mib.values()), sum(self._squares_mib2.values()), self.killing)

    def _add(self, run: Running) -> None:
        phase = run.phase
        self._expected_mib[phase.phase_id] = run.expected_mib
        self._squares_mib2[phase.phase_id] = (self._risks.get(phase.kind, 0.0) * run.spread_mib) ** 2
