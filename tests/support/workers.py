"""Several pytest workers on one machine, and a test that runs alone.

Covers: locks on files in the run's folder, which the kernel lets go of when a worker dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest


def run_folder(config: pytest.Config) -> Path | None:
    """What all workers of this run share; None in a run without workers."""
    return Path(config.option.basetemp).parent if "PYTEST_XDIST_WORKER" in os.environ else None


@contextlib.contextmanager
def locked(path: Path, how: int = fcntl.LOCK_EX) -> Iterator[None]:
    with path.open("a") as file:
        fcntl.flock(file, how)
        yield


@contextlib.contextmanager
def turn(folder: Path, *, alone: bool) -> Iterator[None]:
    """The time of one test: at the same time as others, or alone. One that waits to be alone goes before new ones."""
    with contextlib.ExitStack() as stack:
        with locked(folder / "next"):
            stack.enter_context(locked(folder / "running", fcntl.LOCK_EX if alone else fcntl.LOCK_SH))
        yield
