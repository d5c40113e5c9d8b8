"""Ask the programs that a build will run what they are: cmake, ninja, and the python that builds.

Covers: every cmake and ninja on PATH and in python's packages, each asked for its version, all at once; the ninjas that
build folders name, which are not run for that: a CMakeCache.txt may have come with an archive, and its ninja too.
Does *not* cover: python and torch (``intercept.build_python``), what versions mean (``doctor.build_tools``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from builddoctor.intercept.build_python import examine_python
from builddoctor.intercept.captured import run_captured
from builddoctor.intercept.side_by_side import Patience, side_by_side
from builddoctor.model.build_tools import BuildTools, Origin, Program
from builddoctor.model.source import BuildFiles, Source
from builddoctor.sensors.search_path import programs
from builddoctor.sensors.toolkits import is_overlay

PROBE_TIMEOUT_S = 5.0
PATIENCE_S = 8.0
"""for all programs together"""
MOST_PROGRAMS = 8
"""of one kind"""

CMAKE_NAMES = ("cmake",)
NINJA_NAMES = ("ninja-build", "ninja", "samu")

_VERSION = re.compile(r"^(?:cmake version )?(?P<version>\d+(?:\.\d+)+\S*)", re.MULTILINE)


def examine_build_tools(
    env: Mapping[str, str], source: Source | None = None, *, patience: Patience | None = None
) -> BuildTools:
    """What a build with this environment would find. Never raises; a program that does not answer says so.

    ``source``: the project, whose requirements are asked about too, and whose configured ninjas are named.
    """
    files = source.files if source is not None else BuildFiles()
    # cmake and ninja from pip are Python programs: an examination leaves no __pycache__ behind.
    env = {**env, "PYTHONDONTWRITEBYTECODE": "1"}
    patience = patience or Patience(PATIENCE_S)
    ask = partial(_ask, env=env, patience=patience)
    with side_by_side(patience) as pool:
        python = pool.submit(
            partial(examine_python, env, requires=files.requires, backend=files.backend, patience=patience)
        )
        cmakes = [pool.submit(partial(ask, name, path, origin="path")) for name, path in _on_path(CMAKE_NAMES, env)]
        ninjas = [pool.submit(partial(ask, name, path, origin="path")) for name, path in _on_path(NINJA_NAMES, env)]
        found, bins = python.result()
        if found is not None and found.version_of("cmake"):
            cmakes += [pool.submit(partial(ask, "cmake", path, origin="package")) for path in _programs(bins, "cmake")]
        if found is not None and found.version_of("ninja"):
            ninjas += [pool.submit(partial(ask, "ninja", path, origin="package")) for path in _programs(bins, "ninja")]
        known = _once(job.result() for job in ninjas)
        return msgspec.structs.replace(
            unasked_build_tools(env),
            ninjas=known,
            configured_ninjas=tuple(_configured(source, known)),
            cmakes=_once(job.result() for job in cmakes),
            python=found,
        )


def unasked_build_tools(env: Mapping[str, str]) -> BuildTools:
    """Where the tools are that nobody has to ask for a version: no program is run."""
    return BuildTools(
        make=_which("make", env),
        git=_which("git", env),
        ccache=_which("ccache", env),
        sccache=_which("sccache", env),
    )


def _ask(name: str, path: str, *, env: Mapping[str, str], origin: Origin, patience: Patience) -> Program:
    said = run_captured([path, "--version"], env=env, cwd="/", timeout_s=PROBE_TIMEOUT_S, patience=patience)
    match = _VERSION.search(said.output) if said.status == 0 else None
    if match is not None:
        return Program(name=name, path=path, version=match["version"], origin=origin)
    lines = said.output.strip().splitlines()
    problem = said.problem or (lines[0][:200] if lines else f"`--version` ended with status {said.status}")
    return Program(name=name, path=path, problem=problem, silent=said.silent, origin=origin)


def _on_path(names: Sequence[str], env: Mapping[str, str]) -> list[tuple[str, str]]:
    """(name, path) in the order in which CMake takes them, one for each real file, without gates of ours."""
    found: list[tuple[str, str]] = []
    real: set[str] = set()
    for name in names:
        for path in programs(name, env):
            if is_overlay(Path(path)) or os.path.realpath(path) in real:
                continue
            real.add(os.path.realpath(path))
            found.append((name, path))
    return found[:MOST_PROGRAMS]


def _programs(bins: Iterable[str], name: str) -> list[str]:
    return [path for folder in bins if os.access(path := f"{folder}/{name}", os.X_OK) and os.path.isfile(path)][:2]


def _configured(source: Source | None, known: Sequence[Program]) -> Iterator[Program]:
    """The ninjas that build folders were configured with: with a version where it is one of the ``known`` ones.

    Any other is named and not run.
    """
    versions = {os.path.realpath(ninja.path): ninja for ninja in known}
    paths = dict.fromkeys(folder.make_program for folder in source.build_folders) if source is not None else ()
    for path in paths:
        # A gate of ours stands for whatever is first on PATH; a name that holds a null byte is no file's.
        if os.path.basename(path) not in NINJA_NAMES or not os.path.isabs(path) or "\0" in path:
            continue
        if os.access(path, os.X_OK) and not is_overlay(Path(path)):
            same = versions.get(os.path.realpath(path))
            name, version, problem = os.path.basename(path), "", ""
            if same is not None:
                version, problem = same.version, same.problem
            yield Program(name=name, path=path, version=version, problem=problem, origin="folder")


def _once(programs: Iterable[Program]) -> tuple[Program, ...]:
    """One entry a real file: the scripts that pip puts on PATH may be links to the packages' own programs."""
    kept: dict[str, Program] = {}
    for program in programs:
        kept.setdefault(os.path.realpath(program.path), program)
    return tuple(kept.values())


def _which(name: str, env: Mapping[str, str]) -> str:
    return next((path for path in programs(name, env) if not is_overlay(Path(path))), "")
