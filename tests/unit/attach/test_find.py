"""Which build is meant."""

from __future__ import annotations

import os

import pytest

from builddoctor.attach.find import find_build
from builddoctor.core.errors import ProjectNotFoundError, UsageError
from unit.system.test_process import planted
from unit.trees import TextRoot

OWN: dict[str, str | None] = {"/proc/self": str(os.getpid()), "/proc/self/stat": f"{os.getpid()} (x) R"}


def called(pid: int, *words: str, cwd: str = "/src") -> dict[str, str | None]:
    return {f"/proc/{pid}/cmdline": "".join(f"{word}\0" for word in words), f"/proc/{pid}/cwd": cwd}


def machine(*parts: dict[str, str | None]) -> TextRoot:
    return TextRoot({name: text for part in (OWN, *parts) for name, text in part.items()})


PIP = (
    planted(10, 11, name="pip", parent=9),
    called(10, "/venv/bin/python", "/venv/bin/pip", "install", "."),
    planted(11, 12, name="python3.11", parent=10),
    called(11, "/venv/bin/python", "setup.py", "bdist_wheel"),
    planted(12, 13, name="ninja", parent=11),
    called(12, "ninja", "-v"),
    planted(13, name="cc1plus", parent=12),
    planted(9, 10, name="bash", parent=1),
)


def test_the_only_build_is_found_at_its_top() -> None:
    """Not ninja, and not its shell: pip, which started all of it."""
    top = find_build(machine(*PIP), None)
    assert (top.pid, top.title, top.cwd, top.supervised) == (10, "python /venv/bin/pip install .", "/src", False)


@pytest.mark.parametrize("pid", [10, 11, 12, 13])
def test_any_process_of_it_names_it(pid: int) -> None:
    assert find_build(machine(*PIP), pid).pid == 10


def test_of_two_builds_one_has_to_be_named() -> None:
    """Each with the line to type."""
    other = (planted(30, 31, name="make"), called(30, "make", "-j8"), planted(31, name="cicc", parent=30))
    with pytest.raises(UsageError, match="2 builds run here") as caught:
        find_build(machine(*PIP, *other), None)
    assert "builddoctor attach 30       make -j8" in str(caught.value)


def test_conda_names_its_compilers_longer_than_the_kernel_keeps() -> None:
    """15 bytes of ``x86_64-conda-linux-gnu-c++``."""
    driver = (planted(30, name="x86_64-conda-li"), called(30, "/conda/bin/x86_64-conda-linux-gnu-c++", "-c", "a.cpp"))
    assert find_build(machine(*driver), None).pid == 30


def test_what_is_not_there_is_said() -> None:
    """With the next step."""
    with pytest.raises(ProjectNotFoundError, match="no process 99 runs here"):
        find_build(machine(*PIP), 99)
    with pytest.raises(ProjectNotFoundError, match="no compiler runs here") as caught:
        find_build(machine(planted(9, name="bash")), None)
    assert "builddoctor attach PID" in caught.value.hint


def test_a_build_with_gates_is_known_by_its_environment() -> None:
    theirs = {"/proc/10/environ": "A=1\0BUILDDOCTOR_SOCKET=/run/x\0"}
    assert find_build(machine(*PIP, theirs), None).supervised
