"""Phases of this build that other machines run: sent, waited for, and put where they would have been written.

Covers: nodes that come and go, as facts; one phase's way there and back, in a thread; what is made of each way in which
that may fail. A failure there is never the build's: the phase is run again.
Does *not* cover: which phase goes where (``scheduler.nodes``), or the transport (``cluster``).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from builddoctor.cluster.client import Cluster, NodeGoneError, SeenNode, Ticket
from builddoctor.cluster.node import killed_for_memory
from builddoctor.cluster.parcels import ProgramDigests, digests_of, pack, unpack
from builddoctor.core.errors import ClusterError
from builddoctor.core.events import NodeLost, NodeSeen
from builddoctor.core.phase import Outcome
from builddoctor.core.toolchain import HostCompiler, Toolkit
from builddoctor.gates.protocol import Asked
from builddoctor.runtime.sent_phases import LOST, Load, Returned
from builddoctor.toolchain.command_lines import parse_sizes
from builddoctor.toolchain.travelling import CUDA_TRAVELLERS, TRAVELLERS, as_if_in, travelling, travelling_source

LOOK_EVERY_S = 1.0
MOST_AWAY = 256
"""Threads, each of which waits for one phase."""
MOST_PACKED = 4
"""Files in memory are those of so many phases at a time."""


async def until_set(event: asyncio.Event, within_s: float) -> None:
    """Until it is set, or so long. Before Python 3.12 ``asyncio.wait_for`` loses a cancellation that comes together
    with what it waits for (python/cpython#86296): who is told to end then would go on for ever."""
    waits = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait((waits,), timeout=within_s)
    finally:
        waits.cancel()


def join(
    address: str,
    keys: str,
    toolkit: Toolkit,
    compilers: Sequence[HostCompiler],
    *,
    news: Callable[[], Sequence[str]] = tuple,
) -> Cluster:
    """The cluster there, and who is in it. ``news``: sentences on nodes that never came. Raises ClusterError."""
    inner = (program for compiler in compilers for program in compiler.programs)
    named = (*toolkit.tools, ("cicc", toolkit.cicc), *inner)
    programs = frozenset(digests_of(path for name, path in named if name in TRAVELLERS))
    return Cluster(address, Path(keys), programs=programs, news=news)


class Elsewhere:
    """The nodes of one build. Its methods are called in the event loop; what waits, waits in threads."""

    def __init__(self, cluster: Cluster, *, tell: Callable[[str], None]) -> None:
        """``tell``: a warning for the user."""
        self._cluster = cluster
        self._tell = tell
        self._nodes: dict[str, SeenNode] = {}
        self._over = False
        self._wake = asyncio.Event()
        self._asked: list[asyncio.Future[None]] = []
        """phases that wait for the next look"""
        self._programs = ProgramDigests()
        self._threads = ThreadPoolExecutor(MOST_AWAY, thread_name_prefix="away")
        self._packing = threading.Semaphore(MOST_PACKED)

    async def watch(self, decide: Callable[[NodeSeen | NodeLost], None], at_s: Callable[[], float]) -> None:
        """Look for nodes, for ever; ``decide`` is given each that comes or goes. Cancelled, it lets all go."""
        try:
            # Before the first phase asks: where no other place is known, it runs here, alone and beyond the budget.
            self._settle(self._cluster.known(), decide, at_s)
            while not self._over:
                asked, self._asked = self._asked, []
                self._wake.clear()
                try:
                    await self._look(decide, at_s)
                finally:
                    for each in asked:
                        each.set_result(None)
                await until_set(self._wake, LOOK_EVERY_S)
        finally:
            self._over = True
            for each in self._asked:
                each.set_result(None)
            self._close()

    async def _look(self, decide: Callable[[NodeSeen | NodeLost], None], at_s: Callable[[], float]) -> None:
        nodes, words = await asyncio.get_running_loop().run_in_executor(self._threads, self._cluster.look)
        for text in words:
            self._tell(text)
        self._settle(nodes, decide, at_s)
        if self._cluster.gone:
            self._over = True
            self._tell("the cluster is gone: the build goes on by itself")

    async def _another_look(self) -> None:
        """Until it is known who is left: a phase that was lost is to be placed by that."""
        if not self._over:
            asked = asyncio.get_running_loop().create_future()
            self._asked.append(asked)
            self._wake.set()
            await asyncio.wait((asked,))

    def _settle(
        self, nodes: Sequence[SeenNode], decide: Callable[[NodeSeen | NodeLost], None], at_s: Callable[[], float]
    ) -> None:
        there = {each.name: each for each in nodes}
        for name in self._nodes.keys() - there.keys():
            del self._nodes[name]
            decide(NodeLost(at_s=at_s(), node=name))
        for name, node in there.items():
            if name not in self._nodes:
                self._nodes[name] = node
                facts = node.facts
                seen = NodeSeen(
                    at_s=at_s(), node=name, cores=facts.cores, budget_mib=facts.budget_mib, tools=node.tools
                )
                decide(seen)

    @staticmethod
    def can_send(asked: Asked) -> bool:
        """Another machine can run it, as far as its command tells."""
        if asked.tool not in TRAVELLERS:
            return False
        files = {asked.argv[index] for index in parse_sizes(asked.sizes) if index < len(asked.argv)}
        if asked.tool in CUDA_TRAVELLERS:
            return travelling(asked.tool, asked.argv, files.__contains__) is not None
        source = travelling_source(asked.tool, asked.argv, files.__contains__, preprocessed=".ii")
        return source is not None and asked.redoable

    async def run(self, load: Load, node: str) -> Returned:
        """One phase there, to its end. Cancelled, it is taken back, and nothing is written here."""
        seen = self._nodes.get(node)
        if seen is None:
            return LOST
        ticket = Ticket()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._carry, load, seen, ticket)
        except asyncio.CancelledError:
            self._threads.submit(ticket.take_back)
            raise
        except NodeGoneError:
            await self._another_look()
            return LOST
        except ClusterError as error:
            # It answers, and not as a node does.
            self._cluster.refuse(seen.address, str(error))
            self._tell(f"{node} gets nothing more: {error}")
            await self._another_look()
            return LOST
        except OSError as error:
            self._tell(f"a phase could not be sent, or its files not be written: {error}")
            return LOST

    def _carry(self, load: Load, node: SeenNode, ticket: Ticket) -> Returned:
        """In a thread."""
        phase = load.phase
        program = self._programs.of(load.program)
        if program not in node.programs:
            raise NodeGoneError(f"{node.name} has another {phase.tool}")
        with self._packing:
            parcel = pack(phase, load.cwd, program)
        answer = self._cluster.run(parcel, node.address, ticket)
        printed = as_if_in(answer.printed, answer.folder, [*phase.inputs, *phase.outputs])
        returned = Returned(
            outcome=Outcome.FAILED,
            status=answer.status,
            printed=printed,
            peak_mib=answer.peak_mib,
            cpu_s=answer.cpu_s,
            # What it waited for there is time on its way.
            wall_s=min(answer.wall_s, answer.cpu_s),
            sent_mib=parcel.packed_mib,
            back_mib=answer.packed_mib,
        )
        if killed_for_memory(answer.status):
            return msgspec.structs.replace(returned, outcome=Outcome.KILLED_THERE)
        if answer.status != 0:
            return returned
        with self._packing:
            if ticket.unwanted:
                raise NodeGoneError("no longer wanted")
            unpack(answer, phase, load.cwd)
        return msgspec.structs.replace(returned, outcome=Outcome.OK)

    def _close(self) -> None:
        self._cluster.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
