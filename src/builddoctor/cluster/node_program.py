"""The program of a node: a Dask worker whose tasks are phases. ``builddoctor worker`` runs it as a supervised build.

``python -m builddoctor.cluster.node_program SETTINGS``, which are a ``NodeSettings`` as JSON.
Ends with 0 when it is told to (SIGTERM, SIGINT), with 1 when there is no cluster, or none any more.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from pathlib import Path

import dask.config
import msgspec
from distributed import Worker
from distributed.security import Security

import builddoctor
from builddoctor.cluster.keys import security_for
from builddoctor.cluster.node import Node, NodeProgram, check_disk, file_state
from builddoctor.cluster.parcels import digests_of
from builddoctor.cluster.server import NO_PAGES, SETTINGS, quiet
from builddoctor.core.cluster import NodeFacts
from builddoctor.core.errors import ClusterError
from builddoctor.scheduler.budget import allowance
from builddoctor.system.memory_sensor import MemorySensor
from builddoctor.system.root import SystemRoot
from builddoctor.system.user_folders import HeldFolder

JOIN_S = 30
TOLD_BY = (signal.SIGINT, signal.SIGTERM)
PLACES = {"cudafe++": "bin/cudafe++", "ptxas": "bin/ptxas", "cicc": "nvvm/bin/cicc"}


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a node is started with."""

    address: str
    keys: str
    """folder of the cluster's keys"""
    cores: int
    memory_mib: float | None = None
    cuda: tuple[tuple[str, str], ...]
    """(name, path) of the toolkit's programs"""
    host: tuple[tuple[str, str], ...]
    """(place below the host overlay's ``gcc``, path) of the programs inside gcc"""


def main(argv: list[str]) -> int:
    """Serve until told to end."""
    return serve(msgspec.json.decode(argv[1], type=NodeSettings), SystemRoot(), Node)


def serve(settings: NodeSettings, root: SystemRoot, kind: type[Node]) -> int:
    """The same, on another system: a replay counts its memory up to full size."""
    quiet()
    # Told to end before it serves: its folder goes as well.
    signal.signal(signal.SIGTERM, _end)
    with dask.config.set(SETTINGS), HeldFolder(tempfile.gettempdir(), "builddoctor-node-", root) as folder:
        try:
            check_disk(folder)
        except OSError as error:
            raise ClusterError(
                error.strerror or str(error), hint="name a folder with more room, `export TMPDIR=/some/folder`"
            ) from error
        node = _node(settings, folder, root, kind)
        security = security_for(settings.address, Path(settings.keys), "node")
        return asyncio.run(_serve(node, settings.address, security, folder))


def _end(*_: object) -> None:
    _heed_no_more()
    sys.exit(0)


def _heed_no_more() -> None:
    """Told once is enough: told again, a node that removes its folder would leave it. Ignored by the kernel, unlike a
    build's (``gates.own_signals``): nothing is started any more that would ignore them too, and no flood slows it."""
    for number in TOLD_BY:
        signal.signal(number, signal.SIG_IGN)


def _node(settings: NodeSettings, folder: Path, root: SystemRoot, kind: type[Node]) -> Node:
    # In a supervised build nvcc is a gate, and so is what lies beside it; gcc's programs come from the first folder.
    overlay = Path(os.environ.get("CUDACXX", "")).parent.parent
    inside_gcc = Path(os.environ.get("COMPILER_PATH", "").split(":")[0])
    places = [(path, str(overlay / PLACES[name])) for name, path in settings.cuda]
    places += [(path, str(inside_gcc / place)) for place, path in settings.host]
    gated = {path: NodeProgram(gate=gate, path=path, state_at_start=file_state(path)) for path, gate in places}
    programs = {digest: gated[path] for digest, path in digests_of(gated).items()}
    reading = MemorySensor(root, env=os.environ, user_limit_mib=settings.memory_mib).read(0.0)
    facts = NodeFacts(
        host=os.uname().nodename,
        builddoctor=builddoctor.__version__,
        machine=os.uname().machine,
        programs=tuple((os.path.basename(each.gate), digest) for digest, each in programs.items()),
        cores=settings.cores,
        budget_mib=round(allowance(reading, 0.0).budget_mib, 1),
    )
    return kind(facts, programs, os.environ, folder, say)


def say(text: str) -> None:
    """On the node's own screen, which is the output of a build."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


async def _serve(node: Node, address: str, security: Security | None, folder: Path) -> int:
    worker = Worker(
        address,
        # Phases that have arrived wait at their gates here: the next one is at hand when one ends.
        nthreads=2 * node.facts.cores,
        memory_limit=0,
        security=security or Security(),
        local_directory=str(folder),
        dashboard=False,
        dashboard_address=NO_PAGES,
        plugins=(node,),
        death_timeout=JOIN_S,
    )
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in TOLD_BY:
        # Not the loop's own: when those are taken back, the next signal ends the process at once.
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(told.set))
    try:
        return await _until_told(worker, told, node, address)
    finally:
        _heed_no_more()


async def _until_told(worker: Worker, told: asyncio.Event, node: Node, address: str) -> int:
    end = asyncio.ensure_future(told.wait())
    joined = asyncio.ensure_future(worker)
    await asyncio.wait((joined, end), timeout=JOIN_S, return_when=asyncio.FIRST_COMPLETED)
    if not joined.done() and end.done():
        # It may wait for one that is gone as well: whoever ends nodes does not wait as long.
        return 0
    try:
        await asyncio.wait_for(joined, 0)
    except (OSError, TimeoutError, asyncio.TimeoutError) as error:
        why = str(error) or f"no answer in {JOIN_S} s"
        say(f"no cluster at {address}: {why}; is `builddoctor cluster serve` running there?")
        return 1
    say(f"serves {address} as {worker.address}: {node.facts.cores} cores, {node.facts.budget_mib:.0f} MiB")
    gone = asyncio.ensure_future(worker.finished())
    await asyncio.wait((gone, end), return_when=asyncio.FIRST_COMPLETED)
    if not told.is_set():
        say("the cluster is gone")
        return 1
    await worker.close(timeout=5, reason="told to end")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv))
    except ClusterError as problem:
        say(f"{problem}; {problem.hint}")
        sys.exit(ClusterError.exit_code)
