"""A node of a cluster: what it can do, and one phase run there.

Covers: the node as a plug-in of a Dask worker; each phase in a folder of its own, which is gone afterwards; refusing
what no build of ours sends. The node is itself a supervised build, whose gates ask for the phases' memory: its own
scheduler has the last word, beside whatever else runs on that machine.
Does *not* cover: the worker's start (``cluster.node_program``).
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from distributed import Worker, WorkerPlugin, get_worker

from builddoctor.cluster.parcels import content_of, pack_file
from builddoctor.core.cluster import FOLDER, Answer, NodeFacts, Parcel
from builddoctor.core.errors import ClusterError
from builddoctor.core.units import printable
from builddoctor.gates.lone_phase import run_lone
from builddoctor.toolchain.travelling import is_plain_name, keeps_to_folder

NAME = "builddoctor"
"""Of the plug-in, by which a task finds it."""


class Node(WorkerPlugin):  # type: ignore[misc]
    """This machine, for the builds of others."""

    name = NAME

    def __init__(
        self,
        facts: NodeFacts,
        gates: Mapping[str, str],
        env: Mapping[str, str],
        folder: Path,
        say: Callable[[str], None],
    ) -> None:
        """``gates``: their paths, by the programs' digests. ``folder``: in which phases have theirs."""
        self.facts = facts
        self._gates = dict(gates)
        self._env = dict(env)
        self._folder = folder
        self._say = say

    def run(self, parcel: Parcel, wanted: Callable[[], bool]) -> Answer:
        """Run one phase to its end. Raises ClusterError for what it does not, or cannot, run."""
        if problem := _problem(parcel, self._gates):
            self._say(f"refused: {problem}")
            raise ClusterError(f"{self.facts.host} refuses this phase: {problem}")
        try:
            return self._run(parcel, wanted)
        except OSError as error:
            self._say(f"cannot run {parcel.tool}: {error}")
            raise ClusterError(f"{self.facts.host} cannot run it: {error.strerror or error}") from error

    def _run(self, parcel: Parcel, wanted: Callable[[], bool]) -> Answer:
        folder = tempfile.mkdtemp(prefix="phase-", dir=self._folder)
        try:
            for file in parcel.inputs:
                Path(folder, file.name).write_bytes(content_of(file))
            words = [word.replace(FOLDER, folder, 1) if word.startswith(FOLDER) else word for word in parcel.words]
            run = run_lone([self._gates[parcel.program], *words], env=self._env, cwd=folder, wanted=wanted)
            if run.status is None:
                raise ClusterError("no longer wanted")
            outputs = [Path(folder, name) for name in parcel.outputs] if run.status == 0 else []
            return Answer(
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


def _problem(parcel: Parcel, gates: Mapping[str, str]) -> str:
    """Why this is no phase that a build sent; empty where it is one."""
    if os.path.basename(gates.get(parcel.program, "")) != parcel.tool:
        return f"this {printable(parcel.tool)} is not here"
    for name in [*(file.name for file in parcel.inputs), *parcel.outputs]:
        if not is_plain_name(name):
            return f"a file outside its folder: {printable(name)}"
    if not keeps_to_folder(parcel.tool, parcel.words):
        return f"its command names files outside its folder: {printable(' '.join(parcel.words))[:200]}"
    return ""


def run_parcel(parcel: Parcel) -> Answer:
    """The task of a phase, on the worker."""
    worker = get_worker()
    key = worker.get_current_task()

    def wanted() -> bool:
        # Dask takes a task back by its state alone: its build has ended, or its client is gone.
        task = worker.state.tasks.get(key)
        return task is not None and task.state == "executing"

    return node_of(worker).run(parcel, wanted)


def node_facts(dask_worker: Worker) -> NodeFacts:
    """Asked by a build of each worker that it sees; the argument's name is Dask's."""
    return node_of(dask_worker).facts


def node_of(worker: Worker) -> Node:
    """Raises ClusterError for a worker that is none of ours."""
    node = worker.plugins.get(NAME)
    if not isinstance(node, Node):
        raise ClusterError(f"{worker.address} is no builddoctor node: it was not started by `builddoctor worker`")
    return node


def killed_for_memory(status: int) -> bool:
    """A phase that its node could not hold: its gate died as its program did."""
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
