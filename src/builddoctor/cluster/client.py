"""A cluster as one build sees it: its nodes, and phases that are sent to them.

Covers: the connection (Dask's client, in threads of its own), which workers are nodes of use, a phase's way there and
back, and its loss when the node goes. The bytes go from here to the node directly.
Does *not* cover: which phase goes where (``scheduler.nodes``), or its files (``cluster.parcels``).

Methods that wait are called in threads: Dask's client takes the lock of the interpreter for milliseconds at most, and
memory is watched beside it.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import itertools
import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import dask.config
import msgspec
from distributed import CancelledError, Client, Future, KilledWorker
from distributed.utils_comm import gather_from_workers

import builddoctor
from builddoctor.cluster.keys import security_for
from builddoctor.cluster.node import node_facts, run_parcel
from builddoctor.cluster.server import SETTINGS
from builddoctor.core.cluster import Answer, NodeFacts, Parcel, decoded
from builddoctor.core.errors import ClusterError

JOIN_S = 10
ASK_S = 5
"""For what the first phase needs to be known, and for what all others wait for."""
MEET_S = 1
"""Later nodes that take longer are met by the next look."""


class NodeGoneError(ClusterError):
    """The node of a phase is gone, or does not answer: the phase has to be run elsewhere."""


class SeenNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node that phases may be sent to."""

    name: str
    """for people; unique while it is there"""
    address: str
    facts: NodeFacts
    programs: frozenset[str]
    """digests of those that are the same as here"""

    @property
    def tools(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(sorted({name for name, digest in self.facts.programs if digest in self.programs}))


class Ticket:
    """One phase on its way: it can be taken back, from another thread."""

    def __init__(self) -> None:
        self.unwanted = False
        self._future: Future | None = None

    def sent(self, future: Future) -> None:
        """It is on its way; back at once, where it was taken back before."""
        self._future = future
        if self.unwanted:
            self.take_back()

    def take_back(self) -> None:
        """It is not wanted any more: its node ends it, and whoever waits for it hears of that."""
        self.unwanted = True
        if self._future is not None:
            with contextlib.suppress(Exception):
                self._future.cancel(force=True)


class Cluster:
    """The connection of one build."""

    def __init__(
        self,
        address: str,
        keys: Path,
        *,
        programs: frozenset[str],
        news: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        """Connects. ``programs``: digests of this machine's. ``news``: what else is to be said, asked at each look.

        Raises ClusterError.
        """
        self._news = news
        self._address = address
        self._programs = programs
        self._lock = threading.Lock()
        self._nodes: dict[str, SeenNode] = {}
        self._refused: dict[str, str] = {}
        self._sent: dict[str, set[Ticket]] = {}
        self._words: list[str] = []
        self._listed: concurrent.futures.Future[Collection[str]] | None = None
        self._asked: dict[str, concurrent.futures.Future[NodeFacts]] = {}
        self._silent: set[str] = set()
        self.gone = False
        """the cluster does not answer any more"""
        self._client = _connect(address, keys)

    def cores(self) -> int:
        """Of all nodes that are of use now. Waits."""
        nodes, self._words = self.look(ASK_S)
        return sum(each.facts.cores for each in nodes)

    def known(self) -> list[SeenNode]:
        """The nodes that the last look found."""
        with self._lock:
            return list(self._nodes.values())

    def look(self, within_s: float = MEET_S) -> tuple[list[SeenNode], list[str]]:
        """The nodes that are there now, and sentences on workers that are of no use, each said once. Waits, and
        so long for new ones."""
        workers = self._workers()
        words, self._words = [*self._words, *self._news()], []
        words += self._meet(workers, within_s)
        with self._lock:
            gone = self._nodes.keys() - set(workers)
            lost = [ticket for address in gone for ticket in self._sent.pop(address, ())]
            for address in gone:
                del self._nodes[address]
            nodes = list(self._nodes.values())
        for ticket in lost:
            ticket.take_back()
        return nodes, words

    def _workers(self) -> Collection[str]:
        """Addresses of all workers; none while the connection is broken, or made again."""
        if self._client.status == "running":
            if self._listed is None:
                # It waits for as long as a connection takes to come back.
                self._listed = _beside(self._list)
            with contextlib.suppress(OSError, TimeoutError, concurrent.futures.TimeoutError, CancelledError):
                concurrent.futures.wait((self._listed,), timeout=ASK_S)
                if self._listed.done():
                    listed, self._listed = self._listed, None
                    return listed.result()
        self.gone = self._client.status in ("closing", "closed")
        return ()

    def _list(self) -> Collection[str]:
        found: Collection[str] = self._client.scheduler_info(n_workers=-1)["workers"].keys()
        return found

    def refuse(self, address: str, problem: str) -> None:
        """It is of no use any more, until it comes back under another address."""
        with self._lock:
            self._refused[address] = problem
            self._nodes.pop(address, None)

    def _meet(self, workers: Collection[str], within_s: float) -> list[str]:
        """All new ones at a time: one that does not answer, or is going, costs the others nothing."""
        for address in workers:
            if address not in self._nodes and address not in self._refused and address not in self._asked:
                self._asked[address] = _beside(partial(self._ask, address))
        concurrent.futures.wait(self._asked.values(), timeout=within_s)
        answered = {address: self._asked.pop(address) for address, each in [*self._asked.items()] if each.done()}
        there = (each for each in answered.items() if each[0] in workers)
        return [text for address, each in there for text in self._met(address, each)]

    def _ask(self, address: str) -> NodeFacts:
        return said_by_node(NodeFacts, self._client.run(node_facts, workers=[address], on_error="raise")[address])

    def _met(self, address: str, asked: concurrent.futures.Future[NodeFacts]) -> list[str]:
        try:
            facts = asked.result()
        except (OSError, TimeoutError) as error:
            # Asked again by the next look.
            said = address in self._silent
            self._silent.add(address)
            return [] if said else [f"{address} does not answer: {_reason(error)}"]
        except Exception as error:  # noqa: BLE001 - whatever a stranger answers, the build goes on
            self._refused[address] = str(error)
            return [f"{address} is of no use: {_reason(error)}"]
        if problem := self._problem(facts):
            self._refused[address] = problem
            return [f"{facts.host} is of no use: {problem}"]
        with self._lock:
            names = {each.name for each in self._nodes.values()}
            name = next(each for each in _names(facts.host) if each not in names)
            same = self._programs.intersection(digest for _, digest in facts.programs)
            node = self._nodes[address] = SeenNode(name=name, address=address, facts=facts, programs=same)
        others = sorted({name for name, _ in facts.programs} - set(node.tools))
        return [f"{node.name} has other files as {', '.join(others)}: these stay here"] if others else []

    def _problem(self, facts: NodeFacts) -> str:
        if facts.builddoctor != builddoctor.__version__:
            return f"it has builddoctor {facts.builddoctor}, and this build {builddoctor.__version__}"
        if self._programs.isdisjoint(digest for _, digest in facts.programs):
            return "none of its compilers is the same file as here (another CUDA toolkit and gcc, or processor)"
        return ""

    def run(self, parcel: Parcel, address: str, ticket: Ticket) -> Answer:
        """One phase there, to its end. Waits. Raises NodeGoneError, or ClusterError for what it refused."""
        with self._lock:
            if address not in self._nodes or ticket.unwanted:
                raise NodeGoneError(f"{address} is gone")
            self._sent.setdefault(address, set()).add(ticket)
        try:
            sent = msgspec.msgpack.encode(parcel)
            there = self._client.scatter(sent, workers=[address], direct=True, hash=False)
            future = self._client.submit(
                run_parcel,
                there,
                key=f"phase-{parcel.parcel_id}",
                workers=[address],
                allow_other_workers=False,
                retries=0,
                pure=False,
            )
            ticket.sent(future)
            try:
                returned = self._fetched(future, address)
            finally:
                with self._lock:
                    self._sent.get(address, set()).discard(ticket)
        except ClusterError:
            raise
        except (CancelledError, KilledWorker, OSError, TimeoutError) as error:
            raise NodeGoneError(_reason(error)) from error
        except Exception as error:
            # Of Dask, or of a worker that is not what it says.
            raise ClusterError(_reason(error)) from error
        return answer_to(parcel, returned)

    def _fetched(self, future: Future, address: str) -> object:
        """What it came to, by itself: Dask's ``gather`` fetches in one go what is there at the same time, and an answer
        of one node that cannot be read would be told of all. Waits."""
        if (error := future.exception()) is not None:
            raise error
        if future.cancelled():
            raise NodeGoneError(f"{address} is gone")
        found, *_, failed, silent = self._client.sync(
            gather_from_workers, {future.key: [address]}, rpc=self._client.rpc
        )
        if future.key in found:
            return found[future.key]
        if failed:
            raise ClusterError("its answer cannot be read")
        raise NodeGoneError(f"{address} {'is gone' if silent else 'does not have its answer any more'}")

    def close(self) -> None:
        """Let go; what still runs there is ended by its node."""
        with self._lock:
            sent = [ticket for each in self._sent.values() for ticket in each]
        for ticket in sent:
            ticket.take_back()
        with contextlib.suppress(Exception):
            self._client.close(timeout=ASK_S)


Result = TypeVar("Result")


def _beside(call: Callable[[], Result]) -> concurrent.futures.Future[Result]:
    """In a thread that nobody waits for at the end: Dask may never answer, once its connection has been let go."""
    future: concurrent.futures.Future[Result] = concurrent.futures.Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
            future.set_exception(error)

    threading.Thread(target=run, name="cluster", daemon=True).start()
    return future


Said = TypeVar("Said", Answer, NodeFacts)


def said_by_node(kind: type[Said], said: object) -> Said:
    """What it is, before it is used. Raises ClusterError where it is not that."""
    if not isinstance(said, bytes):
        raise ClusterError(f"it answers with something that is no answer ({type(said).__name__})")
    try:
        return decoded(said, kind)
    except ClusterError as error:
        raise ClusterError(f"it answers with something that is no answer ({_reason(error)})") from error


def answer_to(parcel: Parcel, returned: object) -> Answer:
    """What a node says of this parcel. Raises ClusterError."""
    answer = said_by_node(Answer, returned)
    if answer.parcel_id != parcel.parcel_id:
        raise ClusterError("it answers with what it was sent before")
    return answer


def nodes_of(address: str, keys: Path) -> Mapping[str, NodeFacts]:
    """What ``cluster status`` shows: all nodes, by address. Raises ClusterError."""
    with contextlib.closing(_connect(address, keys)) as client:
        found: dict[str, NodeFacts] = {}
        for at, said in client.run(node_facts, on_error="ignore").items():
            with contextlib.suppress(ClusterError):
                found[at] = said_by_node(NodeFacts, said)
        return found


def _connect(address: str, keys: Path) -> Client:
    """Raises ClusterError where nobody answers, or keys are missing."""
    for name in ("distributed", "distributed.client"):
        # What becomes of nodes is told by events; tracebacks of a connection that broke, or of an answer that cannot be
        # read, are no help. Those are critical, to Dask.
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    with dask.config.set(SETTINGS):
        try:
            return Client(address, security=security_for(address, keys, "client"), timeout=JOIN_S, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            raise ClusterError(
                f"no cluster at {address}: {_reason(error)}",
                hint="start one with `builddoctor cluster serve`, or do without `--cluster`",
            ) from error


def _names(host: str) -> Iterator[str]:
    """A name, and others for workers on the same machine."""
    yield host
    yield from (f"{host}#{number}" for number in itertools.count(2))


def _reason(error: BaseException) -> str:
    return (str(error) or type(error).__name__).strip().splitlines()[0]
