"""How a project is built on another machine: its command, variables and packages without any path of this one.

Covers: known projects without their sources, and folders with sources. ``{python}``, ``{source}``, ``{wheels}`` and
``{build}`` stand for what that machine has. Does *not* cover: jobs and threads, or writing it out (``render.recipes``).
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path, PurePosixPath

import msgspec

from builddoctor.model.known_project import KnownProject
from builddoctor.projects.archs import Arch, arch_environment
from builddoctor.projects.plan import BUILD_FOLDER, plan_build, project_settings
from builddoctor.sensors.build_system import parse_build_system
from builddoctor.sensors.source_files import text_of

WHEEL = (
    *("{python}", "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-cache-dir", "--verbose"),
    *("--wheel-dir", "{wheels}"),
)
PACKAGES = ("setuptools", "wheel", "packaging", "ninja", "cmake")
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_PYTHON = re.compile(r"python[\d.]*t?\Z")


NOBODY = {"PATH": "/nonexistent"}
"""An environment of nobody's: what is set or installed here is not there."""


class PortableBuild(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    kind: str = "python"
    """as in ``model.build_plan``; a build by ``make`` has no stages"""
    command: tuple[str, ...]
    subfolder: str = ""
    """of the checkout: where the command runs"""
    archs: tuple[tuple[str, str], ...] = ()
    """variables that the architectures are in"""
    settings: tuple[tuple[str, str], ...] = ()
    """other variables that it does not build without"""
    packages: tuple[str, ...] = PACKAGES
    """to be installed before"""


def portable_build(known: KnownProject | None, folder: Path | None, archs: tuple[Arch, ...]) -> PortableBuild:
    """``folder``: the sources, where they are here. Raises NoBuildSystemError, ProjectNotFoundError."""
    if folder is not None:
        return _of_folder(known, folder, archs)
    command: tuple[str, ...] = WHEEL
    settings = arch_environment(archs)
    if known is not None:
        command += tuple(f"--config-settings={each}" for each in known.config_settings)
        settings = settings | _of_known(known, archs)
    return _sorted((*command, "{source}"), settings, known, _packages(known, ""), archs)


def _of_folder(known: KnownProject | None, folder: Path, archs: tuple[Arch, ...]) -> PortableBuild:
    plan = plan_build(folder, known, archs, NOBODY)
    top = Path(plan.folder)
    if plan.kind != "python":
        command = _cmake(archs) if plan.kind == "cmake" else (plan.kind,)
        return PortableBuild(
            kind=plan.kind, command=command, archs=tuple(arch_environment(archs).items()), packages=("ninja", "cmake")
        )
    marks = {str(top / BUILD_FOLDER): "{build}", plan.output: "{wheels}", str(top): "{source}"}
    words = [_marked(each, marks) for each in plan.command]
    if _PYTHON.match(PurePosixPath(words[0]).name):
        words[0] = "{python}"
    settings = {name: _marked(value, marks) for name, value in plan.settings}
    packages = _packages(known, text_of(top / "pyproject.toml") or "")
    return _sorted(tuple(words), settings, known, packages, archs)


def _cmake(archs: tuple[Arch, ...]) -> tuple[str, ...]:
    """In the folder itself, in words that no shell splits in another way."""
    configure = "cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release"
    if archs:
        configure += f" -DCMAKE_CUDA_ARCHITECTURES='{';'.join(dict.fromkeys(arch.number for arch in archs))}'"
    return ("/bin/sh", "-c", f"{configure} && exec cmake --build build")


def _sorted(
    command: tuple[str, ...],
    settings: dict[str, str],
    known: KnownProject | None,
    packages: tuple[str, ...],
    archs: tuple[Arch, ...],
) -> PortableBuild:
    """Variables with architectures, and others."""
    with_archs = set(arch_environment(archs))
    if known is not None and known.archs is not None:
        # One of a known project's own is all that it reads.
        settings = {name: value for name, value in settings.items() if name not in with_archs - {known.archs.variable}}
        with_archs.add("CMAKE_ARGS" if known.archs.variable.startswith("-D") else known.archs.variable)
    return PortableBuild(
        command=command,
        subfolder=known.subfolder if known is not None else "",
        archs=tuple((name, value) for name, value in settings.items() if name in with_archs),
        settings=tuple((name, value) for name, value in settings.items() if name not in with_archs),
        packages=packages,
    )


def _of_known(known: KnownProject, archs: tuple[Arch, ...]) -> dict[str, str]:
    wanted, cmake_args = project_settings(known, archs, NOBODY, Path("{build}"))
    return wanted | ({"CMAKE_ARGS": " ".join(map(shlex.quote, cmake_args))} if cmake_args else {})


def _marked(text: str, marks: dict[str, str]) -> str:
    for path, mark in marks.items():
        text = text.replace(path, mark)
    return text


def _packages(known: KnownProject | None, pyproject: str) -> tuple[str, ...]:
    """What its pyproject.toml asks for, and what a build of CUDA needs whoever asks."""
    _, requires = parse_build_system(pyproject)
    wanted = list(requires) or [*PACKAGES]
    wanted += [each for each in ("ninja", "cmake") if each not in _names(wanted)]
    if known is not None and known.needs_torch and "torch" not in _names(wanted):
        wanted.append("torch")
    return tuple(wanted)


def _names(requirements: list[str]) -> set[str]:
    return {found[0].lower() for each in requirements if (found := _NAME.match(each))}
