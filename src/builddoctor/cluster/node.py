"""A node of a cluster: what it can do, and one phase run there.

Covers: the node as a plug-in of a Dask worker; each phase in a folder of its own, which is gone afterwards; refusing
what no build of ours sends, or what was sent before; when its own answer would not be right: a program that is another
by now, a full disk. The node is itself a supervised build, whose gates ask for the phases' memory: its own
scheduler has the last word, beside whatever else runs on that machine.
Does *not* cover: the worker's start (``cluster.node_program``).
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
from distributed import Worker, WorkerPlugin, get_worker

from builddoctor.cluster.parcels import content_of, pack_file
from builddoctor.core.cluster import FOLDER, Answer, NodeFacts, Parcel, decoded
from builddoctor.core.errors import ClusterError
from builddoctor.core.units import printable
from builddoctor.gates.lone_phase import run_lone
from builddoctor.toolchain.travelling import is_plain_name, keeps_to_folder

NAME = "builddoctor"
"""Of the plug-in, by which a task finds it."""

LEAST_FREE_MIB = 256
"""With less on its disk a phase that has ended proves nothing: on a full one ptxas 13.0 writes half a cubin and ends
well, and cicc crashes. More than a phase writes, since what failed may have been removed."""

MOST_REMEMBERED = 100_000
"""Parcels: a day of them at one in a second."""


def check_disk(folder: Path) -> None:
    """Raises OSError where it is full, or nearly so."""
    disk = os.statvfs(folder)
    free_mib = disk.f_bavail * disk.f_frsize // 2**20
    if free_mib < LEAST_FREE_MIB:
        raise OSError(errno.ENOSPC, f"its disk is full: {free_mib} MiB are free in {folder} (least: {LEAST_FREE_MIB})")


class NodeProgram(msgspec.Struct, frozen=True, kw_only=True):
    """One of its programs."""

    gate: str
    path: str
    """of the program itself"""
    state_at_start: tuple[int, ...]
    """``file_state`` when its digest was made"""

    @property
    def is_another(self) -> bool:
        """Since then."""
        return file_state(self.path) != self.state_at_start


def file_state(path: str) -> tuple[int, ...]:
    """It changes with the file; empty where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


class Node(WorkerPlugin):  # type: ignore[misc]
    """This machine, for the builds of others."""

    name = NAME

    def __init__(
        self,
        facts: NodeFacts,
        programs: Mapping[str, NodeProgram],
        env: Mapping[str, str],
        folder: Path,
        say: Callable[[str], None],
    ) -> None:
        """``programs``: by their digests. ``folder``: in which phases have theirs."""
        self.facts = facts
        self._programs = dict(programs)
        self._lock = threading.Lock()
        self._taken: dict[str, None] = {}
        self._env = dict(env)
        self._folder = folder
        self._say = say

    def read(self, sent: bytes) -> Parcel:
        """What a build sent. Raises ClusterError."""
        try:
            return decoded(sent, Parcel)
        except ClusterError as error:
            self._say(f"refused: something that is no phase ({error})")
            raise ClusterError(f"{self.facts.host} refuses this phase: it is none") from error

    def run(self, parcel: Parcel, wanted: Callable[[], bool]) -> Answer:
        """Run one phase to its end. Raises ClusterError for what it does not, or cannot, run."""
        if problem := self._problem(parcel):
            self._say(f"refused: {problem}")
            raise ClusterError(f"{self.facts.host} refuses this phase: {problem}")
        try:
            return self._run(parcel, wanted)
        except OSError as error:
            why = error.strerror or str(error)
            self._say(f"cannot run {parcel.tool}: {why}")
            raise ClusterError(f"{self.facts.host} cannot run it: {why}") from error

    def _run(self, parcel: Parcel, wanted: Callable[[], bool]) -> Answer:
        program = self._programs[parcel.program]
        folder = tempfile.mkdtemp(prefix="phase-", dir=self._folder)
        try:
            for file in parcel.inputs:
                Path(folder, file.name).write_bytes(content_of(file))
            words = [word.replace(FOLDER, folder, 1) if word.startswith(FOLDER) else word for word in parcel.words]
            run = run_lone([program.gate, *words], env=self._env, cwd=folder, wanted=wanted)
            if run.status is None:
                raise ClusterError("no longer wanted")
            if told_to_end(run.status):
                # A node that is going ends its compilers first: the answer could still arrive.
                raise ClusterError(f"{parcel.tool} was told to end (signal {os.WTERMSIG(run.status)})")
            # Looked at afterwards: whenever it came about, the answer would not be right.
            check_disk(self._folder)
            if program.is_another:
                raise OSError(errno.ESTALE, f"{parcel.tool} is another file than when this node joined")
            outputs = [Path(folder, name) for name in parcel.outputs] if run.status == 0 else []
            return Answer(
                parcel_id=parcel.parcel_id,
                status=run.status,
                printed=run.printed,
                outputs=tuple(pack_file(path.name, path.read_bytes()) for path in outputs if path.is_file()),
                folder=folder,
                peak_mib=round(run.peak_mib, 1),
                cpu_s=round(run.cpu_s, 3),
                wall_s=round(run.wall_s, 3),
            )
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _problem(self, parcel: Parcel) -> str:
        """Why this is no phase that a build sent; empty where it is one, which is then taken."""
        program = self._programs.get(parcel.program)
        if program is None or os.path.basename(program.gate) != parcel.tool:
            return f"this {printable(parcel.tool)} is not here"
        for name in [*(file.name for file in parcel.inputs), *parcel.outputs]:
            if not is_plain_name(name):
                return f"a file outside its folder: {printable(name)}"
        if not keeps_to_folder(parcel.tool, parcel.words):
            return f"its command names files outside its folder: {printable(' '.join(parcel.words))[:200]}"
        return "" if self._takes(parcel.parcel_id) else f"it was sent before: {printable(parcel.parcel_id)}"

    def _takes(self, parcel_id: str) -> bool:
        """For the first time. Two threads may ask of the same one at once."""
        with self._lock:
            if parcel_id in self._taken:
                return False
            if len(self._taken) >= MOST_REMEMBERED:
                del self._taken[next(iter(self._taken))]
            self._taken[parcel_id] = None
            return True


def run_parcel(sent: bytes) -> bytes:
    """The task of a phase, on the worker: an encoded ``Parcel``, and its ``Answer``. Raises ClusterError."""
    worker = get_worker()
    key = worker.get_current_task()

    def wanted() -> bool:
        # Dask takes a task back by its state alone: its build has ended, or its client is gone.
        task = worker.state.tasks.get(key)
        return task is not None and task.state == "executing"

    node = node_of(worker)
    return msgspec.msgpack.encode(node.run(node.read(sent), wanted))


def node_facts(dask_worker: Worker) -> bytes:
    """``NodeFacts``, encoded: asked by a build of each worker that it sees; the argument's name is Dask's."""
    return msgspec.msgpack.encode(node_of(dask_worker).facts)


def node_of(worker: Worker) -> Node:
    """Raises ClusterError for a worker that is none of ours."""
    node = worker.plugins.get(NAME)
    if not isinstance(node, Node):
        raise ClusterError(f"{worker.address} is no builddoctor node: it was not started by `builddoctor worker`")
    return node


def told_to_end(status: int) -> bool:
    """By another process: it says nothing of what was compiled."""
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def killed_for_memory(status: int) -> bool:
    """A phase that its node could not hold: its gate died as its program did."""
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
