"""nvcc: the questions that it is asked, and how its answers are read.

Covers: ``--dryrun`` (its settings and the steps that it would run), ``--version``, ``--list-gpu-code``, ``--help``.
Answers of 12.8, 13.0 and 13.2 look alike. nvcc prints its settings as ``#$ NAME=value`` before its steps: ``_HERE_``
(folder of the nvcc that runs), ``TOP``, ``CICC_PATH``, ``PATH``, ``INCLUDES``, ``SYSTEM_INCLUDES``, ``LIBRARIES``. A
wrapper such as Debian's /usr/bin/nvcc is seen through, since the nvcc behind it prints its own folder.
Does *not* cover: finding an nvcc (``toolchain.discover``), which step is a phase's (``toolchain.phase_commands``).
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping

import msgspec

from builddoctor.core.toolchain import NvccPlace
from builddoctor.system.probes import Captured, Deadline, RunProbe

PROBE_S = 5.0
FLAG_VARIABLES = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")

_SETTING = re.compile(r"#\$ (?P<name>[A-Z_]+)=(?P<value>.*)\Z")
_REDIRECTED = re.compile(r"\s*> \S+ 2>\S+\s*\Z")
"""Behind steps that run side by side."""

_NOT_RUN = ("rm", "erase", "--")
_RELEASE = re.compile(r"release (?P<release>\d+\.\d+), V(?P<version>[\d.]+)")
_LISTED_ARCH = re.compile(r"^\s*sm_(\d{2,3}[af]?)\s*$", re.MULTILINE)
_QUOTED_ARCH = re.compile(r"'sm_(\d{2,3}[af]?)'")


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One program that a compiler driver would run."""

    line: str
    """for a shell"""
    words: tuple[str, ...]

    @property
    def name(self) -> str:
        return os.path.basename(self.words[0])


class DryRun(msgspec.Struct, frozen=True, kw_only=True):
    """All of one compilation, in order, and what nvcc sets for it."""

    steps: tuple[Step, ...]
    settings: Mapping[str, str] = {}

    @property
    def host_driver(self) -> str:
        """The host compiler that nvcc calls, as it spells it (``/usr/bin/g++-12``); empty when there is none."""
        preprocesses = {"-E", "-x", "c++"}
        return next((step.words[0] for step in self.steps if preprocesses.issubset(step.words)), "")


class NvccSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one nvcc. Folders are spelled as nvcc spells them."""

    here: str
    top: str
    cicc_folder: str
    search_path: tuple[str, ...]
    """where nvcc looks for cudafe++, ptxas and the host compiler, in order"""
    libdevice_folder: str = ""
    include_flags: tuple[str, ...] = ()
    library_flags: tuple[str, ...] = ()


def ask_dryrun(
    nvcc: str,
    env: Mapping[str, str],
    *,
    run: RunProbe,
    shown: str = "",
    timeout_s: float = PROBE_S,
    deadline: Deadline | None = None,
) -> Captured:
    """What ``nvcc`` prints before it would compile a file, which need not exist. ``shown``: another name to run under.

    It calls the host compiler, and makes files in TMPDIR, for any question.
    """
    argv = [shown or nvcc, "--dryrun", "-c", "builddoctor-probe.cu"]
    return run(argv, executable=nvcc if shown else None, env=env, cwd="/", timeout_s=timeout_s, deadline=deadline)


def ask_version(
    nvcc: str, env: Mapping[str, str], *, run: RunProbe, timeout_s: float = PROBE_S, deadline: Deadline | None = None
) -> str:
    """``13.0.88``; empty when it does not say."""
    said = run([nvcc, "--version"], env=env, cwd="/", timeout_s=timeout_s, deadline=deadline)
    return parse_version(said.output)


def ask_place(nvcc: str, env: Mapping[str, str], *, run: RunProbe, deadline: Deadline) -> tuple[NvccPlace, bool]:
    """Version and architectures of one nvcc, and whether it did not answer."""
    clean = without_flags(env)
    said: list[str] = []
    for option in ("--version", "--list-gpu-code", "--help"):
        asked = run([nvcc, option], env=clean, cwd="/", timeout_s=PROBE_S, deadline=deadline)
        if asked.silent:
            return NvccPlace(nvcc=nvcc), True
        said.append(asked.output)
    return NvccPlace(nvcc=nvcc, version=parse_version(said[0]), archs=parse_archs(said[1], said[2])), False


def without_flags(env: Mapping[str, str]) -> dict[str, str]:
    """Without what nvcc reads from variables of its own."""
    return {name: value for name, value in env.items() if not name.startswith("NVCC_")}


def parse_dryrun(text: str) -> DryRun:
    """What ``nvcc --dryrun`` printed. Warnings, comments and removals of files are no steps."""
    settings: dict[str, str] = {}
    steps: list[Step] = []
    for line in text.splitlines():
        if not line.startswith("#$ "):
            continue
        if (setting := _SETTING.match(line)) is not None:
            settings[setting["name"]] = setting["value"].strip()
            continue
        step = parse_step(_REDIRECTED.sub("", line[3:]).strip(), cicc_folder=settings.get("CICC_PATH", ""))
        if step is not None and step.name not in _NOT_RUN:
            steps.append(step)
    return DryRun(steps=tuple(steps), settings=settings)


def parse_step(line: str, *, cicc_folder: str = "") -> Step | None:
    """A command as a driver prints it; None for a line that is none."""
    try:
        words = shlex.split(line)
    except ValueError:
        return None
    return Step(line=line, words=tuple(word.replace("$CICC_PATH", cicc_folder) for word in words)) if words else None


def parse_settings(text: str) -> NvccSettings | None:
    """Settings from the output of ``nvcc --dryrun``; None when it is not that."""
    values = parse_dryrun(text).settings
    here, top = values.get("_HERE_"), values.get("TOP")
    if not here or not top:
        return None
    return NvccSettings(
        here=here,
        top=top,
        cicc_folder=values.get("CICC_PATH") or f"{top}/nvvm/bin",
        search_path=tuple(folder for folder in values.get("PATH", "").split(":") if folder),
        libdevice_folder=values.get("NVVMIR_LIBRARY_DIR", ""),
        include_flags=shell_words(values.get("INCLUDES", "")) + shell_words(values.get("SYSTEM_INCLUDES", "")),
        library_flags=shell_words(values.get("LIBRARIES", "")),
    )


def parse_version(text: str) -> str:
    """``13.0.88`` from ``nvcc --version``; empty when it is not there."""
    match = _RELEASE.search(text)
    return match["version"] if match else ""


def parse_archs(*texts: str) -> tuple[str, ...]:
    """All ``sm_…`` in the answers to ``--list-gpu-code`` and ``--help``, in rising order.

    The first names no ``a`` and ``f`` variants (13.0), the second names everything that ``-arch`` allows.
    """
    numbers = {number for text in texts for pattern in (_LISTED_ARCH, _QUOTED_ARCH) for number in pattern.findall(text)}
    return tuple(f"sm_{number}" for number in sorted(numbers, key=lambda one: (int(one.rstrip("af")), one)))


def shell_words(text: str) -> tuple[str, ...]:
    """Words as a shell splits them; none when quotes do not close."""
    try:
        return tuple(shlex.split(text))
    except ValueError:
        return ()
