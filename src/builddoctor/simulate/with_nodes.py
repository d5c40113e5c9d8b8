"""A build with other machines, on a virtual clock: what they can run, what the way there takes, who is there.

Does *not* cover: which phase goes where (``scheduler.nodes``, the same code as in production).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from builddoctor.core.events import NodeSeen
from builddoctor.core.phase import PhaseKind
from builddoctor.core.plan import PlanNode
from builddoctor.simulate.result import Rules

PORTABLE = frozenset((PhaseKind.CUDAFE, PhaseKind.CICC, PhaseKind.PTXAS, PhaseKind.HOST))

WAY_S = 0.15
"""The most that a phase of the example took beside its compile, to a node on the loopback and back."""

WAY_S_PER_MIB = 0.006
"""Packed at 200 MiB/s, a tenth of it sent at 1 Gbit/s."""


def with_ways(rules: Rules) -> Rules:
    """The same, with phases that can be sent."""
    return msgspec.structs.replace(rules, portable=PORTABLE, way_s=WAY_S, way_s_per_mib=WAY_S_PER_MIB)


def all_seen(nodes: Sequence[PlanNode]) -> list[NodeSeen]:
    """They are there when the build begins, with the same programs."""
    tools = tuple(kind.value for kind in PORTABLE)
    return [
        NodeSeen(node=f"node{number}", cores=node.cores, budget_mib=node.budget_mib, tools=tools)
        for number, node in enumerate(nodes)
    ]
