"""The steps of a compiler driver as it prints them itself: ``nvcc --dryrun`` and ``gcc -###``. Pure.

Covers: reading both; which step is a phase's, and which others make its input.
Does *not* cover: running any of them (``intercept.phase_again``).

nvcc 13.0 prints each step as a line for the shell behind ``#$ ``, after its settings (``#$ NAME=value``); steps that
run side by side end with ``> FILE 2>FILE``.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence

import msgspec

from builddoctor.intercept.command_lines import phase_facts

_SETTING = re.compile(r"#\$ (?P<name>[A-Z_]+)=(?P<value>.*)\Z")
_REDIRECTED = re.compile(r"\s*> \S+ 2>\S+\s*\Z")
_NOT_RUN = ("rm", "erase", "--")
_CUDA_TOOLS = frozenset(("cudafe++", "cicc", "ptxas", "fatbinary", "nvlink", "bin2c"))

_LEFT_OUT_WITH_VALUE = frozenset(
    (
        *("-o", "--output-file", "-MF", "-MT", "-MQ", "--dependency-output", "--threads", "-t", "--time", "-time"),
        *("--keep-dir", "-keep-dir", "-odir", "--output-directory", "-fdevice-time-trace"),
    )
)
_LEFT_OUT = frozenset(
    (
        *("-MD", "-MMD", "-MP", "-M", "-MM", "-MG", "--keep", "-keep", "-objtemp", "--objdir-as-tempdir", "-v"),
        *("--generate-dependencies-with-compile", "--generate-nonsystem-dependencies-with-compile", "--verbose"),
    )
)


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One program that a driver would run."""

    line: str
    """for a shell"""
    words: tuple[str, ...]

    @property
    def name(self) -> str:
        return os.path.basename(self.words[0])


class Steps(msgspec.Struct, frozen=True, kw_only=True):
    """All of one compilation, in order, and what nvcc sets for them."""

    steps: tuple[Step, ...]
    settings: Mapping[str, str] = {}


def read_dryrun(text: str) -> Steps:
    """What ``nvcc --dryrun`` printed."""
    settings: dict[str, str] = {}
    steps: list[Step] = []
    for line in text.splitlines():
        if not line.startswith("#$ "):
            continue
        if (setting := _SETTING.match(line)) is not None:
            settings[setting["name"]] = setting["value"].strip()
            continue
        plain = _REDIRECTED.sub("", line[3:]).strip()
        step = _step(plain, settings)
        if step is not None and step.name not in _NOT_RUN:
            steps.append(step)
    return Steps(steps=tuple(steps), settings=settings)


def read_inner(text: str) -> Steps:
    """What ``gcc -###`` printed: its programs on lines that begin with a blank."""
    steps = [step for line in text.splitlines() if line.startswith(" ") and (step := _step(line.strip(), {}))]
    return Steps(steps=tuple(steps))


def bare_arguments(argv: Sequence[str], *, output: str) -> list[str]:
    """A driver's arguments that write nothing but ``output``: no dependency files, nothing kept or timed."""
    words: list[str] = []
    skip = False
    for word in argv:
        name, equals, _ = word.partition("=")
        if skip:
            skip = False
        elif word in _LEFT_OUT_WITH_VALUE:
            skip = True
        elif word not in _LEFT_OUT and not (equals and name in _LEFT_OUT_WITH_VALUE) and not _is_threads(word):
            words.append(word)
    return [*words, "-o", output]


def find_step(steps: Sequence[Step], *, tool: str, kind: str, arch: str) -> int | None:
    """The place of the step that is, or contains, a phase; None when there is none.

    ``tool``: cc1plus and cc1 are found in the gcc that calls them. Of several alike the last: it is the host's.
    """
    found: int | None = None
    for place, step in enumerate(steps):
        if tool in _CUDA_TOOLS:
            if step.name == tool and (not arch or _arch_of(step) in (arch, "")):
                return place
        elif step.name not in _CUDA_TOOLS and tool in (step.name, "cc1plus", "cc1", "collect2"):
            inner = phase_facts("cc1plus", step.words[1:], {}).kind
            if inner.value == kind and (not arch or arch.removeprefix("sm_") in _macro_arch(step)):
                found = place
    return found


def steps_before(steps: Sequence[Step], place: int) -> list[int]:
    """Places of the steps that make what the step at ``place`` reads, in order.

    A temporary file is made by the first step that names it. A host compilation includes files that its command line
    does not name: all steps before it are its.
    """
    if steps[place].name not in _CUDA_TOOLS:
        return list(range(place)) if "-E" not in steps[place].words else []
    makers: dict[str, int] = {}
    for index, step in enumerate(steps[: place + 1]):
        for path in _paths(step):
            makers.setdefault(path, index)
    needed: set[int] = set()
    pending = [place]
    while pending:
        at = pending.pop()
        for path in _paths(steps[at]):
            if (maker := makers[path]) < at and maker not in needed:
                needed.add(maker)
                pending.append(maker)
    return sorted(needed)


def is_nvcc(tool: str) -> bool:
    """The driver is nvcc; all others are taken for a gcc."""
    return os.path.basename(tool) == "nvcc"


def _step(line: str, settings: Mapping[str, str]) -> Step | None:
    try:
        words = shlex.split(line)
    except ValueError:
        return None
    if not words:
        return None
    cicc = settings.get("CICC_PATH", "")
    return Step(line=line, words=tuple(word.replace("$CICC_PATH", cicc) for word in words))


def _paths(step: Step) -> list[str]:
    """Absolute paths in its words; behind ``=`` too."""
    ends = (word.rpartition("=")[2] for word in step.words[1:])
    return [end for end in ends if end.startswith("/")]


def _arch_of(step: Step) -> str:
    return phase_facts(step.name, step.words[1:], {}).arch if step.name in ("cicc", "ptxas", "nvlink") else ""


def _macro_arch(step: Step) -> list[str]:
    """``90`` of ``-D__CUDA_ARCH__=900``."""
    marks = [word.rpartition("=")[2] for word in step.words if word.startswith("-D__CUDA_ARCH__=")]
    return [mark.removesuffix("0") for mark in marks]


def _is_threads(word: str) -> bool:
    return word.startswith("-t") and word[2:].isdigit()
