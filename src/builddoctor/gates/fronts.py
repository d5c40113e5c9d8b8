"""What a program that runs a build (ninja, cmake, make) is about to build, and with which nvcc.

Covers: finding the build folder from its arguments, the nvcc that the folder was configured with, ninja's ``-j``, and
how many units ninja will compile.
Does *not* cover: reading Makefiles that no CMake wrote (``gates.makefiles``), or changing what it builds.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from itertools import islice, pairwise
from pathlib import Path

import msgspec

from builddoctor.gates.makefiles import nvcc_by_path
from builddoctor.gates.subprocesses import run_captured
from builddoctor.system.source_files import text_of
from builddoctor.toolchain.discover import is_overlay

NINJA_NAMES = ("ninja", "ninja-build", "samu")
MAKE_NAMES = ("make", "gmake")
_CACHED_NVCC = re.compile(r"^(?P<name>CMAKE_CUDA_COMPILER|CUDA_NVCC_EXECUTABLE):[A-Z]+=(?P<path>/.*)$", re.MULTILINE)
"""The second is that of CMake's old FindCUDA, which OpenCV goes by; it is found beside CUDA_HOME, not on PATH."""
_NINJA_NVCC = re.compile(r"^[ \t]*\w+ = (?:\S+ )?(?P<path>(?:/|\$cuda_home/)\S*/nvcc)(?=\s)", re.MULTILINE)
"""A variable, or the command of a rule (meson's, with a native file). torch puts ccache before it; flashinfer writes
``$cuda_home/bin/nvcc``."""
_SCCACHE_NVCC = re.compile(
    r"^CMAKE_CUDA_COMPILER_LAUNCHER:[A-Z]+=\S*sccache"
    r"|^build [^\n]*: CUDA_COMPILER\S*[^\n]*\n(?:  [^\n]*\n)*?  LAUNCHER = \S*sccache"
    r"|\bsccache (?:/|\$cuda_home/)\S*nvcc\s",
    re.MULTILINE,
)
"""In CMakeCache.txt, in what CMake writes for ninja, and in other files of ninja and of make."""
_NINJA_HOME = re.compile(r"^cuda_home = (?P<path>/\S*)\s*$", re.MULTILINE)
_NINJA_BUILDDIR = re.compile(r"^builddir = (?P<path>\S+)\s*$", re.MULTILINE)
_NINJA_INNER = re.compile(r"^subninja (?P<path>\S+)\s*$", re.MULTILINE)
_MOST_INNER = 8
"""Of the files that one build.ninja names (flashinfer: one for each kernel), so many are looked into."""
_COMPILES = re.compile(r"\s(-c|-dc|-dw|-x cu)\s")
_JOBS_FLAG = re.compile(r"-[a-zA-Z]*j")
_GOES_ON_FLAG = re.compile(r"-[a-zA-Z]*k(?P<failures>.*)")
_MOST_READ_BYTES = 4 * 1024 * 1024
PLAN_TIMEOUT_S = 20.0
_MOST_PLAN_BYTES = 256 * 1024 * 1024
"""A command line of 5 KB for each of 50 000 units."""


class Edge(msgspec.Struct, frozen=True):
    """One entry of ninja's compilation database."""

    directory: str
    command: str
    output: str
    file: str = ""
    """its first input"""

    @property
    def path(self) -> str:
        """Of its output."""
        return os.path.normpath(os.path.join(self.directory, self.output))


def configured_nvcc(name: str, argv: Sequence[str], cwd: str, env: Mapping[str, str]) -> Path | None:
    """The nvcc that the build folder calls by its own path; None when it is ours already, or there is none.
    ``env``: what variables of a Makefile are in the program's environment.

    None also where sccache calls it: that takes its commands and their PATH from nvcc's dry run, which names no PATH
    where nvcc reads no profile, and ends in a panic (0.16).
    """
    folder = _build_folder(name, argv, cwd)
    if folder is None:
        return None
    cache, ninja_texts = _head(folder / "CMakeCache.txt"), _ninja_texts(folder / _ninja_file(name, argv))
    cached = sorted((match["name"], match["path"].strip()) for match in _CACHED_NVCC.finditer(cache))
    named = [path for _, path in cached] or [_ninja_nvcc(ninja_texts)]
    path = next((each for each in named if os.path.isfile(each) and not is_overlay(Path(each))), "")
    if not path:
        return nvcc_by_path(argv, folder, env) if name in MAKE_NAMES and not cache else None
    makefiles = islice(folder.glob("CMakeFiles/*.dir/build.make"), _MOST_INNER)
    texts = (cache, *ninja_texts, *map(_head, makefiles))
    return None if any("sccache" in text and _SCCACHE_NVCC.search(text) for text in texts) else Path(path)


def _ninja_file(name: str, argv: Sequence[str]) -> str:
    """ninja's ``-f``, which is looked for in the folder that it works in."""
    named = "build.ninja"
    for index, word in enumerate(argv if name in NINJA_NAMES else ()):
        if word == "-f" and index + 1 < len(argv):
            named = argv[index + 1]
        elif word.startswith("-f") and word != "-f":
            named = word[2:]
    return named


def _ninja_texts(file: Path) -> list[str]:
    """A build.ninja, and those that it includes."""
    text = _head(file)
    inner = islice(_NINJA_INNER.finditer(text), _MOST_INNER)
    return [text, *(_head(file.parent / each["path"]) for each in inner)]


def _ninja_nvcc(texts: Sequence[str]) -> str:
    """What files of ninja call nvcc; empty when that is no path."""
    for each in texts:
        if match := _NINJA_NVCC.search(each):
            home = _NINJA_HOME.search(each)
            return match["path"].replace("$cuda_home", home["path"] if home else "")
    return ""


def works_in(command: Sequence[str], cwd: str) -> str:
    """The folder that a build's command works in: `ninja -C DIR` may be called from anywhere."""
    name = os.path.basename(command[0]) if command else ""
    known = name == "cmake" or name in NINJA_NAMES or name in MAKE_NAMES
    return str((_build_folder(name, command[1:], cwd) if known else None) or cwd)


def wants_jobs(name: str, argv: Sequence[str]) -> bool:
    """This is a ninja run without a ``-j`` of its own (which may stand in a bundle: ``-vj8``)."""
    return name in NINJA_NAMES and not any(_JOBS_FLAG.match(word) for word in argv) and not _asks_only(argv)


def answer_words(arguments: Sequence[str], settings: Mapping[str, str | None]) -> list[str]:
    """What a front's gate is told, as ``gate_program.front`` reads it."""
    return [str(len(arguments)), *arguments, *(k if v is None else f"{k}={v}" for k, v in settings.items())]


def going_on(name: str, argv: Sequence[str]) -> list[str]:
    """What has ninja or make go on after a failure; nothing where the command says already what it wants."""
    if _asks_only(argv):
        return []
    if name in NINJA_NAMES:
        return [] if any(map(_GOES_ON_FLAG.match, argv)) else ["-k", "0"]
    return ["-k"] if name in MAKE_NAMES and not {"-k", "--keep-going", "-S", "--stop"} & set(argv) else []


def ends_at_failure(argv: Sequence[str]) -> bool:
    """A ninja with these arguments starts nothing more after its first failure."""
    for word, following in pairwise([*argv, ""]):
        if match := _GOES_ON_FLAG.match(word):
            return (match["failures"] or following) == "1"
    return True


def planned_units(ninja: str, argv: Sequence[str], cwd: str) -> int | None:
    """How many units this ninja run has still to compile: those whose output is not there yet.

    None when ninja does not say.
    """
    edges = compile_edges(ninja, argv, cwd)
    return None if edges is None else sum(1 for edge in edges if not os.path.exists(edge.path))


def compile_edges(ninja: str, argv: Sequence[str], cwd: str) -> tuple[Edge, ...] | None:
    """The compiles among what this ninja run's targets need, done or not; None when ninja does not say.

    From ``-t compdb`` (all of the folder) and ``-t commands`` (what the targets need), which load the build files and
    no more: a dry run beside the real one would delete its response files, and tools that load ``.ninja_deps`` may
    write it.
    """
    if _asks_only(argv):
        return None
    where, targets = _where(argv)
    edges = every_edge(ninja, where, cwd)
    if edges is None:
        return None
    needed = set(_told(ninja, [*where, "-t", "commands", *targets], cwd).split("\n"))
    return tuple(edge for edge in edges if _COMPILES.search(edge.command) and edge.command in needed)


def every_edge(ninja: str, where: Sequence[str], cwd: str) -> tuple[Edge, ...] | None:
    """All that the build files have a command for; None when ninja does not say. ``where``: its ``-C`` and ``-f``."""
    listed = _told(ninja, [*where, "-t", "compdb"], cwd)
    try:
        return msgspec.json.decode(listed[listed.find("[") :], type=tuple[Edge, ...])
    except msgspec.MsgspecError:
        return None


def _told(ninja: str, words: Sequence[str], cwd: str) -> str:
    return run_captured([ninja, *words], cwd=cwd or None, timeout_s=PLAN_TIMEOUT_S, most_bytes=_MOST_PLAN_BYTES).output


def _where(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """ninja's ``-C`` and ``-f``, and its targets."""
    kept: list[str] = []
    targets: list[str] = []
    words = iter(argv)
    for word in words:
        if word[:2] in ("-C", "-f"):
            kept += [word] if len(word) > 2 else [word, next(words, "")]
        elif word in ("-j", "-k", "-l", "-d", "-w"):
            next(words, "")
        elif not word.startswith("-"):
            targets.append(word)
    return kept, targets


def ninja_log(name: str, argv: Sequence[str], cwd: str) -> Path | None:
    """Where this ninja run logs what is done: in ``builddir``, which is the folder that it works in if not named."""
    folder = _build_folder(name, argv, cwd)
    if folder is None:
        return None
    named = _NINJA_BUILDDIR.search(_head(folder / _ninja_file(name, argv)))
    return folder / (named["path"] if named and "$" not in named["path"] else "") / ".ninja_log"


def build_file(argv: Sequence[str], cwd: str) -> Path:
    """What a ninja that works in ``cwd`` builds by."""
    return Path(cwd, _ninja_file(NINJA_NAMES[0], argv))


def within_folder(argv: Sequence[str]) -> list[str]:
    """A ninja's words without ``-C``: one that runs is in that folder already."""
    kept: list[str] = []
    words = iter(argv)
    for word in words:
        if word == "-C":
            next(words, "")
        elif not word.startswith("-C"):
            kept.append(word)
    return kept


def _asks_only(argv: Sequence[str]) -> bool:
    return any(word.startswith("-t") or word in ("-n", "--version", "-h", "--help") for word in argv)


def _build_folder(name: str, argv: Sequence[str], cwd: str) -> Path | None:
    if name == "cmake":
        folder = argv[argv.index("--build") + 1] if "--build" in argv[:-1] else ""
        return Path(cwd, folder) if folder and not folder.startswith("-") else None
    found = Path(cwd)
    for index, word in enumerate(argv):
        if word in ("-C", "--directory") and index + 1 < len(argv):
            folder = argv[index + 1]
        elif word.startswith(("-C", "--directory=")) and word != "-C":
            folder = word.removeprefix("--directory=").removeprefix("-C")
        else:
            continue
        # make goes from one to the next; of ninja's the last counts.
        found = found / folder if name in MAKE_NAMES else Path(cwd, folder)
    return found


def _head(file: Path) -> str:
    return text_of(file, _MOST_READ_BYTES) or ""
