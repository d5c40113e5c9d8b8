"""The programs that a build will run beside compilers: cmake, ninja, make, and the python that builds.

Covers: every cmake and ninja on PATH and in python's packages, each asked for its version, all at once; the ninjas that
build folders name, which are not run for that: a CMakeCache.txt may have come with an archive, and its ninja too. The
python's headers and packages, by one short process that prints what it knows of itself; torch's version from the text
of its version.py, for to import torch takes seconds and a gigabyte.
Does *not* cover: what versions mean (``doctor.build_tool_checks``, ``doctor.python_checks``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from builddoctor.core.project import BuildFiles, Source
from builddoctor.core.toolchain import BuildPython, BuildTools, Origin, Package, Program, Torch
from builddoctor.system.probes import Deadline, RunProbe, first_program, job_pool, programs
from builddoctor.system.source_files import exists, text_of
from builddoctor.toolchain.discover import is_overlay

PROBE_S = 5.0
ALL_TOOLS_S = 8.0
"""for all programs together"""
MOST_PROGRAMS = 8
"""of one kind"""

CMAKE_NAMES = ("cmake",)
NINJA_NAMES = ("ninja-build", "ninja", "samu")

_VERSION = re.compile(r"^(?:cmake version )?(?P<version>\d+(?:\.\d+)+\S*)", re.MULTILINE)

ALWAYS_ASKED = ("pip", "setuptools", "wheel", "ninja", "cmake", "pybind11", "torch")

_PROGRAM = """
import json, os, sys, sysconfig
from importlib import metadata, util
def version(name):
    try:
        return metadata.version(name) or ""
    except Exception:
        return ""
def place(module):
    try:
        spec = util.find_spec(module)
        return (spec.origin or list(spec.submodule_search_locations)[0]) if spec else ""
    except Exception:
        return ""
bins = [os.path.join(os.path.dirname(place("ninja") or "/nowhere/x"), "data", "bin"),
        os.path.join(os.path.dirname(place("cmake") or "/nowhere/x"), "data", "bin"), sysconfig.get_path("scripts")]
answer = {"version": sys.version.split()[0], "include": sysconfig.get_path("include"), "torch": place("torch"),
          "virtual": sys.prefix != sys.base_prefix, "conda": os.path.isdir(os.path.join(sys.prefix, "conda-meta")),
          "backend": place(sys.argv[1]) if sys.argv[1] else "-", "bins": bins,
          "packages": [[name, version(name)] for name in sys.argv[2:]]}
print("\\x1e" + json.dumps(answer) + "\\x1e")
"""
"""Python 3.8 and later. Between separators: what sitecustomize prints must not be taken for the answer."""

_ASSIGNED = re.compile(
    r"""^(?P<name>__version__|cuda|hip|rocm)\s*(?::[^=\n]*)?=\s*(?:['"](?P<text>[^'"\n]*)['"]|None)""", re.MULTILINE
)


class _Answer(msgspec.Struct):
    version: str
    include: str
    torch: str
    virtual: bool
    conda: bool
    backend: str
    bins: list[str]
    packages: list[tuple[str, str]]


def examine_build_tools(
    env: Mapping[str, str], source: Source | None = None, *, run: RunProbe, deadline: Deadline | None = None
) -> BuildTools:
    """What a build with this environment would find. Never raises; a program that does not answer says so.

    ``source``: the project, whose requirements are asked about too, and whose configured ninjas are named.
    """
    files = source.files if source is not None else BuildFiles()
    # cmake and ninja from pip are Python programs: an examination leaves no __pycache__ behind.
    env = {**env, "PYTHONDONTWRITEBYTECODE": "1"}
    deadline = deadline or Deadline(ALL_TOOLS_S)
    ask = partial(_ask, env=env, run=run, deadline=deadline)
    with job_pool(deadline) as pool:
        python = pool.submit(
            partial(examine_python, env, run=run, requires=files.requires, backend=files.backend, deadline=deadline)
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
    """Tools whose version does not matter: no program is run."""
    return BuildTools(
        make=_which("make", env),
        git=_which("git", env),
        sccache=_which("sccache", env),
    )


def build_python_path(env: Mapping[str, str]) -> str:
    """The python that ``projects.build_plan`` builds with; empty when there is none."""
    return first_program("python", env) or first_program("python3", env)


def examine_python(
    env: Mapping[str, str],
    *,
    run: RunProbe,
    requires: Sequence[str],
    backend: str,
    deadline: Deadline | None = None,
) -> tuple[BuildPython | None, tuple[str, ...]]:
    """The python that builds, and folders in which its packages keep programs. Never raises."""
    path = build_python_path(env)
    if not path:
        return None, ()
    module = backend.partition(":")[0].partition(".")[0]
    names = list(dict.fromkeys([*ALWAYS_ASKED, *requirement_names(requires)]))
    # In "/": with -c, python looks for modules in the current folder first, and the project's may be called torch.
    argv = [path, "-c", _PROGRAM, module, *names]
    said = run(argv, env=env, cwd="/", timeout_s=PROBE_S, deadline=deadline)
    parts = said.output.split("\x1e")
    try:
        answer = msgspec.json.decode(parts[1] if said.status == 0 and len(parts) == 3 else "", type=_Answer)
    except msgspec.MsgspecError:
        lines = said.output.strip().splitlines()
        problem = said.problem or (lines[-1][:200] if lines else f"it ended with status {said.status}")
        return BuildPython(path=path, problem=problem, silent=said.silent), ()
    found = BuildPython(
        path=path,
        version=answer.version,
        include=answer.include,
        headers=exists(Path(answer.include, "Python.h")),
        virtual=answer.virtual,
        conda=answer.conda,
        packages=tuple(Package(name=name, version=version) for name, version in answer.packages if version),
        missing_backend="" if answer.backend else module,
        torch=torch_of(Path(answer.torch).parent, dict(answer.packages).get("torch", "")) if answer.torch else None,
    )
    return found, tuple(answer.bins)


def torch_of(folder: Path, installed: str) -> Torch | None:
    """torch in ``folder`` by its version.py; without one, the version that its package has.

    None for a folder that merely is called torch: no version.py, and nothing installed.
    """
    text = text_of(folder / "version.py")
    if text is None:
        return Torch(version=installed, folder=str(folder)) if installed else None
    said = {match["name"]: match["text"] or "" for match in _ASSIGNED.finditer(text)}
    return Torch(
        version=said.get("__version__", "") or installed,
        cuda=said.get("cuda", ""),
        rocm=bool(said.get("hip") or said.get("rocm")),
        folder=str(folder),
    )


def requirement_names(requires: Sequence[str]) -> list[str]:
    """Names of the packages that these requirements name for this machine, as pip spells them."""
    return [canonicalize_name(need.name) for need in parse_requires(requires)]


def parse_requires(requires: Sequence[str]) -> list[Requirement]:
    """Those that can be read and apply to this machine (by its markers)."""
    kept: list[Requirement] = []
    for text in requires:
        try:
            need = Requirement(text)
            if need.marker is None or need.marker.evaluate():
                kept.append(need)
        except (InvalidRequirement, ValueError, KeyError):
            continue
    return kept


def _ask(name: str, path: str, *, env: Mapping[str, str], run: RunProbe, origin: Origin, deadline: Deadline) -> Program:
    said = run([path, "--version"], env=env, cwd="/", timeout_s=PROBE_S, deadline=deadline)
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
