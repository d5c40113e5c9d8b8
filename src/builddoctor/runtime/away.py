"""Phases of this build that other machines run: sent, waited for, and put where they would have been written.

Covers: nodes that come and go, as facts; one phase's way there and back, in a thread; what is made of each way in which
that may fail. A failure there is never the build's: the phase is run again.
Does *not* cover: which phase goes where (``scheduler.nodes``), or the transport (``cluster``).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from builddoctor.cluster.client import Cluster, NodeGoneError, SeenNode, Ticket
from builddoctor.cluster.node import killed_for_memory
from builddoctor.cluster.parcels import pack, program_digest, unpack
from builddoctor.core.errors import ClusterError
from builddoctor.core.events import NodeLost, NodeSeen, PhaseEnded
from builddoctor.core.phase import Outcome
from builddoctor.core.request import RunRequest
from builddoctor.core.toolchain import HostCompiler, Toolkit
from builddoctor.gates.phase_replay import PhaseCall
from builddoctor.gates.protocol import Asked
from builddoctor.toolchain.command_lines import parse_sizes
from builddoctor.toolchain.options import first_value
from builddoctor.toolchain.travelling import (
    CUDA_TRAVELLERS,
    TRAVELLERS,
    Travelling,
    as_if_in,
    travelling,
    travelling_source,
)

LOOK_EVERY_S = 1.0
MOST_AWAY = 256
"""Threads, each of which waits for one phase."""
MOST_PACKED = 4
"""Files in memory are those of so many phases at a time."""


class Returned(msgspec.Struct, frozen=True, kw_only=True):
    """How a phase came back."""

    outcome: Outcome
    status: int = 0
    """wait status, where it ended there"""
    printed: bytes = b""
    peak_mib: float = 0.0
    cpu_s: float = 0.0
    wall_s: float = 0.0
    sent_mib: float = 0.0
    back_mib: float = 0.0

    def ended(self, phase_id: int, node: str, *, at_s: float, away_s: float) -> PhaseEnded:
        """As a fact."""
        by_itself = self.outcome in (Outcome.OK, Outcome.FAILED)
        return PhaseEnded(
            at_s=at_s,
            phase_id=phase_id,
            outcome=self.outcome,
            peak_mib=round(self.peak_mib, 1),
            wall_s=round(self.wall_s, 3),
            cpu_s=round(self.cpu_s, 3),
            exit_code=os.WEXITSTATUS(self.status) if by_itself and os.WIFEXITED(self.status) else None,
            signal=os.WTERMSIG(self.status) if by_itself and os.WIFSIGNALED(self.status) else None,
            node=node,
            sent_mib=round(self.sent_mib, 3),
            back_mib=round(self.back_mib, 3),
            transfer_s=round(max(0.0, away_s - self.wall_s), 3),
        )


LOST = Returned(outcome=Outcome.NODE_LOST)


def join(request: RunRequest, toolkit: Toolkit, compilers: Sequence[HostCompiler]) -> Cluster:
    """The cluster that the user named, and who is there. Raises ClusterError."""
    inner = (program for compiler in compilers for program in compiler.programs)
    named = (*toolkit.tools, ("cicc", toolkit.cicc), *inner)
    programs = frozenset(program_digest(path) for name, path in named if name in TRAVELLERS)
    return Cluster(request.cluster, Path(request.cluster_keys), programs=programs)


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """A phase that is about to be sent."""

    phase: Travelling
    cwd: str
    program: str
    """path of the program itself"""
    before: tuple[str, ...] = ()
    """with these arguments it has to run here first: it preprocesses"""
    preprocessed: str = ""
    """the file that it writes then, which nobody else wants"""


def load_of(call: PhaseCall, number: int) -> Load | None:
    """What is sent of a phase; None where it has to stay after all. ``number``: makes the file's name its own."""

    def is_file(path: str) -> bool:
        return os.path.isfile(os.path.join(call.cwd, path))

    if call.name in CUDA_TRAVELLERS:
        phase = travelling(call.name, call.argv, is_file)
        return None if phase is None else Load(phase=phase, cwd=call.cwd, program=call.tool)
    # Beside the assembler code, among gcc's temporary files.
    beside = os.path.dirname(first_value(call.argv, "-o"))
    path = os.path.join(beside, f".builddoctor-{os.getpid()}-{number}.ii")
    source = travelling_source(call.name, call.argv, is_file, preprocessed=path)
    if source is None:
        return None
    return Load(phase=source.phase, cwd=call.cwd, program=call.tool, before=source.before, preprocessed=path)


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
        self._digests: dict[str, str] = {}
        """of programs, by path"""
        self._threads = ThreadPoolExecutor(MOST_AWAY, thread_name_prefix="away")
        self._packing = threading.Semaphore(MOST_PACKED)

    async def watch(self, decide: Callable[[NodeSeen | NodeLost], None], at_s: Callable[[], float]) -> None:
        """Look for nodes, for ever; ``decide`` is given each that comes or goes. Cancelled, it lets all go."""
        try:
            while not self._over:
                asked, self._asked = self._asked, []
                self._wake.clear()
                try:
                    await self._look(decide, at_s)
                finally:
                    for each in asked:
                        each.set_result(None)
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), LOOK_EVERY_S)
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
            return LOST
        except OSError as error:
            self._tell(f"a phase could not be sent, or its files not be written: {error}")
            return LOST

    def _carry(self, load: Load, node: SeenNode, ticket: Ticket) -> Returned:
        """In a thread."""
        phase = load.phase
        program = self._digests.get(load.program) or program_digest(load.program)
        self._digests[load.program] = program
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
