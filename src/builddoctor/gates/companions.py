"""Processes that a build has beside itself, and that end with it: the meeting point of a cluster, and its nodes.

Each is in a session of its own and gets SIGTERM when this process dies, however it dies (PR_SET_PDEATHSIG); what it has
started is its own to end. What it prints goes to a file. Started from the main thread alone: the signal comes when the
thread that started them ends.
Does *not* cover: the build itself (``gates.guardian``).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from builddoctor.core.errors import ClusterError
from builddoctor.gates.trial_program import end_with_parent

END_GRACE_S = 15.0
"""Slurm's `scancel` and a node's own end take a second or two; a controller that does not answer takes longer."""
LOOK_EVERY_S = 0.02


class Companions:
    """Those of one build."""

    def __init__(self, folder: Path) -> None:
        """``folder``: for what they print, and what they read."""
        self._folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, argv: Sequence[str], *, env: Mapping[str, str], stdin: str = "") -> None:
        """Raises ClusterError where there is no such program."""
        ours = os.getpid()

        def end_with_us() -> None:
            end_with_parent(signal.SIGTERM)
            if os.getppid() != ours:
                os._exit(0)

        # Not a pipe: it may be read long after, or never.
        with self._log(name).open("wb") as log, tempfile.TemporaryFile(dir=self._folder) as words:
            words.write(stdin.encode())
            words.seek(0)
            try:
                self._running[name] = subprocess.Popen(
                    argv,
                    env=dict(env),
                    stdin=words,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    preexec_fn=end_with_us,  # noqa: PLW1509 - before there are threads, and it takes no lock
                )
            except OSError as error:
                raise ClusterError(
                    f"{argv[0]} cannot be started: {error.strerror}", hint=f"is it installed? `which {argv[0]}`"
                ) from error

    def await_words(self, name: str, words: str, timeout_s: float) -> str:
        """The first line with these words that it prints. Raises ClusterError where it ends, or takes too long."""
        until_s = time.monotonic() + timeout_s
        while time.monotonic() < until_s:
            # Asked first: its last words count.
            has_ended = self._running[name].poll() is not None
            for line in self._lines(name):
                if words in line:
                    return line
            if has_ended:
                break
            time.sleep(LOOK_EVERY_S)
        said = next(iter(self._lines(name)), f"it said nothing in {timeout_s:.0f} s")
        raise ClusterError(f"the {name} did not come up: {said}", hint="try it by itself: `builddoctor cluster serve`")

    def ended(self) -> list[tuple[str, list[str]]]:
        """Those that have ended since this was asked last, and what they printed."""
        gone = [name for name, process in self._running.items() if process.poll() is not None]
        for name in gone:
            del self._running[name]
        return [(name, self._lines(name)) for name in gone]

    def pids(self) -> set[int]:
        """Of those that run, as far as is known."""
        return {process.pid for process in self._running.values()}

    def close(self) -> None:
        """End all, and the one that was started first after the others: they say goodbye to it."""
        running = [*self._running.values()]
        self._end(running[1:])
        self._end(running[:1])
        self._running.clear()

    def _end(self, processes: Sequence[subprocess.Popen[bytes]]) -> None:
        """Those that have not ended after a while are killed."""
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        until_s = time.monotonic() + END_GRACE_S
        for process in processes:
            try:
                process.wait(max(0.0, until_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _log(self, name: str) -> Path:
        return self._folder / f"{name.replace('/', '_')}.log"

    def _lines(self, name: str) -> list[str]:
        text = self._log(name).read_text(errors="replace")
        return [line.strip() for line in text.splitlines() if line.strip()]
