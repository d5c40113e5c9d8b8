"""A Slurm of our own on this machine: a controller and two emulated nodes on loopback, which end with the test.

``scripts/slurm COMMAND…`` runs a command in one. Debian's packages ``slurm-wlm`` and ``munge`` are all that it takes;
no systemd, no cgroup of its own (so Slurm enforces no memory here), nothing outside one temporary folder.
Does *not* cover: what constrains jobs on a real cluster (task/cgroup, task/affinity), or accounting.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scancel", "squeue", "scontrol", "sinfo")
PATIENCE_S = 60.0
NODES = ("n1", "n2")
CORES = 4
NODE_MIB = 8000
"""As said to Slurm, whatever the machine has."""
SBIN = ":/usr/local/sbin:/usr/sbin:/sbin"


def has_slurm() -> bool:
    """Slurm's daemons and munge's are installed."""
    return all(shutil.which(name, path=os.environ.get("PATH", "") + SBIN) for name in PROGRAMS)


class Slurm:
    """A running one. ``env``: what its commands need beside the caller's."""

    def __init__(self) -> None:
        # Not among pytest's folders: munge wants one that anybody may pass through, and sockets want short paths.
        self.folder = Path(tempfile.mkdtemp(prefix="bd-slurm-"))
        self.folder.chmod(0o711)
        self._running: list[subprocess.Popen[bytes]] = []
        conf = self.folder / "slurm.conf"
        self.env: Mapping[str, str] = {"SLURM_CONF": str(conf)}
        try:
            conf.write_text(_conf(self.folder))
            key = self.folder / "munge.key"
            key.touch(0o600)
            key.write_bytes(os.urandom(1024))
            files = {"key": "key", "socket": "socket", "pid": "pid-file", "seed": "seed-file", "log": "log-file"}
            named = [f"--{option}={self.folder}/munge.{name}" for name, option in files.items() if name != "key"]
            self._start("munged", "--foreground", f"--key-file={key}", "--num-threads=4", *named)
            self._until((self.folder / "munge.socket").exists)
            self._start("slurmctld", "-D")
            for node in NODES:
                self._start("slurmd", "-D", "-N", node)
            self._until(
                lambda: self.ask("sinfo", "--noheader", "--Node", "--format=%T").split() == ["idle"] * len(NODES)
            )
        except BaseException:
            self.close()
            raise

    def ask(self, *argv: str, check: bool = False) -> str:
        """What one of its commands prints."""
        done = subprocess.run(argv, env={**os.environ, **self.env}, capture_output=True, text=True, check=False)
        assert not check or done.returncode == 0, done.stderr
        return done.stdout.strip()

    def jobs(self) -> list[str]:
        """``ID STATE NODE`` of each job that is not over."""
        return self.ask("squeue", "--noheader", "--array", "--format=%i %T %N").splitlines()

    def state(self, job: str) -> str:
        """Such as RUNNING, COMPLETED, TIMEOUT."""
        fields = dict(each.partition("=")[::2] for each in self.ask("scontrol", "show", "job", job, "-o").split())
        return fields.get("JobState", "")

    def await_state(self, job: str, *wanted: str, within_s: float = PATIENCE_S) -> str:
        self._until(lambda: self.state(job) in wanted, lambda: f"{job}: {self.state(job)}\n{self.log()}", within_s)
        return self.state(job)

    def log(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-3000:] for path in sorted(self.folder.glob("*.log")))

    def close(self) -> None:
        """End jobs, then daemons; nothing stays."""
        if len(self._running) > 1:
            with contextlib.suppress(AssertionError):
                self.ask("scancel", f"--user={getpass.getuser()}")
                self._until(lambda: not self.jobs())
        for process in reversed(self._running):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self, *argv: str) -> None:
        env = {**os.environ, **self.env, "PATH": os.environ.get("PATH", "") + SBIN}
        with (self.folder / f"{'-'.join([argv[0], *argv[3:][:1]])}.out".replace("/", "_")).open("wb") as log:
            # Looked up here: Popen looks in the PATH of this process.
            program = shutil.which(argv[0], path=env["PATH"]) or argv[0]
            started = subprocess.Popen(
                [program, *argv[1:]], env=env, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self._running.append(started)

    def _until(self, holds, said=lambda: "", within_s: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + within_s
        while not holds():
            died = [each.args for each in self._running if each.poll() is not None]
            assert not died, f"{died} ended\n{self.log()}"
            assert time.monotonic() < deadline, said() or self.log()
            time.sleep(0.05)


def _conf(folder: Path) -> str:
    host = socket.gethostname().partition(".")[0]
    ports = _free_ports(1 + len(NODES))
    nodes = "\n".join(
        f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={CORES} RealMemory={NODE_MIB}"
        for name, port in zip(NODES, ports[1:], strict=True)
    )
    return f"""\
ClusterName=trial
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={getpass.getuser()}
SlurmdUser={getpass.getuser()}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CryptoType=crypto/munge
MpiDefault=none
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
ReturnToService=2
JobRequeue=1
KillWait=30
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0
{nodes}
PartitionName=all Nodes={",".join(NODES)} Default=YES MaxTime=INFINITE State=UP
"""


def _free_ports(count: int) -> Sequence[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@contextlib.contextmanager
def running_slurm() -> Iterator[Slurm]:
    slurm = Slurm()
    try:
        yield slurm
    finally:
        slurm.close()


def main(command: Sequence[str]) -> int:
    if not command or not has_slurm():
        sys.stderr.write("scripts/slurm COMMAND… needs Slurm and munge: apt-get install slurm-wlm munge\n")
        return 64
    with running_slurm() as slurm:
        return subprocess.run(command, env={**os.environ, **slurm.env}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
