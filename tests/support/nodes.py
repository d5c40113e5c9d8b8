"""A cluster on the loopback: its meeting point and nodes as real processes, each ended with the test."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from support.program import PATIENCE_S, Program


class Meeting:
    """`cluster serve`, and workers that joined it."""

    def __init__(self, folder: Path, *, keys: Path | None = None) -> None:
        """``keys``: of TLS; None: without."""
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.keys = keys
        self._running: list[subprocess.Popen[bytes]] = []
        host = "tls://127.0.0.1:0" if keys is not None else "tcp://127.0.0.1:0"
        self.server = self._start("serve", Program(folder), ["cluster", "serve", "--listen", host, *self.options])
        line = self.await_line("serve", "serves at ")
        self.address = line.partition("serves at ")[2].partition(";")[0]

    @property
    def options(self) -> list[str]:
        return ["--keys", str(self.keys)] if self.keys is not None else []

    @property
    def for_builds(self) -> list[str]:
        return ["--cluster", self.address, *self.options]

    def worker(self, name: str, *options: str, prefix: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        """A node that has joined; ``prefix``: what starts it."""
        program = Program(self.folder / name)
        program.folder.mkdir()
        words = ["worker", self.address, *self.options, "--trace", str(program.trace_file), *options]
        process = self._start(name, program, words, prefix=prefix)
        self.await_line(name, "serves ")
        return process

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def await_line(self, name: str, words: str) -> str:
        """The first line with these words that it prints."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            for line in self.log(name).splitlines():
                if words in line:
                    return line
            assert self._running[-1].poll() is None or words in self.log(name), self.log(name)
            time.sleep(0.02)
        raise AssertionError(f"{name} does not say {words!r}: {self.log(name)}")

    def close(self) -> None:
        for process in reversed(self._running):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self._running:
            process.wait(PATIENCE_S)

    def _start(
        self, name: str, program: Program, words: Sequence[str], *, prefix: Sequence[str] = ()
    ) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [*prefix, *program.argv(*words)],
                cwd=self.folder,
                env=program.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._running.append(process)
        return process


def node_program_of(worker: subprocess.Popen[bytes]) -> int:
    """The pid of the Dask worker below a node's supervisor."""
    found = subprocess.run(
        ["pgrep", "-f", "-g", "0", "node_program"], capture_output=True, text=True, check=False
    ).stdout.split()
    pids = [int(pid) for pid in found if _is_below(int(pid), worker.pid)]
    assert pids, "no node program runs"
    return pids[0]


def _is_below(pid: int, above: int) -> bool:
    while pid > 1:
        if pid == above:
            return True
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return False
    return False


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
