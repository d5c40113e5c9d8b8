"""Programs that are asked what they are: found on PATH, run several at once, under one deadline.

Covers: PATH as builddoctor itself looks through it; the answer of a probe and the interface of what runs one
(``gates.subprocesses.run_captured`` in production); jobs in threads, done one after the other where no thread starts. A
low ``ulimit -v`` or ``ulimit -u`` refuses threads, and an examination is needed most just there.
Does *not* cover: starting processes (``gates``), what a build takes from its PATH, and gates of ours on it, which
callers leave out (``toolchain.discover.is_overlay``).
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Generic, Protocol, TypeVar

import msgspec

from builddoctor.core.units import MIB

PROBE_TIMEOUT_S = 30.0
MOST_BYTES = 4 * 1024 * 1024
"""What a probe may print. The largest answer is a compiler's list of macros, some 20 KB."""

MOST_THREADS = 8

ROOMY_MIB = 2048
"""With less address space (``ulimit -v``) no thread is started: each takes 72 MiB of it, for its arena and its stack,
and what is left may be nothing for the thread that started it."""

_T = TypeVar("_T")


def path_folders(env: Mapping[str, str]) -> list[str]:
    """The absolute folders on PATH, in order; the system's usual ones where PATH is not set.

    An empty or relative entry stands for the current folder, which may be a stranger's source tree: a program there is
    not run because it happens to be called git.
    """
    return [folder for folder in (env.get("PATH") or os.defpath).split(":") if folder.startswith("/")]


def programs(name: str, env: Mapping[str, str]) -> Iterator[str]:
    """Paths of all programs of that name, the first one first. A name with a slash stands for itself."""
    if "/" in name:
        yield from filter(None, [shutil.which(name)])
        return
    for folder in path_folders(env):
        if path := shutil.which(name, path=folder):
            yield path


def first_program(name: str, env: Mapping[str, str]) -> str:
    """The first of them; empty when there is none."""
    return next(programs(name, env), "")


class Deadline:
    """How long probes may take together. Ended early when the answers are not wanted any more."""

    def __init__(self, total_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until_s = clock() + total_s

    @property
    def left_s(self) -> float:
        """Seconds; 0 when it has passed."""
        return max(0.0, self._until_s - self._clock())

    def end(self) -> None:
        """The answers are not wanted any more: probes that run are ended, others are not started."""
        self._until_s = self._clock()


class Captured(msgspec.Struct, frozen=True):
    """How a probe ended. ``status`` is None when it could not be started, did not end in time, or printed too much."""

    status: int | None
    output: str
    """stdout and stderr together"""
    problem: str = ""
    silent: bool = False
    """it did not end in time, or there was no time left to ask it"""


class RunProbe(Protocol):
    """Run a small program to its end, without input, and take its output. Never raises for what the program does."""

    def __call__(
        self,
        argv: Sequence[str],
        *,
        executable: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        timeout_s: float = PROBE_TIMEOUT_S,
        most_bytes: int = MOST_BYTES,
        deadline: Deadline | None = None,
    ) -> Captured:
        """``executable``: run under the name ``argv[0]``. One that takes longer, or prints more, is killed."""


class Job(Generic[_T]):
    """Something to do: by a thread, or by the caller that asks for its result first."""

    def __init__(self, work: Callable[[], _T]) -> None:
        self._work = work
        self._claim = threading.Lock()
        self._outcome: Future[_T] = Future()

    def run(self) -> None:
        """Do it, unless it is done or being done. Never raises what the work raises: ``result`` does."""
        if not self._claim.acquire(blocking=False):
            return
        try:
            self._outcome.set_result(self._work())
        except BaseException as error:  # noqa: BLE001 - raised by result()
            self._outcome.set_exception(error)

    def result(self) -> _T:
        """What the work gave, or raised."""
        self.run()
        return self._outcome.result()


class JobPool:
    """Jobs in threads, as far as threads can be started."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._waiting: deque[Callable[[], None]] = deque()
        self._working = 0
        self._threads: list[threading.Thread] = []

    def submit(self, work: Callable[[], _T]) -> Job[_T]:
        """Have it done soon."""
        job = Job(work)
        with self._lock:
            self._waiting.append(job.run)
            if self._working >= self._most:
                return job
            self._working += 1
        thread = threading.Thread(target=self._work, daemon=True)
        try:
            thread.start()
        except (RuntimeError, MemoryError):
            # "can't start new thread": ``result`` does the work, and no other is tried.
            self._most = 0
        else:
            self._threads.append(thread)
        return job

    def drop(self) -> None:
        """Nothing more is begun."""
        with self._lock:
            self._waiting.clear()

    def wait(self) -> None:
        """Until no thread is at work."""
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._working -= 1
                    return
                run = self._waiting.popleft()
            run()


@contextlib.contextmanager
def job_pool(deadline: Deadline, *, most: int = MOST_THREADS) -> Iterator[JobPool]:
    """For the time of a ``with``, which waits for the jobs that run.

    When it ends by an error or Ctrl-C, ``deadline`` ends too: probes are in sessions of their own, which no Ctrl-C
    reaches.
    """
    address_space, _ = resource.getrlimit(resource.RLIMIT_AS)
    scarce = address_space != resource.RLIM_INFINITY and address_space < ROOMY_MIB * MIB
    pool = JobPool(0 if scarce else most)
    try:
        yield pool
    except BaseException:
        pool.drop()
        deadline.end()
        raise
    finally:
        pool.wait()
