"""How a project is built: its command and every variable, from what is known of it and what was asked for.

Covers: archs, jobs and threads in each project's own spelling, settings without which it would not compile, the folder
that is kept from one build to the next, parts left out.
Does *not* cover: finding the sources (``projects.sources``), or gates (``intercept.environment``).

What the user has set already stands, but for the architectures, which were asked for.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path

from builddoctor.errors import ProjectNotFoundError, UsageError
from builddoctor.model.build_plan import BuildPlan
from builddoctor.model.known_project import ArchKnob, KnownProject
from builddoctor.projects.archs import Arch, arch_environment
from builddoctor.projects.detect import find_project
from builddoctor.projects.versions import holds_for
from builddoctor.sensors.build_system import parse_build_system
from builddoctor.sensors.source_files import text_of

_BUILD_DIR = re.compile(r"^[ \t]*(?:tool\.scikit-build\.)?build-dir[ \t]*=", re.MULTILINE)

BUILD_FOLDER = "build/cmake"
"""Where TransformerEngine has it by itself; below ``build``, which projects tell git to ignore."""


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
    """The plan for the checkout in ``folder``. ``without``: names of parts to be left out.

    Raises ProjectNotFoundError, NoBuildSystemError, and UsageError for a part that the project does not have.
    """
    top = _built_folder(folder, known)
    kept = top.resolve() / BUILD_FOLDER
    of_backend = known.config_settings if known is not None else _of_backend(top)
    backend = [each.replace("{build}", str(kept)) for each in of_backend]
    found = find_project(top, archs, env, wheel_folder, config_settings=backend, keep_going=keep_going)
    settings = dict(arch_environment(archs))
    wanted: dict[str, str] = {}
    cmake_args: list[str] = []
    if known is not None:
        wanted, cmake_args = project_settings(known, archs, env, kept)
        for part in without:
            _leave_out(known, part, wanted, cmake_args)
    elif without:
        raise UsageError(f"--without {without[0]}: nothing is known of this project's parts", hint="leave it out")
    settings.update({name: value for name, value in wanted.items() if name not in env or name in settings})
    if cmake_args:
        settings["CMAKE_ARGS"] = " ".join([env.get("CMAKE_ARGS", ""), *map(shlex.quote, cmake_args)]).strip()
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
        nvcc_by_path=found.kind == "python" and _calls_nvcc_by_path(top),
        notes=_notes(known, archs, version),
    )


def _built_folder(folder: Path, known: KnownProject | None) -> Path:
    """The part of the checkout that is built."""
    if known is None or not known.subfolder or folder.resolve().name == known.subfolder:
        return folder
    inside = folder / known.subfolder
    if not inside.is_dir():
        raise ProjectNotFoundError(
            f"{known.title} is built in {known.subfolder}/, which is missing in {folder}",
            hint=f"give the checkout's own folder, or another version: git clone {known.repository}",
        )
    return inside


def _bare(name: str, version: str) -> str:
    """A source distribution's folder is named after the release."""
    return name.removesuffix(f"-{version}") if version else name


def _of_backend(folder: Path) -> tuple[str, ...]:
    """scikit-build-core builds in a folder that is gone afterwards, unless the project names one."""
    pyproject = text_of(folder / "pyproject.toml") or ""
    backend, _ = parse_build_system(pyproject)
    own = _BUILD_DIR.search(pyproject) is not None
    return ("build-dir={build}",) if backend.partition(".")[0] == "scikit_build_core" and not own else ()


def _calls_nvcc_by_path(folder: Path) -> bool:
    """torch takes PYTORCH_NVCC with Ninja alone, and distutils nothing of the kind.

    CMake, on the other hand, has to find the compiler as it is (docs/adr/0004).
    """
    setup = (text_of(folder / "setup.py") or "").lower()
    by_ninja = "buildextension" in setup and "use_ninja" not in setup
    return bool(setup.strip()) and not by_ninja and "cmake" not in setup


def project_settings(
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
        value = spelled(known.archs, archs)
        if known.archs.variable.startswith("-D"):
            cmake_args.append(f"{known.archs.variable}={value}")
        else:
            wanted[known.archs.variable] = value
    return wanted, cmake_args


def spelled(knob: ArchKnob, archs: tuple[Arch, ...]) -> str:
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
    notes = [f"{known.title}'s architectures: {known.fixed_archs}"] if archs and known.fixed_archs else []
    notes += [f"{known.title}: {each.text}" for each in known.versions if version and holds_for(each, version)]
    return tuple(notes)
