"""Capabilities by marker, and nothing left behind: no process, no cgroup, no loop device, no mount."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from support.capabilities import CAPABILITIES, allowed_to_skip
from support.failures import loops_left, mounts_left
from support.memcg import leftovers
from support.program import Program

PR_SET_CHILD_SUBREAPER = 36

LONGEST_FIRST = ("test_simulate.py", "test_governor_machine.py")
"""Thousands of simulated builds."""

GONE_WITHIN_S = 20.0
"""A guardian ends its build in order, and a large process needs time to give its memory back."""


def pytest_configure() -> None:
    # Whatever a test's programs leave behind becomes our child, and is seen.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Of those that run side by side, none of several minutes is to begin when the others have ended.
    items.sort(key=lambda item: item.path.name not in LONGEST_FIRST)


@functools.cache
def _has(capability: str) -> bool:
    return CAPABILITIES[capability]()


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers():
        capability = marker.name.removeprefix("needs_")
        if marker.name.startswith("needs_") and not _has(capability):
            if capability in allowed_to_skip():
                pytest.skip(f"no {capability} here")
            pytest.fail(f"this machine has no {capability}; BUILDDOCTOR_ALLOW_SKIP={capability} to go without")


def _lives(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture(autouse=True)
def _nothing_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test may leave a process, a cgroup, a loop device or a mount."""
    yield
    alive = [child for child in psutil.Process().children(recursive=True) if _lives(child)]
    # One that was killed just now may not be a zombie yet.
    _, alive = psutil.wait_procs(alive, timeout=GONE_WITHIN_S) if alive else ([], [])
    for child in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    assert not alive, f"processes left behind: {alive}"
    assert not leftovers(), f"cgroups left behind: {leftovers()}"
    folder = tmp_path_factory.getbasetemp()
    assert not mounts_left(folder), f"mounts left behind: {mounts_left(folder)}"
    assert not loops_left(folder), f"loop devices left behind: {loops_left(folder)}"


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """builddoctor with folders of its own."""
    return Program(tmp_path)
