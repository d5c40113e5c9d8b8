"""Which build: the one that a number names, or the only one that runs.

Covers: the process at the top of a build, found from any process of it; what it is called.
Does *not* cover: what runs below it (``attach.compilers``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

import msgspec

from builddoctor.core.errors import ProjectNotFoundError, UsageError
from builddoctor.core.units import printable
from builddoctor.gates.environment import SOCKET
from builddoctor.system.process import Listed, Processes, read_all, read_call
from builddoctor.system.root import SystemRoot, own_pid
from builddoctor.toolchain.running import MOST_NAME_BYTES, is_compiler, whole_name
from builddoctor.trace.masking import mask_argv

_NAMES = "ninja ninja-build samu make gmake cmake cargo bazel scons meson uv pip pip3"
_TOOLS = frozenset(_NAMES.split())
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*\Z")
_PYTHON_BUILDS = re.compile(
    r"(?:^|/)(?:setup\.py|pip|pip3|pip[\d.]+|build|uv|hatch|meson|scons|conda-build|_in_process\.py)\Z"
)
"""A word of Python's that makes it a build: its script, or the module behind ``-m``."""

LONGEST_TITLE = 60


class Top(msgspec.Struct, frozen=True, kw_only=True):
    """The process at the top of a build."""

    pid: int
    start_ticks: int
    argv: tuple[str, ...]
    cwd: str
    supervised: bool
    """its compilers ask a builddoctor already"""

    @property
    def title(self) -> str:
        """Its command, cut to a line."""
        words = mask_argv([os.path.basename(self.argv[0]), *self.argv[1:]]) if self.argv else [f"pid {self.pid}"]
        text = printable(" ".join(words))
        return text if len(text) <= LONGEST_TITLE else f"{text[: LONGEST_TITLE - 1]}…"


def find_build(root: SystemRoot, pid: int | None) -> Top:
    """The build that this process belongs to; without one, the only build that compiles now.

    Raises ProjectNotFoundError where there is none, UsageError where there are several.
    """
    listed = {each.pid: each for each in read_all(root)}
    if pid is not None:
        if pid not in listed:
            raise ProjectNotFoundError(
                f"no process {pid} runs here", hint="`builddoctor attach` without a number finds the build"
            )
        return _top(root, listed, pid)
    tops: dict[int, Top] = {}
    for each in listed.values():
        if is_compiler(_name(root, each)) and (top := _top(root, listed, each.pid)).pid not in tops:
            tops[top.pid] = top
    if not tops:
        raise ProjectNotFoundError(
            "no compiler runs here that can be seen",
            hint="name a process of the build, `builddoctor attach PID`: `ps -ef | grep -E 'ninja|make|pip|setup.py'`",
        )
    found = [top for top in tops.values() if not top.supervised] or list(tops.values())
    if len(found) > 1:
        lines = "".join(f"\n  builddoctor attach {top.pid:<8} {top.title}" for top in found)
        raise UsageError(f"{len(found)} builds run here: name one{lines}", hint=f"builddoctor attach {found[0].pid}")
    return found[0]


def _top(root: SystemRoot, listed: Mapping[int, Listed], pid: int) -> Top:
    """The outermost tool above that builds, or the outermost compiler; the process itself where there is none."""
    ours = _line(listed, own_pid(root))
    top, at = listed[pid], listed[pid]
    compilers_top = top
    found = False
    for _ in range(64):
        if at.pid in ours:
            # What started us as well is a shell, a terminal, an agent: no part of that build.
            break
        if _builds(root, at):
            top, found = at, True
        elif is_compiler(_name(root, at)):
            compilers_top = at
        above = listed.get(at.parent)
        if above is None or above.pid <= 1:
            break
        at = above
    if not found:
        top = compilers_top
    call = read_call(root, top.pid)
    return Top(
        pid=top.pid,
        start_ticks=top.start_ticks,
        argv=call.argv,
        cwd=call.cwd,
        supervised=Processes(root).environ_has(top.pid, f"{SOCKET}="),
    )


def _name(root: SystemRoot, process: Listed) -> str:
    cut = len(process.name.encode()) == MOST_NAME_BYTES
    return whole_name(process.name, read_call(root, process.pid).argv) if cut else process.name


def _line(listed: Mapping[int, Listed], pid: int | None) -> set[int]:
    """A process and all above it."""
    found: set[int] = set()
    while pid is not None and pid in listed and pid not in found:
        found.add(pid)
        pid = listed[pid].parent
    return found


def _builds(root: SystemRoot, process: Listed) -> bool:
    if process.name in _TOOLS:
        return True
    argv: Sequence[str] = read_call(root, process.pid).argv
    return bool(
        argv
        and (_PYTHON.match(process.name) or _PYTHON.match(os.path.basename(argv[0])))
        and any(_PYTHON_BUILDS.search(word) for word in argv[1:4])
    )
