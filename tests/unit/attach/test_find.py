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
    with pytest.raises(ProjectNotFoundError, match="no compiler and no build tool runs here") as caught:
        find_build(machine(planted(9, name="bash")), None)
    assert "builddoctor attach PID" in caught.value.hint


def test_a_build_with_gates_is_known_by_its_environment() -> None:
    theirs = {"/proc/10/environ": "A=1\0BUILDDOCTOR_SOCKET=/run/x\0"}
    assert find_build(machine(*PIP, theirs), None).supervised


def tree(*parts: dict[str, str | None], ours: int = 40) -> TextRoot:
    """A machine on which we are process ``ours``, below a shell."""
    own = planted(ours, name="python3.11", parent=9)
    return machine(planted(9, name="bash", parent=0), own, {"/proc/self/stat": f"{ours} (x) R"}, *parts)


def test_between_two_compilers_its_tool_is_found() -> None:
    """While it configures or downloads nothing compiles, and it is the same build."""
    waiting = planted(30, name="pip", parent=1), called(30, "/venv/bin/python", "/venv/bin/pip", "install", "x")
    assert find_build(tree(*waiting), None).pid == 30
    server = planted(31, name="uv", parent=1), called(31, "uv", "run", "server.py")
    assert find_build(tree(*waiting, *server), None).pid == 30
    with pytest.raises(ProjectNotFoundError):
        find_build(tree(*server), None)


@pytest.mark.parametrize(
    ("words", "builds"),
    [
        (("python3", "-m", "build"), True),
        (("python3", "-Im", "pip", "wheel", "."), True),
        (("python3", "-mpip", "wheel", "."), True),
        (("/v/bin/python", "-u", "-W", "ignore", "/src/setup.py", "develop"), True),
        (("/v/bin/python3.11", "/v/bin/pip3.11", "install", "."), True),
        (("python3", "-m", "builddoctor", "build", "."), False),
        (("python3", "/v/bin/builddoctor", "build", "."), False),
        (("python3", "manage.py", "build"), False),
        (("python3", "-c", "pass", "pip"), False),
        (("python3", "-m"), False),
        (("python3",), False),
        ((), False),
    ],
)
def test_a_python_is_a_build_by_what_it_runs(words: tuple[str, ...], builds: bool) -> None:
    """Not by a word that its script is given."""
    inner = planted(31, name="cc1plus", parent=30)
    top = find_build(tree(planted(30, 31, name="python3", parent=1), called(30, *words), inner), None)
    assert top.pid == (30 if builds else 31)


def test_the_first_process_of_a_container_may_be_the_build() -> None:
    """``docker run IMAGE make``; we came in beside it."""
    top = find_build(tree(planted(1, 30, name="make", parent=0), planted(30, name="cc1plus", parent=1)), None)
    assert top.pid == 1


def test_a_supervisor_is_known_by_what_is_below_it() -> None:
    """``builddoctor run`` has no such variable of its own."""
    run = planted(30, 31, name="python3", parent=1), called(30, "python3", "-m", "builddoctor", "run", "--", "ninja")
    below = planted(31, name="ninja", parent=30), {"/proc/31/environ": "BUILDDOCTOR_SOCKET=/run/x\0"}
    assert find_build(tree(*run, *below), 30).supervised


@pytest.mark.parametrize("pid", [9, 40])
def test_what_started_us_is_no_build_to_wait_for(pid: int) -> None:
    """It would never end."""
    with pytest.raises(UsageError, match="would wait for itself"):
        find_build(tree(), pid)


def test_one_that_has_ended_is_not_shown() -> None:
    """A zombie has a number, and nothing below it."""
    with pytest.raises(ProjectNotFoundError, match="process 30 has ended"):
        find_build(tree(planted(30, name="ninja", state="Z")), 30)


def test_any_other_process_is_taken_at_its_word() -> None:
    """A script that builds later on; whoever shows it says so."""
    assert not find_build(tree(planted(30, name="build.sh")), 30).builds
    assert find_build(tree(planted(30, 31, name="build.sh"), planted(31, name="nvcc", parent=30)), 30).builds
