"""Tiers, capabilities by marker, and nothing left behind: no process, no cgroup, no loop device, no mount.

A test is in the first tier, ``fast``, unless a marker or its folder says otherwise (``tier_of``).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import psutil
import pytest

from support.capabilities import CAPABILITIES, allowed_to_skip
from support.examples import TIERS, use_tier
from support.failures import loops_left, mounts_left
from support.memcg import leftovers
from support.program import Program
from support.vm.machines import MACHINES
from support.workers import run_folder, turn

PR_SET_CHILD_SUBREAPER = 36

SLOW_FOLDERS = ("browser", "e2e")
"""A real browser, a real nvcc: none of these tests is in the first tier."""

INSIDE = "inside"
"""Tests that need a machine of ours, and run in no other."""

GONE_WITHIN_S = 20.0
"""A guardian ends its build in order, and a large process needs time to give its memory back."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tier", choices=TIERS, default="all", help="the tests that run (docs/CONTRIBUTING.md)")
    names = [each.name for each in MACHINES]
    parser.addoption("--machine", choices=names, help="only tests for this machine of ours, which we are in")


def pytest_configure(config: pytest.Config) -> None:
    use_tier(config.getoption("tier"))
    # Whoever starts the run in the background has SIGINT ignored, and nohup SIGHUP, which builds would inherit.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    # A run that is told to end gives its cgroups back first.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # Whatever a test's programs leave behind becomes our child, and is seen.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _tier(item: pytest.Item) -> str:
    """The first of ``TIERS`` that a test is in; it is in those that follow, too."""
    # In a machine of ours time is dear: there the nightly alone repeats what ran outside.
    inside = item.config.getoption("--machine") is not None
    if item.get_closest_marker("nightly") or (inside and _folder(item) != INSIDE):
        return "nightly"
    return "all" if item.get_closest_marker("slow") or _folder(item) in SLOW_FOLDERS else "fast"


def _folder(item: pytest.Item) -> str:
    return item.path.relative_to(Path(__file__).parent).parts[0]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    machine = config.getoption("--machine")
    config.hook.pytest_deselected(items=[item for item in items if not _runs_in(item, machine)])
    items[:] = [item for item in items if _runs_in(item, machine)]
    tiers = TIERS[: TIERS.index(config.getoption("tier")) + 1]
    config.hook.pytest_deselected(items=[item for item in items if _tier(item) not in tiers])
    # The longest first: none with thousands of examples is to begin when the others have ended.
    items[:] = sorted((item for item in items if _tier(item) in tiers), key=_begins_late)


def _runs_in(item: pytest.Item, machine: str | None) -> bool:
    """``machine`` is the one of ours that we are in; None: none of them."""
    if machine is None:
        return _folder(item) != INSIDE
    mark = item.get_closest_marker("machines")
    return mark is not None and machine in mark.args


def _begins_late(item: pytest.Item) -> bool:
    return _folder(item) != "property"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Of several workers, one that has a test for itself makes the others wait."""
    folder = run_folder(item.config)
    if folder is None:
        return (yield)
    with turn(folder, alone=item.get_closest_marker("alone") is not None):
        return (yield)


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


def _children() -> list[psutil.Process]:
    """All below us. Whether there is one the kernel says at once; a look through /proc takes as long as a test does."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return []
    return psutil.Process().children(recursive=True)


@pytest.fixture(autouse=True)
def _nothing_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test may leave a process, a cgroup, a loop device or a mount."""
    yield
    alive = [child for child in _children() if _lives(child)]
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
def program(tmp_path: Path) -> Iterator[Program]:
    """builddoctor with folders of its own."""
    found = Program(tmp_path)
    yield found
    found.check_traces()
