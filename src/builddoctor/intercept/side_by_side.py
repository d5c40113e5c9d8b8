"""Do several things at once, most of which is waiting for small programs; one after the other where no thread starts.

Covers: jobs, and the patience that they share. A low ``ulimit -v`` or ``ulimit -u`` refuses threads: just there an
examination is needed most. Does *not* cover: processes (``intercept.captured``).
"""

from __future__ import annotations

import contextlib
import resource
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Generic, TypeVar

from builddoctor.units import MIB

MOST_THREADS = 8

ROOMY_MIB = 2048
"""With less address space (``ulimit -v``) no thread is started: each takes 72 MiB of it, for its arena and its stack,
and what is left may be nothing for the thread that started it."""

_T = TypeVar("_T")


class Patience:
    """How long probes may take together. Ended early when nobody waits any more."""

    def __init__(self, total_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until_s = clock() + total_s

    @property
    def left_s(self) -> float:
        """Seconds; 0 when it is at its end."""
        return max(0.0, self._until_s - self._clock())

    def end(self) -> None:
        """Nobody waits any more: probes that run are ended, others are not started."""
        self._until_s = self._clock()


class Job(Generic[_T]):
    """Something to do: by a thread, or by whoever asks for its result first."""

    def __init__(self, work: Callable[[], _T]) -> None:
        self._work = work
        self._claim = threading.Lock()
        self._outcome: Future[_T] = Future()

    def run(self) -> None:
        """Do it, unless somebody does or did. Never raises what the work raises: ``result`` does."""
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


class SideBySide:
    """Jobs in threads, as far as there are any."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._waiting: deque[Callable[[], None]] = deque()
        self._helping = 0
        self._threads: list[threading.Thread] = []

    def submit(self, work: Callable[[], _T]) -> Job[_T]:
        """Have it done soon."""
        job = Job(work)
        with self._lock:
            self._waiting.append(job.run)
            if self._helping >= self._most:
                return job
            self._helping += 1
        thread = threading.Thread(target=self._help, daemon=True)
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

    def _help(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._helping -= 1
                    return
                run = self._waiting.popleft()
            run()


@contextlib.contextmanager
def side_by_side(patience: Patience, *, most: int = MOST_THREADS) -> Iterator[SideBySide]:
    """For the time of a ``with``, which waits for what runs.

    When it ends by an error or Ctrl-C, ``patience`` ends too: probes are in sessions of their own, which no Ctrl-C
    reaches.
    """
    address_space, _ = resource.getrlimit(resource.RLIMIT_AS)
    scarce = address_space != resource.RLIM_INFINITY and address_space < ROOMY_MIB * MIB
    together = SideBySide(0 if scarce else most)
    try:
        yield together
    except BaseException:
        together.drop()
        patience.end()
        raise
    finally:
        together.wait()
