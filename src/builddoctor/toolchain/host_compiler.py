"""Host compilers: which ones a build may call, what each is, and the programs in them that take memory.

Covers: every gcc that a build may call (PATH, CC, CXX, NVCC_CCBIN, CUDAHOSTCXX), asked for its own cc1plus; clang; the
one that nvcc calls (``--dryrun`` with the user's variables), or that CMake or torch hand to it instead.
A gcc finds ``cc1plus`` in COMPILER_PATH under its own machine and version first, so a gate there catches that gcc
however it is called: by PATH, by an absolute path in a CMakeCache, by nvcc's ``-ccbin``, behind ccache (docs/adr/0003).
Clang in one process has no such step: it is gated as a whole, where it is found by PATH.
What a compiler is to a compile is asked through its preprocessor, as ``crt/host_config.h`` asks it, so that a wrapper,
a ``-ccbin`` and a conda compiler with a C library of its own give the answer that a compile gets.
Does *not* cover: whether it is one that nvcc accepts (``doctor.host_compiler_checks``).
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec

from builddoctor.core.toolchain import HostCompiler, HostCompilerChoice, Toolkit
from builddoctor.system.probes import (
    PROBE_TIMEOUT_S,
    Captured,
    Deadline,
    RunProbe,
    first_program,
    job_pool,
    path_folders,
)
from builddoctor.toolchain.cuda_libraries import macro_value
from builddoctor.toolchain.nvcc import FLAG_VARIABLES, PROBE_S, ask_dryrun, parse_dryrun, parse_settings, shell_words

ALL_COMPILERS_S = 10 * PROBE_TIMEOUT_S
"""For all compilers. One that was not asked is not gated: only Ctrl-C is to end the questions."""

MOST_SPARES = 12
"""a machine with forty compilers is not asked for all of them"""

PROGRAMS = ("cc1", "cc1plus", "lto1", "collect2")
_GCC_NAME = re.compile(r"\A(?:[\w.]+-)*(?:gcc|g\+\+|cc|c\+\+)(?:-\d+(?:\.\d+)*)?\Z")
_CLANG_NAME = re.compile(r"\Aclang(?:\+\+)?(?:-\d+)?\Z")
_NUMBERED = re.compile(r"\A(?:g\+\+|clang\+\+)-\d{1,2}\Z")
_CCBIN = re.compile(r"(?:^|\s)(?:-ccbin|--compiler-bindir)(?:[=\s]|$)")

Taker = Literal["nvcc", "CMake", "torch", ""]


class NoHost(msgspec.Struct, frozen=True, kw_only=True):
    """Why nvcc names no host compiler."""

    text: str
    variables: tuple[str, ...] = ()
    """those without which it does"""
    silent: bool = False


class Preprocessed(msgspec.Struct, frozen=True):
    """What a compiler's predefined macros say of it."""

    kind: Literal["gnu", "clang", ""]
    version: str
    glibc: str


def host_compilers(
    env: Mapping[str, str], *, run: RunProbe, folders: Sequence[str] | None = None
) -> list[HostCompiler]:
    """All gcc found, one entry for each machine and version; none for those that two different gcc share.

    ``folders``: look in these, and not in all of PATH.
    """
    clean = {name: value for name, value in env.items() if name not in ("COMPILER_PATH", "GCC_EXEC_PREFIX")}
    found: dict[tuple[str, str], HostCompiler] = {}
    ambiguous: set[tuple[str, str]] = set()
    drivers: dict[str, str] = {}
    for driver in _drivers(env, path_folders(env) if folders is None else folders):
        real = os.path.realpath(driver)
        if real not in drivers and os.access(real, os.X_OK) and "ccache" not in Path(real).name:
            drivers[real] = driver
    deadline = Deadline(ALL_COMPILERS_S)
    with job_pool(deadline) as pool:
        jobs = [(driver, pool.submit(partial(_ask_gcc, driver, clean, deadline, run))) for driver in drivers.values()]
        answers, refused = [], []
        for driver, job in jobs:
            try:
                answers.append(job.result())
            except _NotStartedError:
                refused.append(driver)
    for driver in refused:
        # Where processes are few (``ulimit -u``, pids.max) eight at once may be too many, and one is not.
        with contextlib.suppress(_NotStartedError):
            answers.append(_ask_gcc(driver, clean, deadline, run))
    for compiler in filter(None, answers):
        key = (compiler.machine, compiler.version)
        if found.setdefault(key, compiler).programs != compiler.programs:
            ambiguous.add(key)
    return [compiler for key, compiler in found.items() if key not in ambiguous]


def uncaught_driver(env: Mapping[str, str], gates: Path, *, run: RunProbe) -> str:
    """The g++ that a build finds first, when it does not take its cc1plus from COMPILER_PATH; else empty.

    A gcc that was moved from where it was configured looks beside itself first.
    """
    driver = next((driver for driver in _drivers(env, path_folders(env)) if Path(driver).name in ("g++", "c++")), "")
    if not driver or "ccache" in os.path.realpath(driver):
        return ""
    asked = run([driver, "-print-prog-name=cc1plus"], env={**env, "COMPILER_PATH": str(gates)})
    return driver if asked.status == 0 and not asked.output.strip().startswith(f"{gates}/") else ""


def clangs(env: Mapping[str, str]) -> list[tuple[str, str]]:
    """(name, path) of each clang driver on PATH, first of a name only."""
    found: dict[str, str] = {}
    for folder in path_folders(env):
        for name in _names(folder):
            if _CLANG_NAME.match(name):
                found.setdefault(name, f"{folder}/{name}")
    return sorted(found.items())


def nvcc_host(
    toolkit: Toolkit, env: Mapping[str, str], deadline: Deadline, *, run: RunProbe
) -> HostCompilerChoice | NoHost:
    """The host compiler that this nvcc calls by itself; why there is none, otherwise."""
    dry = ask_dryrun(toolkit.nvcc, env, run=run, deadline=deadline)
    driver = parse_dryrun(dry.output).host_driver
    if not driver:
        said = [line for line in dry.output.strip().splitlines() if not line.startswith("#$")]
        text = dry.problem or "; ".join(said[:2]) or "nvcc names none"
        variables = () if dry.silent else tuple(_to_blame(toolkit, env, deadline, run))
        return NoHost(text=text, variables=variables, silent=dry.silent)
    settings = parse_settings(dry.output)
    found = first_program(driver, {"PATH": ":".join(settings.search_path)} if settings else env)
    return ask_host(found or driver, env, deadline, run=run, because=_because(env), taken_by="nvcc")


def handed_over(env: Mapping[str, str]) -> list[tuple[str, str, Taker]]:
    """(program, variable, what takes it) of host compilers that a build tool names to nvcc.

    CMake: CUDAHOSTCXX (CMakeDetermineCUDACompiler). torch: CC, unless a flag of the project's names one
    (torch.utils.cpp_extension).
    """
    named: tuple[tuple[str, Taker], ...] = (("CUDAHOSTCXX", "CMake"), ("CC", "torch"))
    found: list[tuple[str, str, Taker]] = []
    for variable, taken_by in named:
        words = shell_words(env.get(variable, ""))
        # `ccache gcc` cannot be a host compiler anyway.
        path = first_program(words[0], env) if len(words) == 1 else ""
        if path:
            found.append((path, variable, taken_by))
    return found


def spares(env: Mapping[str, str]) -> list[str]:
    """Further compilers on PATH that carry a number in their name, newest first, one for each program."""
    found: dict[str, str] = {}
    for folder in path_folders(env):
        for name in filter(_NUMBERED.match, _names(folder)):
            found.setdefault(os.path.realpath(f"{folder}/{name}"), f"{folder}/{name}")
    return sorted(found.values(), key=lambda path: int(path.rpartition("-")[2]), reverse=True)[:MOST_SPARES]


def ask_host(
    driver: str, env: Mapping[str, str], deadline: Deadline, *, run: RunProbe, because: str, taken_by: Taker
) -> HostCompilerChoice:
    """What ``driver`` is to a compile. Kind and version are empty when it does not preprocess."""
    command = [driver, "-dM", "-E", "-x", "c++"]
    full = [*command, "-include", "features.h", os.devnull]
    asked = run(full, env=env, cwd="/", timeout_s=PROBE_S, deadline=deadline)
    if asked.status != 0 and not asked.silent:
        # Without the C library's headers it can still say what it is.
        asked = run([*command, os.devnull], env=env, cwd="/", timeout_s=PROBE_S, deadline=deadline)
    said = predefined(asked.output if asked.status == 0 else "")
    return HostCompilerChoice(
        driver=driver,
        because=because,
        taken_by=taken_by,
        kind=said.kind,
        version=said.version,
        glibc=said.glibc,
        silent=asked.silent,
    )


def first_flag(env: Mapping[str, str], variables: Iterable[str], has: Callable[[str], object]) -> str:
    """The first of these variables whose value has it; else empty."""
    return next((name for name in variables if has(env.get(name, ""))), "")


def predefined(text: str) -> Preprocessed:
    """Kind, version and C library from the output of ``-dM -E``; empty where it does not say."""
    clang = [macro_value(f"__clang_{part}__", text) for part in ("major", "minor", "patchlevel")]
    gnu = [macro_value(f"__GNUC{part}__", text) for part in ("", "_MINOR", "_PATCHLEVEL")]
    libc = [macro_value(macro, text) for macro in ("__GLIBC__", "__GLIBC_MINOR__")]
    # clang also claims to be gcc 4.2.
    is_clang = clang[0] is not None
    version = ".".join(str(part) for part in (clang if is_clang else gnu) if part is not None)
    glibc = ".".join(str(part) for part in libc if part is not None) if libc[0] is not None else ""
    return Preprocessed("" if not version else "clang" if is_clang else "gnu", version, glibc)


class _NotStartedError(Exception):
    """The compiler was not even asked."""


def _ask_gcc(driver: str, env: Mapping[str, str], deadline: Deadline, run: RunProbe) -> HostCompiler | None:
    def ask(question: str) -> Captured:
        said = run([driver, question], env=env, deadline=deadline)
        if said.status is None and not said.silent:
            raise _NotStartedError
        return said

    machine = ask("-dumpmachine")
    if machine.status != 0:
        return None
    version = ask("-dumpversion")
    if version.status != 0:
        return None
    programs = []
    for name in PROGRAMS:
        path = ask(f"-print-prog-name={name}").output.strip()
        # A program that this gcc does not have is answered with its bare name.
        if os.path.isabs(path) and os.access(path, os.X_OK):
            programs.append((name, os.path.realpath(path)))
    parts = (machine.output.strip(), version.output.strip())
    if not programs or not all(re.fullmatch(r"[\w.+-]+", part) for part in parts):
        return None
    return HostCompiler(driver=driver, machine=parts[0], version=parts[1], programs=tuple(programs))


def _drivers(env: Mapping[str, str], folders: Sequence[str]) -> Iterator[str]:
    for variable in ("CXX", "CC", "CUDAHOSTCXX", "NVCC_CCBIN"):
        for word in shell_words(env.get(variable, "")):
            if "/" in word:
                yield word if not os.path.isdir(word) else f"{word}/g++"
    for folder in folders:
        for name in sorted(_names(folder)):
            if _GCC_NAME.match(name):
                yield f"{folder}/{name}"


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _to_blame(toolkit: Toolkit, env: Mapping[str, str], deadline: Deadline, run: RunProbe) -> list[str]:
    """Of the variables that nvcc reads, those that have to go so that it answers; none when that does not help."""
    present = [name for name in (*FLAG_VARIABLES, "NVCC_CCBIN") if env.get(name)]
    for names in (*([name] for name in present), present):
        without = {name: value for name, value in env.items() if name not in names}
        if names and parse_dryrun(ask_dryrun(toolkit.nvcc, without, run=run, deadline=deadline).output).host_driver:
            return names
    return []


def _because(env: Mapping[str, str]) -> str:
    # The last of them wins: PREPEND, command line, APPEND.
    named = first_flag(env, reversed(FLAG_VARIABLES), _CCBIN.search)
    return named or ("NVCC_CCBIN" if env.get("NVCC_CCBIN") else "PATH")
