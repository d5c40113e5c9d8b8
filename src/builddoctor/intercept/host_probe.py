"""Ask for the host compiler of nvcc: which one it calls, what that one is, and which C library it includes.

Covers: nvcc's own choice (``--dryrun`` with the user's variables), what CMake or torch hand to it instead
(CUDAHOSTCXX, CC), and further numbered compilers on PATH. Each is asked through its preprocessor, as
``crt/host_config.h`` asks it, so that a wrapper, a ``-ccbin`` and a conda compiler with a C library of its own give the
answer that a compile gets.
Does *not* cover: whether it is one that nvcc accepts (``doctor.toolkit``).
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

import msgspec

from builddoctor.intercept.captured import Captured, run_captured
from builddoctor.intercept.side_by_side import Patience
from builddoctor.model.toolchain import HostCompilerChoice
from builddoctor.model.toolkit import Toolkit
from builddoctor.sensors.cuda_headers import predefined
from builddoctor.sensors.nvcc_answers import parse_host_driver
from builddoctor.sensors.nvcc_dryrun import parse_settings
from builddoctor.sensors.search_path import first_program, path_folders

PROBE_S = 5.0
MOST_SPARES = 12
"""a machine with forty compilers is not asked for all of them"""
FLAG_VARIABLES = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")
_NUMBERED = re.compile(r"\A(?:g\+\+|clang\+\+)-\d{1,2}\Z")
_CCBIN = re.compile(r"(?:^|\s)(?:-ccbin|--compiler-bindir)(?:[=\s]|$)")

Taker = Literal["nvcc", "CMake", "torch", ""]


class NoHost(msgspec.Struct, frozen=True, kw_only=True):
    """Why nvcc names no host compiler."""

    text: str
    variables: tuple[str, ...] = ()
    """those without which it does"""
    silent: bool = False


def nvcc_host(toolkit: Toolkit, env: Mapping[str, str], patience: Patience) -> HostCompilerChoice | NoHost:
    """The host compiler that this nvcc calls by itself; why there is none, otherwise."""
    dry = _dry_run(toolkit, env, patience)
    driver = parse_host_driver(dry.output)
    if not driver:
        said = [line for line in dry.output.strip().splitlines() if not line.startswith("#$")]
        text = dry.problem or "; ".join(said[:2]) or "nvcc names none"
        variables = () if dry.silent else tuple(_to_blame(toolkit, env, patience))
        return NoHost(text=text, variables=variables, silent=dry.silent)
    settings = parse_settings(dry.output)
    found = first_program(driver, {"PATH": ":".join(settings.search_path)} if settings else env)
    return ask(found or driver, env, patience, because=_because(env), taken_by="nvcc")


def _to_blame(toolkit: Toolkit, env: Mapping[str, str], patience: Patience) -> list[str]:
    """Of the variables that nvcc reads, those that have to go so that it answers; none when that does not help."""
    present = [name for name in (*FLAG_VARIABLES, "NVCC_CCBIN") if env.get(name)]
    for names in (*([name] for name in present), present):
        without = {name: value for name, value in env.items() if name not in names}
        if names and parse_host_driver(_dry_run(toolkit, without, patience).output):
            return names
    return []


def _dry_run(toolkit: Toolkit, env: Mapping[str, str], patience: Patience) -> Captured:
    argv = [toolkit.nvcc, "--dryrun", "-c", "builddoctor-probe.cu"]
    return run_captured(argv, env=env, cwd="/", timeout_s=PROBE_S, patience=patience)


def handed_over(env: Mapping[str, str]) -> list[tuple[str, str, Taker]]:
    """(program, variable, who takes it) of host compilers that a build tool names to nvcc.

    CMake: CUDAHOSTCXX (CMakeDetermineCUDACompiler). torch: CC, unless a flag of the project's names one
    (torch.utils.cpp_extension).
    """
    named: tuple[tuple[str, Taker], ...] = (("CUDAHOSTCXX", "CMake"), ("CC", "torch"))
    found: list[tuple[str, str, Taker]] = []
    for variable, taken_by in named:
        words = _words(env.get(variable, ""))
        # `ccache gcc` cannot be a host compiler anyway.
        path = first_program(words[0], env) if len(words) == 1 else ""
        if path:
            found.append((path, variable, taken_by))
    return found


def spares(env: Mapping[str, str]) -> list[str]:
    """Further compilers on PATH that carry a number in their name, newest first, one for each program."""
    found: dict[str, str] = {}
    for folder in path_folders(env):
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in filter(_NUMBERED.match, names):
            found.setdefault(os.path.realpath(f"{folder}/{name}"), f"{folder}/{name}")
    return sorted(found.values(), key=lambda path: int(path.rpartition("-")[2]), reverse=True)[:MOST_SPARES]


def ask(
    driver: str, env: Mapping[str, str], patience: Patience, *, because: str, taken_by: Taker
) -> HostCompilerChoice:
    """What ``driver`` is to a compile. Kind and version are empty when it does not preprocess."""
    command = [driver, "-dM", "-E", "-x", "c++"]
    full = [*command, "-include", "features.h", os.devnull]
    asked = run_captured(full, env=env, cwd="/", timeout_s=PROBE_S, patience=patience)
    if asked.status != 0 and not asked.silent:
        # Without the C library's headers it can still say what it is.
        asked = run_captured([*command, os.devnull], env=env, cwd="/", timeout_s=PROBE_S, patience=patience)
    said = predefined(asked.output if asked.status == 0 else "")
    return HostCompilerChoice(
        driver=driver,
        because=because,
        taken_by=taken_by,
        kind=_kind(said.kind),
        version=said.version,
        glibc=said.glibc,
        silent=asked.silent,
    )


def first_flag(env: Mapping[str, str], variables: Iterable[str], has: Callable[[str], object]) -> str:
    """The first of these variables whose value has it; else empty."""
    return next((name for name in variables if has(env.get(name, ""))), "")


def _because(env: Mapping[str, str]) -> str:
    # The last of them wins: PREPEND, command line, APPEND.
    named = first_flag(env, reversed(FLAG_VARIABLES), _CCBIN.search)
    return named or ("NVCC_CCBIN" if env.get("NVCC_CCBIN") else "PATH")


def _kind(kind: str) -> Literal["gnu", "clang", ""]:
    return "gnu" if kind == "gnu" else "clang" if kind == "clang" else ""


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return []
