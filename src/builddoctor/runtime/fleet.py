"""Nodes that a build starts itself: their meeting point and they, from before the build until after it.

Covers: keys of their own, the meeting point, a share of this machine for each local node, jobs in Slurm's queue, what
they say when they fail, and the end of all. Nodes are not waited for: they join when they come.
Does *not* cover: what the user wrote (``cluster.fleet``), or which phase goes where (``scheduler.nodes``).
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from builddoctor.cluster.fleet import Start, node_script, sbatch_words, slurm_environment, ssh_words
from builddoctor.cluster.keys import make_keys, security_for
from builddoctor.core.cluster import Fleet
from builddoctor.core.errors import ClusterError, FolderNotWritableError
from builddoctor.core.units import one_line
from builddoctor.gates.companions import Companions
from builddoctor.gates.subprocesses import run_captured
from builddoctor.runtime.folders import traces_folder

MEETS_S = 30.0
"""The meeting point takes a second to come up, and longer on a machine that is busy."""
SUBMIT_S = 60.0
"""A busy Slurm controller is slow to answer."""
CANCEL_S = 15.0
ENDED = ".ended"
MEETING = "meeting point"

_CANCEL = """trap 'kill $!; scancel "$0"; rm -rf "$1"' TERM INT HUP; sleep infinity & wait"""
"""Jobs outlive who queued them: this waits for the end of the build, however it ends, and takes away what they printed.
"""


class StartedFleet:
    """Those of one build, from ``meet`` to ``close``."""

    def __init__(self, fleet: Fleet, keys: str, env: Mapping[str, str], folder: Path) -> None:
        """``keys``: a folder; empty: keys for this build alone. ``folder``: the build's own."""
        self._fleet = fleet
        self._env = env
        self._logs: Path | None = None
        self._job = ""
        self._companions = Companions(folder)
        self.keys = Path(keys) if keys else folder / "keys"
        self._own_keys = not keys
        self._folder = folder

    def meet(self) -> None:
        """Starts the meeting point. Raises ClusterError, FolderNotWritableError."""
        if self._own_keys:
            make_keys(self.keys)
        fleet, folder = self._fleet, self._folder
        host = "127.0.0.1" if fleet.kind == "local" else fleet.host or "0.0.0.0"  # noqa: S104 - only keys let in
        listen = f"tls://{f'[{host}]' if ':' in host else host}:0"
        for role in ("server", "node", "client"):
            security_for(listen, self.keys, role)
        serve = [*_OURS, "cluster", "serve", "--listen", listen, "--keys", str(self.keys)]
        # Dask leaves a folder of its own among the temporary files.
        self._companions.start(MEETING, serve, env={**self._env, "TMPDIR": str(folder)})

    def join(self, toolkit: str, *, cores: int, free_mib: float) -> str:
        """Starts the nodes, once they can meet; gives the address. ``cores``, ``free_mib``: what this machine has.

        Raises ClusterError.
        """
        said = self._companions.await_words(MEETING, _SERVES, MEETS_S)
        address = said.partition(_SERVES)[2].partition(";")[0]
        fleet = self._fleet
        start = Start(address=address, toolkit=toolkit, memory_mib=fleet.memory_mib, cores=fleet.cores)
        if fleet.kind == "local":
            self._start_local(start, cores=cores, free_mib=free_mib)
        elif fleet.kind == "ssh":
            for number, (host, *more) in enumerate(fleet.hosts, 1):
                script = node_script(start, self.keys, more=more)
                self._companions.start(f"node {number}, {host},", ssh_words(host), env=self._env, stdin=script)
        else:
            self._queue(start)
        return address

    def cores(self, own: int) -> int:
        """Of all nodes, as far as that can be known before they come: as many as here (``own``), where nothing is
        said."""
        each = self._fleet.cores or (_share(own, self._fleet.nodes) if self._fleet.kind == "local" else own)
        return self._fleet.nodes * each

    def news(self) -> list[str]:
        """A sentence on each node that has failed since this was asked last."""
        ended = self._companions.ended()
        for path in self._logs.glob(f"*{ENDED}") if self._logs is not None else ():
            ended.append((f"job {path.name.partition('.')[0]}", path.read_text(errors="replace").splitlines()))
            path.unlink()
        return [f"{name} has ended: {_reason(lines)}" for name, lines in ended]

    def pids(self) -> set[int]:
        """Below these nothing is the build's."""
        return self._companions.pids()

    def close(self) -> None:
        """End nodes and meeting point; jobs are cancelled."""
        if self._job:
            # Here as well: a signal to all of us may have found that shell before it listened.
            run_captured(["scancel", self._job], env=slurm_environment(self._env), timeout_s=CANCEL_S)
        self._companions.close()
        if self._logs is not None:
            shutil.rmtree(self._logs, ignore_errors=True)

    def _start_local(self, start: Start, *, cores: int, free_mib: float) -> None:
        fleet = self._fleet
        memory = start.memory_mib or free_mib / (fleet.nodes + 1)
        words = Start(
            address=start.address,
            toolkit=start.toolkit,
            memory_mib=memory,
            cores=start.cores or _share(cores, fleet.nodes),
        ).words()
        for number in range(1, fleet.nodes + 1):
            argv = [*_OURS, *words, "--keys", str(self.keys), "--toolkit", start.toolkit]
            self._companions.start(f"node {number}", argv, env=self._env)

    def _queue(self, start: Start) -> None:
        env = slurm_environment(self._env)
        self._logs = self._shared_folder()
        script = self._folder / "node.sh"
        script.touch(0o600)
        log = f"{self._logs}/${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}.log"
        script.write_text(node_script(start, self.keys, log=log))
        done = run_captured(sbatch_words(self._fleet, script), env=env, timeout_s=SUBMIT_S)
        # `812` or `812;cluster`, after what a site's own plugins say.
        job = done.output.strip().splitlines()[-1].partition(";")[0] if done.output.strip() else ""
        if done.status != 0 or not job.isdigit():
            raise ClusterError(
                f"Slurm takes no job for nodes: {_reason(done.output.splitlines()) if done.output else done.problem}",
                hint="`sinfo` shows partitions and what their nodes have; or do without `--cluster`",
            )
        self._job = job
        self._companions.start(f"watch over job {job}", ["sh", "-c", _CANCEL, job, str(self._logs)], env=env)

    def _shared_folder(self) -> Path:
        """For what jobs print: where traces lie, which nodes mostly see as well. Where they do not, it is not seen."""
        state = traces_folder(self._env).parent
        try:
            state.mkdir(parents=True, exist_ok=True)
            return Path(tempfile.mkdtemp(prefix="nodes-", dir=state))
        except OSError as error:
            raise FolderNotWritableError(
                f"no folder for what nodes print can be made in {state}: {error.strerror}",
                hint="name another, `export BUILDDOCTOR_STATE_DIR=/some/folder`",
            ) from error


_OURS = (sys.executable, "-m", "builddoctor")
_SERVES = "serves at "


def _share(cores: int, nodes: int) -> int:
    """Cores of one of several nodes on this machine, which the build uses as well."""
    return max(1, cores // (nodes + 1))


def _reason(lines: Sequence[str]) -> str:
    """What went wrong, of all that was printed."""
    said = [line.strip() for line in lines if line.strip() and not line.startswith("hint: ")]
    ours = [line for line in said if line.startswith("builddoctor: ")]
    return one_line((ours or said or ["it printed nothing"])[-1].removeprefix("builddoctor: "))
