"""Host compilers of this machine, and the programs in them that take memory.

Covers: every gcc that a build may call (PATH, CC, CXX, NVCC_CCBIN, CUDAHOSTCXX), asked for its own cc1plus; clang.
A gcc finds ``cc1plus`` in COMPILER_PATH under its own machine and version first, so a gate there catches that gcc
however it is called: by PATH, by an absolute path in a CMakeCache, by nvcc's ``-ccbin``, behind ccache (docs/adr/0003).
Does *not* cover: clang in one process, which has no such step: it is gated as a whole, where it is found by PATH.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from builddoctor.intercept.captured import PROBE_TIMEOUT_S, Captured, run_captured
from builddoctor.intercept.side_by_side import Patience, side_by_side
from builddoctor.model.toolkit import HostCompiler
from builddoctor.sensors.search_path import path_folders

PATIENCE_S = 10 * PROBE_TIMEOUT_S
"""For all compilers. One that was not asked is not gated: only Ctrl-C is to end the questions."""

PROGRAMS = ("cc1", "cc1plus", "lto1", "collect2")
_GCC_NAME = re.compile(r"\A(?:[\w.]+-)*(?:gcc|g\+\+|cc|c\+\+)(?:-\d+(?:\.\d+)*)?\Z")
_CLANG_NAME = re.compile(r"\Aclang(?:\+\+)?(?:-\d+)?\Z")


def host_compilers(env: Mapping[str, str]) -> list[HostCompiler]:
    """All gcc found, one entry for each machine and version; none for those that two different gcc share."""
    clean = {name: value for name, value in env.items() if name not in ("COMPILER_PATH", "GCC_EXEC_PREFIX")}
    found: dict[tuple[str, str], HostCompiler] = {}
    ambiguous: set[tuple[str, str]] = set()
    drivers: dict[str, str] = {}
    for driver in _drivers(env):
        real = os.path.realpath(driver)
        if real not in drivers and os.access(real, os.X_OK) and "ccache" not in Path(real).name:
            drivers[real] = driver
    patience = Patience(PATIENCE_S)
    with side_by_side(patience) as together:
        jobs = [(driver, together.submit(partial(_ask, driver, clean, patience))) for driver in drivers.values()]
        answers, refused = [], []
        for driver, job in jobs:
            try:
                answers.append(job.result())
            except _NotStartedError:
                refused.append(driver)
    for driver in refused:
        # Where processes are few (``ulimit -u``, pids.max) eight at once may be too many, and one is not.
        with contextlib.suppress(_NotStartedError):
            answers.append(_ask(driver, clean, patience))
    for compiler in filter(None, answers):
        key = (compiler.machine, compiler.version)
        if found.setdefault(key, compiler).programs != compiler.programs:
            ambiguous.add(key)
    return [compiler for key, compiler in found.items() if key not in ambiguous]


def uncaught_driver(env: Mapping[str, str], gates: Path) -> str:
    """The g++ that a build finds first, when it does not take its cc1plus from COMPILER_PATH; else empty.

    A gcc that was moved from where it was configured looks beside itself first.
    """
    driver = next((driver for driver in _drivers(env) if Path(driver).name in ("g++", "c++")), "")
    if not driver or "ccache" in os.path.realpath(driver):
        return ""
    asked = run_captured([driver, "-print-prog-name=cc1plus"], env={**env, "COMPILER_PATH": str(gates)})
    return driver if asked.status == 0 and not asked.output.strip().startswith(f"{gates}/") else ""


def clangs(env: Mapping[str, str]) -> list[tuple[str, str]]:
    """(name, path) of each clang driver on PATH, first of a name only."""
    found: dict[str, str] = {}
    for folder in path_folders(env):
        for name in _names(folder):
            if _CLANG_NAME.match(name):
                found.setdefault(name, f"{folder}/{name}")
    return sorted(found.items())


class _NotStartedError(Exception):
    """The compiler was not even asked."""


def _ask(driver: str, env: Mapping[str, str], patience: Patience) -> HostCompiler | None:
    def ask(question: str) -> Captured:
        said = run_captured([driver, question], env=env, patience=patience)
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


def _drivers(env: Mapping[str, str]) -> Iterator[str]:
    for variable in ("CXX", "CC", "CUDAHOSTCXX", "NVCC_CCBIN"):
        for word in _words(env.get(variable, "")):
            if "/" in word:
                yield word if not os.path.isdir(word) else f"{word}/g++"
    for folder in path_folders(env):
        for name in sorted(_names(folder)):
            if _GCC_NAME.match(name):
                yield f"{folder}/{name}"


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return []


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
