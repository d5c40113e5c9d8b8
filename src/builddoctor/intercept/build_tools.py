"""Ask the programs that a build will run what they are: cmake, ninja, and the python that builds.

Covers: every cmake and ninja on PATH and in python's packages, each asked for its version, all at once.
Does *not* cover: python and torch (``intercept.build_python``), what versions mean (``doctor.build_tools``).
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from builddoctor.intercept.build_python import examine_python
from builddoctor.intercept.captured import run_captured
from builddoctor.model.build_tools import BuildTools, Origin, Program
from builddoctor.model.source import BuildFiles, Source
from builddoctor.sensors.toolkits import is_overlay

PROBE_TIMEOUT_S = 5.0
MOST_PROGRAMS = 8
"""of one kind"""

CMAKE_NAMES = ("cmake",)
NINJA_NAMES = ("ninja-build", "ninja", "samu")

_VERSION = re.compile(r"^(?:cmake version )?(?P<version>\d+(?:\.\d+)+\S*)", re.MULTILINE)


def examine_build_tools(env: Mapping[str, str], source: Source | None = None) -> BuildTools:
    """What a build with this environment would find. Never raises; a program that does not answer says so.

    ``source``: the project, whose requirements and whose configured ninjas are asked about too.
    """
    files = source.files if source is not None else BuildFiles()
    # cmake and ninja from pip are Python programs: an examination leaves no __pycache__ behind.
    env = {**env, "PYTHONDONTWRITEBYTECODE": "1"}
    with ThreadPoolExecutor(max_workers=8) as pool:
        python = pool.submit(examine_python, env, requires=files.requires, backend=files.backend)
        cmakes = [pool.submit(_ask, name, path, env, "path") for name, path in _on_path(CMAKE_NAMES, env)]
        ninjas = [pool.submit(_ask, name, path, env, "path") for name, path in _on_path(NINJA_NAMES, env)]
        others = [pool.submit(_ask, os.path.basename(path), path, env, "folder") for path in _configured(source)]
        found, bins = python.result()
        if found is not None and found.version_of("cmake"):
            cmakes += [pool.submit(_ask, "cmake", path, env, "package") for path in _programs(bins, "cmake")]
        if found is not None and found.version_of("ninja"):
            ninjas += [pool.submit(_ask, "ninja", path, env, "package") for path in _programs(bins, "ninja")]
        return BuildTools(
            cmakes=_once(job.result() for job in cmakes),
            ninjas=_once(job.result() for job in ninjas),
            configured_ninjas=tuple(job.result() for job in others),
            make=_which("make", env),
            git=_which("git", env),
            ccache=_which("ccache", env),
            sccache=_which("sccache", env),
            python=found,
        )


def _ask(name: str, path: str, env: Mapping[str, str], origin: Origin) -> Program:
    said = run_captured([path, "--version"], env=env, cwd="/", timeout_s=PROBE_TIMEOUT_S)
    match = _VERSION.search(said.output) if said.status == 0 else None
    if match is not None:
        return Program(name=name, path=path, version=match["version"], origin=origin)
    lines = said.output.strip().splitlines()
    problem = said.problem or (lines[0][:200] if lines else f"`--version` ended with status {said.status}")
    return Program(name=name, path=path, problem=problem, origin=origin)


def _on_path(names: Sequence[str], env: Mapping[str, str]) -> list[tuple[str, str]]:
    """(name, path) in the order in which CMake takes them, one for each real file, without gates of ours."""
    found: list[tuple[str, str]] = []
    real: set[str] = set()
    for name in names:
        for folder in _path_folders(env):
            path = shutil.which(name, path=folder)
            if path is None or is_overlay(Path(path)) or os.path.realpath(path) in real:
                continue
            real.add(os.path.realpath(path))
            found.append((name, path))
    return found[:MOST_PROGRAMS]


def _programs(bins: Iterable[str], name: str) -> list[str]:
    return [path for folder in bins if os.access(path := f"{folder}/{name}", os.X_OK) and os.path.isfile(path)][:2]


def _configured(source: Source | None) -> list[str]:
    """The ninjas that build folders were configured with.

    Only programs called ninja that lie outside of the project: a cache file that came with a source tree must not make
    an examination run what came with it.
    """
    if source is None:
        return []
    inside = os.path.realpath(source.checkout or source.folder).rstrip("/") + "/"
    found: list[str] = []
    for path in dict.fromkeys(folder.make_program for folder in source.build_folders):
        if os.path.basename(path) not in NINJA_NAMES or not os.path.isabs(path) or not os.access(path, os.X_OK):
            continue
        if not os.path.realpath(path).startswith(inside) and not is_overlay(Path(path)):
            found.append(path)
    return found[:MOST_PROGRAMS]


def _once(programs: Iterable[Program]) -> tuple[Program, ...]:
    """One entry a real file: the scripts that pip puts on PATH may be links to the packages' own programs."""
    kept: dict[str, Program] = {}
    for program in programs:
        kept.setdefault(os.path.realpath(program.path), program)
    return tuple(kept.values())


def _which(name: str, env: Mapping[str, str]) -> str:
    for folder in _path_folders(env):
        path = shutil.which(name, path=folder)
        if path is not None and not is_overlay(Path(path)):
            return path
    return ""


def _path_folders(env: Mapping[str, str]) -> list[str]:
    return [folder for folder in (env.get("PATH") or os.defpath).split(":") if folder.startswith("/")]
