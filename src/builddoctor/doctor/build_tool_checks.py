"""Checks of the tools of a build: cmake and ninja here; python, torch and variables by their own modules. Pure.

Covers: is there one that runs, is it new enough for the project, and which of several is taken.
Does *not* cover: compilers, and what earlier builds left: only there two ninjas undo each other's work
(``doctor.source_checks``).
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from builddoctor.core.check import Check, Status, Topic
from builddoctor.core.project import BuildFiles, KnownProject, Source
from builddoctor.core.toolchain import BuildTools, Toolkit
from builddoctor.doctor.environment_checks import variable_checks
from builddoctor.doctor.python_checks import python_checks, torch_checks
from builddoctor.doctor.tool_versions import first_cmake, first_ninja, numbers, short, torch_ninja
from builddoctor.projects.archs import Arch

OLDEST_POLICY = (3, 5)
"""CMake 4 takes no project that asks for less."""


def build_tool_checks(
    tools: BuildTools,
    *,
    source: Source | None,
    known: KnownProject | None,
    archs: tuple[Arch, ...],
    toolkit: Toolkit | None,
    env: Mapping[str, str],
    gpus: int | None = None,
) -> list[Check]:
    """Everything about the tools of a build; of what the project does not use, nothing is said.

    ``gpus``: how many this machine has, None when that is not known.
    """
    checks: list[Check] = []
    if source is None or source.files.uses_cmake:
        checks += _cmake(tools, source, known, env)
    if source is None or _uses_ninja(source):
        checks += _ninja(tools, source, known)
    if source is None or source.python:
        checks += python_checks(tools.python, source, known, tools)
    checks += torch_checks(tools.python, source, known, toolkit)
    return checks + variable_checks(source, known, archs, env, tools, gpus=gpus)


def _cmake(tools: BuildTools, source: Source | None, known: KnownProject | None, env: Mapping[str, str]) -> list[Check]:
    # A Python project may bring a cmake of its own; of a CMake project there is nothing else to build.
    needed = source is not None and source.cmake and not source.python

    def check(name: str, status: Status, text: str, hint: str = "", *, stops: bool = True) -> list[Check]:
        return [Topic.CMAKE.check(name, status, text, hint, stops=stops and needed)]

    used = first_cmake(tools, package_first=_package_first(source, known))
    if used is None:
        status = Status.WARNING if source is None else Status.PROBLEM
        return check("cmake", status, "no cmake on PATH", "pip install cmake")
    if used.silent:
        return check("cmake", Status.WARNING, f"{used.path} did not answer: {used.problem}")
    if used.problem:
        return check("cmake", Status.PROBLEM, f"{used.path} does not run: {used.problem}", "pip install cmake")
    files = source.files if source is not None else BuildFiles()
    version, minimum, certain = numbers(used.version), files.cmake_minimum, files.cmake_minimum_certain
    lowest, _, highest = minimum.partition("...")
    if version < numbers(lowest):
        text = f"{used.path} is {short(used.version)}, and the project asks for {lowest}"
        hint = f"pip install {shlex.quote(f'cmake>={lowest}')}"
        return check("cmake-version", Status.PROBLEM, text, hint, stops=certain)
    too_old = lowest and numbers(highest or lowest) < OLDEST_POLICY
    if version >= (4,) and too_old and not _policy_set(source, env):
        text = (
            f"cmake {short(used.version)} takes no project that asks for less than 3.5, and this one asks for {minimum}"
        )
        status = Status.PROBLEM if certain or not needed else Status.WARNING
        return check("cmake-policy", status, text, "export CMAKE_POLICY_VERSION_MINIMUM=3.5", stops=certain)
    wanted = f", {lowest} is enough" if lowest else ""
    return check("cmake", Status.OK, f"{short(used.version)} ({used.path}){wanted}")


def _policy_set(source: Source | None, env: Mapping[str, str]) -> bool:
    """By the environment, or kept in a build folder from an earlier ``cmake -D``."""
    folders = source.build_folders if source is not None else ()
    return bool(env.get("CMAKE_POLICY_VERSION_MINIMUM")) or any(folder.policy_minimum for folder in folders)


def _ninja(tools: BuildTools, source: Source | None, known: KnownProject | None) -> list[Check]:
    def check(name: str, status: Status, text: str, hint: str = "") -> list[Check]:
        return [Topic.NINJA.check(name, status, text, hint)]

    by_torch = source is not None and source.python and bool(source.files.uses_torch) and not source.files.uses_cmake
    used = torch_ninja(tools) if by_torch else first_ninja(tools, package_first=_package_first(source, known))
    if used is None:
        text = (
            "none on PATH: builddoctor lends its own to the builds it runs; by itself torch would compile file by file"
        )
        return check("ninja", Status.OK, text, "pip install ninja")
    if used.silent:
        return check("ninja", Status.WARNING, f"{used.path} did not answer: {used.problem}")
    if used.problem:
        text = f"{used.path} comes first and does not run ({used.problem}): torch goes without, one file at a time"
        return check("ninja", Status.WARNING, text, "pip install ninja")
    return check("ninja", Status.OK, f"{short(used.version)} ({used.path})")


def _uses_ninja(source: Source) -> bool:
    files = source.files
    return files.uses_cmake or bool(files.uses_torch or source.build_folders) or not (source.python or source.cmake)


def _package_first(source: Source | None, known: KnownProject | None) -> bool:
    """scikit-build-core, and TransformerEngine, take the programs of python's packages before PATH."""
    backend = source.files.backend if source is not None else ""
    return backend.startswith("scikit_build_core") or (known is not None and known.python_cmake_first)
