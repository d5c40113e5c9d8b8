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
_SCRIPTS = "setup.py pip pip3 build uv hatch meson scons conda-build _in_process.py"
_PYTHON_BUILDS = frozenset(_SCRIPTS.split())
"""Python's script, or the module behind ``-m``, that makes it a build."""
_MODULE = re.compile(r"-[a-zA-Z]*?m(?P<name>.*)\Z")
_CODE = re.compile(r"-[a-zA-Z]*c\Z")
_PIP = re.compile(r"pip[\d.]+\Z")

LONGEST_TITLE = 60


class Top(msgspec.Struct, frozen=True, kw_only=True):
    """The process at the top of a build."""

    pid: int
    start_ticks: int
    argv: tuple[str, ...]
    cwd: str
    supervised: bool
    """its compilers ask a builddoctor already"""
    builds: bool = True
    """a build tool, or something with a compiler below it"""

    @property
    def title(self) -> str:
        """Its command, cut to a line."""
        words = mask_argv([os.path.basename(self.argv[0]), *self.argv[1:]]) if self.argv else [f"pid {self.pid}"]
        text = printable(" ".join(words))
        return text if len(text) <= LONGEST_TITLE else f"{text[: LONGEST_TITLE - 1]}…"


def find_build(root: SystemRoot, pid: int | None) -> Top:
    """The build that this process belongs to; without one, the only build that compiles now, or is about to.

    Raises ProjectNotFoundError where there is none, UsageError where there are several.
    """
    listed = {each.pid: each for each in read_all(root)}
    if pid is not None:
        return _named(root, listed, pid)
    ours = _line(listed, own_pid(root))
    others = [each for each in listed.values() if each.pid not in ours]
    # Between two compilers, and before the first, its tools are there.
    tops = _tops(root, listed, [each for each in others if is_compiler(_name(root, each))]) or _tops(
        root, listed, [each for each in others if each.name != "uv" and _builds(root, each)]
    )
    if not tops:
        raise ProjectNotFoundError(
            "no compiler and no build tool runs here that can be seen",
            hint="name a process of the build, `builddoctor attach PID`: `ps -ef | grep -E 'ninja|make|pip|setup.py'`",
        )
    found = [top for top in tops if not top.supervised] or tops
    if len(found) > 1:
        lines = "".join(f"\n  builddoctor attach {top.pid:<8} {top.title}" for top in found)
        raise UsageError(f"{len(found)} builds run here: name one{lines}", hint=f"builddoctor attach {found[0].pid}")
    return found[0]


def _named(root: SystemRoot, listed: Mapping[int, Listed], pid: int) -> Top:
    finds = "`builddoctor attach` without a number finds the build"
    if pid not in listed:
        raise ProjectNotFoundError(f"no process {pid} runs here, or it may not be seen", hint=finds)
    if pid in _line(listed, own_pid(root)):
        raise UsageError(f"process {pid} has started this builddoctor: it would wait for itself", hint=finds)
    if not Processes(root).lives(pid, listed[pid].start_ticks):
        raise ProjectNotFoundError(f"process {pid} has ended", hint=finds)
    return _top(root, listed, pid)


def _tops(root: SystemRoot, listed: Mapping[int, Listed], begun: Sequence[Listed]) -> list[Top]:
    return list({top.pid: top for top in (_top(root, listed, each.pid) for each in begun)}.values())


def _top(root: SystemRoot, listed: Mapping[int, Listed], pid: int) -> Top:
    """The outermost tool above that builds, or the outermost compiler; the process itself where there is none."""
    ours = _line(listed, own_pid(root))
    tool: Listed | None = None
    compiler: Listed | None = None
    for above in _line(listed, pid):
        at = listed[above]
        if at.pid in ours:
            # What started us as well is a shell, a terminal, an agent: no part of that build.
            break
        if _builds(root, at):
            tool = at
        elif is_compiler(_name(root, at)):
            compiler = at
    top = tool or compiler or listed[pid]
    call = read_call(root, top.pid)
    inside = [each for each in listed if top.pid in _line(listed, each)]
    processes = Processes(root)
    return Top(
        pid=top.pid,
        start_ticks=top.start_ticks,
        argv=call.argv,
        cwd=call.cwd,
        supervised=any(processes.environ_has(each, f"{SOCKET}=") for each in inside),
        builds=tool is not None or any(is_compiler(_name(root, listed[each])) for each in inside),
    )


def _name(root: SystemRoot, process: Listed) -> str:
    cut = len(process.name.encode()) == MOST_NAME_BYTES
    return whole_name(process.name, read_call(root, process.pid).argv) if cut else process.name


def _line(listed: Mapping[int, Listed], pid: int | None) -> dict[int, None]:
    """A process and all above it, in this order."""
    found: dict[int, None] = {}
    while pid is not None and pid in listed and pid not in found:
        found[pid] = None
        pid = listed[pid].parent
    return found


def _builds(root: SystemRoot, process: Listed) -> bool:
    if process.name in _TOOLS:
        return True
    argv: Sequence[str] = read_call(root, process.pid).argv
    if not argv or not (_PYTHON.match(process.name) or _PYTHON.match(os.path.basename(argv[0]))):
        return False
    script = os.path.basename(_script(argv))
    return script in _PYTHON_BUILDS or bool(_PIP.match(script))


def _script(argv: Sequence[str]) -> str:
    """What Python runs: a file, or the module behind ``-m``; empty for ``-c``."""
    words = iter(argv[1:])
    for word in words:
        if word in ("-W", "-X"):
            next(words, "")
        elif not word.startswith("-"):
            return word
        elif match := _MODULE.match(word):
            return match["name"] or next(words, "")
        elif _CODE.match(word):
            return ""
    return ""
