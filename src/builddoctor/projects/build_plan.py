"""How a project is built: what its folder is, the command, every variable; here, and on another machine.

Covers: Python projects (pyproject.toml, setup.py), CMake projects, configured build folders (build.ninja), Makefiles;
archs in each project's own spelling, settings without which it would not compile, the folder that is kept from one
build to the next, parts left out. What the user has set already stands, but for the architectures, which were asked
for.
``portable_build`` gives the same without any path of this machine.
Does *not* cover: finding the sources (``projects.sources``), jobs, threads and gates (``gates.environment``).
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

import msgspec

from builddoctor.core.errors import NoBuildSystemError, ProjectNotFoundError, UsageError
from builddoctor.core.project import ArchKnob, KnownProject, holds_for
from builddoctor.core.word import Word
from builddoctor.projects.archs import GENERAL, Arch, arch_environment
from builddoctor.projects.metadata import project_version, pyproject_of
from builddoctor.projects.setup_py import read_setup
from builddoctor.system.source_files import text_of

MAKEFILES = ("GNUmakefile", "makefile", "Makefile")

BUILD_FOLDER = "build/cmake"
"""Where TransformerEngine has it by itself; below ``build``, which projects tell git to ignore."""

PACKAGES = ("setuptools", "wheel", "packaging", "ninja", "cmake")
"""What a build takes where its pyproject.toml does not say."""

# A wheel, in this very environment: with build isolation the project would not see its torch, nor our gates. pip stores
# the wheel of a folder that is named like a release (seen with 23.2): none is to come back.
_PIP_WHEEL = (
    *("-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-cache-dir", "--verbose", "--wheel-dir"),
)
_CMAKE_ARCHS = "-DCMAKE_CUDA_ARCHITECTURES="
_NO_ENVIRONMENT = {"PATH": "/nonexistent"}
"""What is set or installed on this machine is not there."""
_PACKAGE = re.compile(r"[A-Za-z0-9._-]+")
_PYTHON = re.compile(r"python[\d.]*t?\Z")


class BuildKind(Word):
    """What builds a folder."""

    PYTHON = "python"
    CMAKE = "cmake"
    NINJA = "ninja"
    MAKE = "make"


class BuildPlan(msgspec.Struct, frozen=True, kw_only=True):
    """All of it, before anything is started."""

    name: str
    title: str
    kind: BuildKind
    folder: str
    """where the command runs"""
    command: tuple[str, ...]
    settings: tuple[tuple[str, str], ...] = ()
    """environment variables and their values, beyond the environment"""
    make_folders: tuple[str, ...] = ()
    """that have to be there before"""
    output: str = ""
    """where what is built goes, for the closing words"""
    kept: str = ""
    """what a second build goes on from"""
    nvcc_by_path: bool = False
    """a setup.py without Ninja and CMake: it calls ``$CUDA_HOME/bin/nvcc``, and the environment catches its tools"""
    notes: tuple[str, ...] = ()
    """to be read before it is built"""


def plan_build(
    folder: Path,
    known: KnownProject | None,
    archs: tuple[Arch, ...],
    env: Mapping[str, str],
    *,
    wheel_folder: Path | None = None,
    without: tuple[str, ...] = (),
    version: str = "",
    keep_going: bool = False,
) -> BuildPlan:
    """The plan for the checkout in ``folder``. ``without``: names of parts to be left out. ``version``: empty for what
    its sources say.

    Raises ProjectNotFoundError, NoBuildSystemError, and UsageError for a part that the project does not have.
    """
    top = _built_folder(folder, known)
    version = version or project_version(top)
    kept = top.resolve() / BUILD_FOLDER
    of_backend = known.config_settings if known is not None else _of_backend(top)
    backend = [each.replace("{build}", str(kept)) for each in of_backend]
    settings = _arch_settings(known, top, archs)
    if known is not None:
        settings = _known_settings(known, settings, archs, env, kept, without)
    elif without:
        raise UsageError(f"--without {without[0]}: nothing is known of this project's parts", hint="leave it out")
    found = find_project(
        top, archs, env, wheel_folder, config_settings=backend, cmake_args=_words(settings), keep_going=keep_going
    )
    settings = _beyond_the_command(found, settings)
    uses_kept = any(str(kept) in text for text in (*settings.values(), *backend))
    return BuildPlan(
        name=known.name if known is not None else found.name,
        title=" ".join(
            part for part in (known.title if known is not None else _bare(found.name, version), version) if part
        ),
        kind=found.kind,
        folder=str(found.path),
        command=found.command,
        settings=tuple(settings.items()),
        make_folders=(str(kept),) if uses_kept else (),
        output=found.output,
        kept=str(kept) if uses_kept else "",
        nvcc_by_path=found.kind is BuildKind.PYTHON and read_setup(text_of(top / "setup.py") or "").nvcc_by_path,
        notes=_notes(known, archs, version),
    )


def plan_unfetched(
    known: KnownProject,
    archs: tuple[Arch, ...],
    env: Mapping[str, str],
    *,
    wheel_folder: Path,
    without: tuple[str, ...] = (),
    version: str = "",
) -> BuildPlan:
    """The plan as far as it is known without the sources: ``folder`` is empty, and the command runs in it.

    Raises UsageError for a part that the project does not have.
    """
    kept = Path(BUILD_FOLDER)
    backend = [each.replace("{build}", str(kept)) for each in known.config_settings]
    settings = _known_settings(known, _arch_settings(known, kept, archs), archs, env, kept, without)
    if known.built_by == "cmake":
        found = _cmake(Path("."), archs, env, keep_going=False, cmake_args=_words(settings))
    else:
        found = _python(Path("."), env, wheel_folder, backend)
    return BuildPlan(
        name=known.name,
        title=f"{known.title} {version}".strip(),
        kind=found.kind,
        folder="",
        command=found.command,
        settings=tuple(_beyond_the_command(found, settings).items()),
        output=found.output,
        notes=_notes(known, archs, version),
    )


def _words(settings: Mapping[str, str]) -> tuple[str, ...]:
    """What CMake is to be told. CMake itself does not read ``CMAKE_ARGS``: build backends do."""
    return tuple(shlex.split(settings.get("CMAKE_ARGS", "")))


def _beyond_the_command(found: Project, settings: dict[str, str]) -> dict[str, str]:
    in_command = ("CMAKE_ARGS",) if found.kind is BuildKind.CMAKE else ()
    return {name: value for name, value in settings.items() if name not in in_command}


def _known_settings(
    known: KnownProject,
    settings: dict[str, str],
    archs: tuple[Arch, ...],
    env: Mapping[str, str],
    kept: Path,
    without: tuple[str, ...],
) -> dict[str, str]:
    """``settings`` and the project's own, as the user's environment leaves them."""
    wanted, cmake_args = _project_settings(known, archs, env, kept)
    for part in without:
        _leave_out(known, part, wanted, cmake_args)
    settings = settings | {name: value for name, value in wanted.items() if name not in env or name in settings}
    if cmake_args:
        settings["CMAKE_ARGS"] = " ".join([env.get("CMAKE_ARGS", ""), *map(shlex.quote, cmake_args)]).strip()
    return settings


def _arch_settings(known: KnownProject | None, top: Path, archs: tuple[Arch, ...]) -> dict[str, str]:
    """What CMake and torch read architectures from, whatever they build, and what this project does."""
    if known is not None and known.archs is not None:
        texts = [known.archs.variable]
    else:
        texts = [text_of(top / name) or "" for name in ("setup.py", "CMakeLists.txt", "pyproject.toml")]
    return {
        name: value
        for name, value in arch_environment(archs).items()
        if name in GENERAL or any(name in text for text in texts)
    }


def _built_folder(folder: Path, known: KnownProject | None) -> Path:
    """The part of the checkout that is built."""
    inside = Path(known.subfolder).parts if known is not None else ()
    if known is None or folder.resolve().parts[-len(inside) :] == inside or not inside:
        return folder
    below = folder / known.subfolder
    if not below.is_dir():
        raise ProjectNotFoundError(
            f"{known.title} is built in {known.subfolder}/, which is missing in {folder}",
            hint=f"give the checkout's own folder, or another version: git clone {known.repository}",
        )
    return below


def _bare(name: str, version: str) -> str:
    """A source distribution's folder is named after the release."""
    return name.removesuffix(f"-{version}") if version else name


def _of_backend(folder: Path) -> tuple[str, ...]:
    """scikit-build-core builds in a folder that is gone afterwards, unless the project names one."""
    pyproject = pyproject_of(folder)
    by_scikit = pyproject.backend.partition(".")[0] == "scikit_build_core"
    return ("build-dir={build}",) if by_scikit and not pyproject.build_dir else ()


def _project_settings(
    known: KnownProject, archs: tuple[Arch, ...], env: Mapping[str, str], kept: Path
) -> tuple[dict[str, str], list[str]]:
    """Variables, and CMake's settings. ``kept``: the folder that is kept from one build to the next."""
    texts = [each.replace("{build}", str(kept)) for each in known.settings]
    if known.force_build:
        texts.append(known.force_build)
    if known.avoids_sccache and shutil.which("sccache", path=env.get("PATH")):
        texts.append(known.avoids_sccache)
    wanted = dict(text.split("=", 1) for text in texts)
    cmake_args = list(known.cmake_args)
    if archs and known.archs is not None:
        value = _spelled(known.archs, archs)
        if known.archs.variable.startswith("-D"):
            cmake_args.append(f"{known.archs.variable}={value}")
        else:
            wanted[known.archs.variable] = value
    return wanted, cmake_args


def _spelled(knob: ArchKnob, archs: tuple[Arch, ...]) -> str:
    """The architectures as this variable takes them."""
    words = []
    for arch in archs:
        bare = arch if knob.letters else Arch(arch.major, arch.minor, "", arch.ptx)
        word = bare.number if knob.spelling == "number" else bare.dotted
        words.append(word + "+PTX" * (knob.ptx and arch.ptx))
    return knob.separator.join(dict.fromkeys(words))


def _leave_out(known: KnownProject, part: str, wanted: dict[str, str], cmake_args: list[str]) -> None:
    component = next((each for each in known.components if each.name == part), None)
    if component is None:
        names = ", ".join(each.name for each in known.components)
        raise UsageError(
            f"{known.title} has no part {part!r} that can be left out",
            hint=f"it can do without: {names}" if names else "leave --without out",
        )
    name, _, value = component.off.partition("=")
    if name == "CMAKE_ARGS":
        cmake_args.append(value)
    else:
        wanted[name] = value


def _notes(known: KnownProject | None, archs: tuple[Arch, ...], version: str) -> tuple[str, ...]:
    if known is None:
        return ()
    notes = [f"{known.title}: {known.compiles_nothing}"] if known.compiles_nothing else []
    notes += [f"{known.title}'s architectures: {known.fixed_archs}"] if archs and known.fixed_archs else []
    notes += [f"{known.title}: {each.text}" for each in known.versions if version and holds_for(each, version)]
    return tuple(notes)


class Project(msgspec.Struct, frozen=True, kw_only=True):
    """A folder, and the command that builds it."""

    name: str
    kind: BuildKind
    path: Path
    command: tuple[str, ...]
    output: str = ""
    """where what is built goes, for the closing words"""


def find_project(
    path: Path,
    archs: tuple[Arch, ...],
    env: Mapping[str, str],
    wheel_folder: Path | None,
    *,
    config_settings: Sequence[str] = (),
    cmake_args: Sequence[str] = (),
    keep_going: bool = False,
) -> Project:
    """The project in ``path``. Raises ProjectNotFoundError or NoBuildSystemError.

    ``config_settings``: for a Python project's build backend. ``cmake_args``: where CMake alone builds it.
    ``keep_going``: go on with the rest after a failure; what Python projects start themselves is told otherwise
    (``runtime.build_environment``).
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
        return _cmake(folder, archs, env, keep_going=keep_going, cmake_args=cmake_args)
    if (folder / "build.ninja").exists():
        going = ("-k", "0") if keep_going else ()
        return Project(
            name=folder.name, kind=BuildKind.NINJA, path=folder, command=("ninja", *going), output=str(folder)
        )
    if any((folder / name).exists() for name in MAKEFILES):
        # make takes one job unless it is told otherwise, and memory is for the gates to keep.
        words = ("make", f"-j{os.cpu_count() or 1}", *(("-k",) if keep_going else ()))
        return Project(name=folder.name, kind=BuildKind.MAKE, path=folder, command=words, output=str(folder))
    raise NoBuildSystemError(
        f"no build system found in {folder}: no setup.py, pyproject.toml, CMakeLists.txt, build.ninja or Makefile",
        hint="any build command can be supervised as it is: `builddoctor run -- make -j8`",
    )


def building_python(env: Mapping[str, str]) -> str:
    """The Python whose pip builds a wheel: that of the activated environment, else the first on PATH."""
    return shutil.which("python", path=env.get("PATH")) or shutil.which("python3", path=env.get("PATH")) or "python3"


def _python(folder: Path, env: Mapping[str, str], wheel_folder: Path | None, config_settings: Sequence[str]) -> Project:
    python = building_python(env)
    wheels = wheel_folder or folder / "dist"
    command = (python, *_PIP_WHEEL, str(wheels), *(f"--config-settings={each}" for each in config_settings))
    return Project(
        name=folder.name, kind=BuildKind.PYTHON, path=folder, command=(*command, str(folder)), output=str(wheels)
    )


def _cmake(
    folder: Path, archs: tuple[Arch, ...], env: Mapping[str, str], *, keep_going: bool, cmake_args: Sequence[str]
) -> Project:
    build = folder / "build"
    configure = ["cmake", "-S", str(folder), "-B", str(build)]
    if not (build / "CMakeCache.txt").exists():
        configure += ["-G", env.get("CMAKE_GENERATOR") or "Ninja"]
        if "CMAKE_BUILD_TYPE" not in env:
            configure.append("-DCMAKE_BUILD_TYPE=Release")
    configure += _cmake_settings(archs, cmake_args)
    script = f"{shlex.join(configure)} && exec cmake --build {shlex.quote(str(build))}"
    if keep_going:
        script += " -- -k 0" if _by_ninja(build, env) else " -- -k"
    return Project(
        name=folder.name, kind=BuildKind.CMAKE, path=folder, command=("/bin/sh", "-c", script), output=str(build)
    )


def _cmake_settings(archs: tuple[Arch, ...], cmake_args: Sequence[str]) -> list[str]:
    named = any(each.startswith(_CMAKE_ARCHS) for each in cmake_args)
    return [*([_CMAKE_ARCHS + _numbers(archs)] if archs and not named else []), *cmake_args]


def _by_ninja(build: Path, env: Mapping[str, str]) -> bool:
    """A folder that is configured already keeps its generator."""
    if (build / "CMakeCache.txt").exists():
        return (build / "build.ninja").exists()
    return (env.get("CMAKE_GENERATOR") or "Ninja").startswith("Ninja")


def _numbers(archs: tuple[Arch, ...]) -> str:
    """``90;100a``."""
    return ";".join(dict.fromkeys(arch.number for arch in archs))


class PortableBuild(msgspec.Struct, frozen=True, kw_only=True):
    """A build without any path of this machine.

    ``{python}``, ``{source}``, ``{wheels}`` and ``{build}`` stand for what the other machine has.
    """

    kind: BuildKind = BuildKind.PYTHON
    """a build by ``make`` has no stages"""
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
    if known is not None and known.built_by == "cmake":
        return _without_python(BuildKind.CMAKE, known, archs)
    command: tuple[str, ...] = ("{python}", *_PIP_WHEEL, "{wheels}")
    settings = arch_environment(archs)
    if known is not None:
        command += tuple(f"--config-settings={each}" for each in known.config_settings)
        settings = settings | _of_known(known, archs)
    return _sorted((*command, "{source}"), settings, known, _packages(known, ()), archs)


def _of_folder(known: KnownProject | None, folder: Path, archs: tuple[Arch, ...]) -> PortableBuild:
    plan = plan_build(folder, known, archs, _NO_ENVIRONMENT)
    top = Path(plan.folder)
    if plan.kind is not BuildKind.PYTHON:
        return _without_python(plan.kind, known, archs)
    marks = {str(top / BUILD_FOLDER): "{build}", plan.output: "{wheels}", str(top): "{source}"}
    words = [_marked(each, marks) for each in plan.command]
    if _PYTHON.match(PurePosixPath(words[0]).name):
        words[0] = "{python}"
    settings = {name: _marked(value, marks) for name, value in plan.settings}
    packages = _packages(known, pyproject_of(top).requires)
    return _sorted(tuple(words), settings, known, packages, archs)


def _without_python(kind: BuildKind, known: KnownProject | None, archs: tuple[Arch, ...]) -> PortableBuild:
    settings = _of_known(known, archs) if known is not None else {}
    command = _portable_cmake(archs, _words(settings)) if kind is BuildKind.CMAKE else (str(kind),)
    return PortableBuild(
        kind=kind,
        command=command,
        archs=tuple(arch_environment(archs).items()),
        settings=tuple((name, value) for name, value in settings.items() if name != "CMAKE_ARGS"),
        packages=("ninja", "cmake"),
    )


def _portable_cmake(archs: tuple[Arch, ...], cmake_args: Sequence[str]) -> tuple[str, ...]:
    """In the folder itself, in words that no shell splits in another way."""
    configure = "cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release"
    for each in _cmake_settings(archs, cmake_args):
        name, _, value = each.partition("=")
        configure += f" {name}='{value}'"
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
    wanted, cmake_args = _project_settings(known, archs, _NO_ENVIRONMENT, Path("{build}"))
    return wanted | ({"CMAKE_ARGS": " ".join(map(shlex.quote, cmake_args))} if cmake_args else {})


def _marked(text: str, marks: dict[str, str]) -> str:
    for path, mark in marks.items():
        text = text.replace(path, mark)
    return text


def _packages(known: KnownProject | None, requires: Sequence[str]) -> tuple[str, ...]:
    """What its pyproject.toml asks for, and what a build of CUDA needs in any case."""
    wanted = list(requires) or [*PACKAGES]
    wanted += [each for each in ("ninja", "cmake") if each not in _names(wanted)]
    if known is not None and known.needs_torch and "torch" not in _names(wanted):
        wanted.append("torch")
    return tuple(wanted)


def _names(requirements: list[str]) -> set[str]:
    return {found[0].lower() for each in requirements if (found := _PACKAGE.match(each))}
