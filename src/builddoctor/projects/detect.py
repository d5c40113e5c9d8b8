"""What a folder is, and the command that builds it.

Covers: Python projects (pyproject.toml, setup.py), CMake projects, configured build folders (build.ninja), Makefiles.
Does *not* cover: what single projects need beyond that (``projects.plan``).
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from builddoctor.errors import NoBuildSystemError, ProjectNotFoundError
from builddoctor.projects.archs import Arch


class Project(msgspec.Struct, frozen=True, kw_only=True):
    """A project to build."""

    name: str
    kind: str
    """``python``, ``cmake``, ``ninja`` or ``make``"""
    path: Path
    command: tuple[str, ...]
    output: str = ""
    """where what is built goes, for the closing words"""


MAKEFILES = ("GNUmakefile", "makefile", "Makefile")


def find_project(
    path: Path,
    archs: tuple[Arch, ...],
    env: Mapping[str, str],
    wheel_folder: Path | None,
    *,
    config_settings: Sequence[str] = (),
    keep_going: bool = False,
) -> Project:
    """The project in ``path``. Raises ProjectNotFoundError or NoBuildSystemError.

    ``config_settings``: for a Python project's build backend. ``keep_going``: go on with the rest after a failure; what
    Python projects start themselves is told otherwise (``supervise.fronts``).
    """
    if not path.exists():
        raise ProjectNotFoundError(
            f"no such path: {path}", hint="give the folder of the project's checkout: `builddoctor build path/to/it`"
        )
    folder = path.resolve()
    if folder.is_file():
        raise NoBuildSystemError(
            f"{path} is a file, not a project folder", hint=f"`builddoctor build {shlex.quote(str(path.parent))}`"
        )
    if (folder / "setup.py").exists() or (folder / "pyproject.toml").exists():
        return _python(folder, env, wheel_folder, config_settings)
    if (folder / "CMakeLists.txt").exists():
        return _cmake(folder, archs, env, keep_going)
    if (folder / "build.ninja").exists():
        going = ("-k", "0") if keep_going else ()
        return Project(name=folder.name, kind="ninja", path=folder, command=("ninja", *going), output=str(folder))
    if any((folder / name).exists() for name in MAKEFILES):
        # make takes one job unless it is told otherwise, and memory is for the gates to keep.
        words = ("make", f"-j{os.cpu_count() or 1}", *(("-k",) if keep_going else ()))
        return Project(name=folder.name, kind="make", path=folder, command=words, output=str(folder))
    raise NoBuildSystemError(
        f"no build system found in {folder}: no setup.py, pyproject.toml, CMakeLists.txt, build.ninja or Makefile",
        hint="any build command can be supervised as it is: `builddoctor run -- make -j8`",
    )


def _python(folder: Path, env: Mapping[str, str], wheel_folder: Path | None, config_settings: Sequence[str]) -> Project:
    """A wheel, in this very environment: with build isolation the project would not see its torch, nor our gates."""
    python = shutil.which("python", path=env.get("PATH")) or shutil.which("python3", path=env.get("PATH")) or "python3"
    wheels = wheel_folder or folder / "dist"
    command = (
        python,
        "-m",
        "pip",
        "wheel",
        "--no-build-isolation",
        "--no-deps",
        # pip stores the wheel of a folder that is named like a release (seen with 23.2): none is to come back.
        "--no-cache-dir",
        "--verbose",
        "--wheel-dir",
        str(wheels),
        *(f"--config-settings={each}" for each in config_settings),
    )
    return Project(name=folder.name, kind="python", path=folder, command=(*command, str(folder)), output=str(wheels))


def _cmake(folder: Path, archs: tuple[Arch, ...], env: Mapping[str, str], keep_going: bool) -> Project:
    build = folder / "build"
    configure = ["cmake", "-S", str(folder), "-B", str(build)]
    if not (build / "CMakeCache.txt").exists():
        configure += ["-G", env.get("CMAKE_GENERATOR") or "Ninja"]
        if "CMAKE_BUILD_TYPE" not in env:
            configure.append("-DCMAKE_BUILD_TYPE=Release")
    if archs:
        configure.append("-DCMAKE_CUDA_ARCHITECTURES=" + ";".join(dict.fromkeys(arch.number for arch in archs)))
    script = f"{shlex.join(configure)} && exec cmake --build {shlex.quote(str(build))}"
    if keep_going:
        script += " -- -k 0" if _by_ninja(build, env) else " -- -k"
    return Project(name=folder.name, kind="cmake", path=folder, command=("/bin/sh", "-c", script), output=str(build))


def _by_ninja(build: Path, env: Mapping[str, str]) -> bool:
    """A folder that is configured already keeps its generator."""
    if (build / "CMakeCache.txt").exists():
        return (build / "build.ninja").exists()
    return (env.get("CMAKE_GENERATOR") or "Ninja").startswith("Ninja")
