"""Other machines that run phases of this build: what is free there, and which phase goes where. Pure.

Covers: nodes as they come, change and go; the phases that were sent to each. A node has its own scheduler, which starts
nothing that does not fit there beside whatever else it runs: what is counted here is only what this build has sent.
Does *not* cover: when a phase is offered (``scheduler.scheduler``: local first), or sending it (``runtime.away``).
"""

from __future__ import annotations

import math

import msgspec

from builddoctor.core.events import NodeSeen
from builddoctor.scheduler.wait_queue import Waiting


class Away(msgspec.Struct, frozen=True):
    """A phase that runs on a node."""

    waiting: Waiting
    node: str
    sent_at_s: float


class _Node(msgspec.Struct):
    cores: int
    budget_mib: float
    tools: frozenset[str]
    phases: dict[int, float]
    """MiB set aside for each"""

    @property
    def free_mib(self) -> float:
        return self.budget_mib - sum(self.phases.values())


class Nodes:
    """Those that are there, and what runs on them."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}
        self._away: dict[int, Away] = {}
        self.were_there = False
        """some node was, at some time"""

    def __bool__(self) -> bool:
        return bool(self._nodes)

    def __len__(self) -> int:
        """Phases that run there."""
        return len(self._away)

    def __contains__(self, phase_id: int) -> bool:
        return phase_id in self._away

    @property
    def cores(self) -> int:
        """Of all of them."""
        return sum(node.cores for node in self._nodes.values())

    @property
    def units(self) -> set[str]:
        """Those with a phase there."""
        return {away.waiting.phase.unit_id for away in self._away.values()}

    def largest_mib(self, tool: str) -> float:
        """The budget of the largest that runs this program; 0 without any."""
        return max((node.budget_mib for node in self._nodes.values() if tool in node.tools), default=0.0)

    def budget_mib(self, name: str) -> float:
        """Of a node; 0 of one that is gone."""
        node = self._nodes.get(name)
        return 0.0 if node is None else node.budget_mib

    def seen(self, event: NodeSeen) -> None:
        """A node came, or its size has changed."""
        self.were_there = True
        known = self._nodes.get(event.node)
        phases = {} if known is None else known.phases
        self._nodes[event.node] = _Node(event.cores, event.budget_mib, frozenset(event.tools), phases)

    def lost(self, name: str) -> None:
        """It gets no more; the phases that were there end, one by one, with outcomes of their own."""
        self._nodes.pop(name, None)

    def place_for(self, waiting: Waiting, *, at_any_price: bool) -> str | None:
        """The node that should run this phase now; None where none can.

        One that has nothing else of ours takes what is only expected to fit, and not sure to: as alone as a phase can
        be there. ``at_any_price``: this machine cannot hold it; then the largest takes it beyond its budget, too.
        """
        estimate, tool = waiting.estimate, waiting.phase.tool
        largest_mib = self.largest_mib(tool) if at_any_price else math.inf
        found: list[tuple[bool, float, float, str]] = []
        for name, node in self._nodes.items():
            if tool not in node.tools or len(node.phases) >= node.cores:
                continue
            fits = estimate.reserve_mib <= node.free_mib
            alone = not node.phases and (estimate.peak_mib <= node.budget_mib or node.budget_mib >= largest_mib)
            if fits or alone:
                found.append((not fits, len(node.phases) / node.cores, -node.free_mib, name))
        return min(found)[3] if found else None

    def send(self, waiting: Waiting, name: str, now_s: float) -> None:
        """It goes there, or is taken from the store."""
        phase_id = waiting.phase.phase_id
        if (node := self._nodes.get(name)) is not None:
            # The store holds no memory of any machine.
            node.phases[phase_id] = waiting.estimate.reserve_mib
        self._away[phase_id] = Away(waiting, name, now_s)

    def end(self, phase_id: int) -> Away | None:
        """It has come back, one way or another; None for one that was not away."""
        away = self._away.pop(phase_id, None)
        if away is not None and (node := self._nodes.get(away.node)) is not None:
            node.phases.pop(phase_id, None)
        return away
