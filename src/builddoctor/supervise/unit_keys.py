"""What a unit is called across builds: its project, its place in it, its options, its toolchain.

Does *not* cover: keeping anything under that name (``history``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from builddoctor.intercept.unit_options import options_digest
from builddoctor.model.past import UnitKey
from builddoctor.model.phase import Unit
from builddoctor.units import printable

_MARKS = (".git", "pyproject.toml", "setup.py")
"""What a project's own folder holds."""

MOST_PARENTS = 8
PLACE_PARTS = 3
"""Of a source outside the project's folder, the last parts of its path."""

_TEMPORARY = re.compile(r"pip-|build-via-sdist-|tmp(?:\w{8})?\Z")
"""Folders whose names change from build to build."""

_SCRATCH = re.compile(r"cmTC_|a\.out\Z|conftest|_configtest|TryCompile-|CMakeScratch|CompilerId")


class Toolchain(msgspec.Struct, frozen=True, kw_only=True):
    """What compiles."""

    nvcc: str = ""
    host_compiler: str = ""
    host_arch: str = ""


def project_folder(cwd: str) -> Path:
    """The folder of the project that is built in ``cwd``: the nearest above that looks like one, else ``cwd``."""
    here = Path(os.path.normpath(cwd))
    for folder in (here, *here.parents[:MOST_PARENTS]):
        try:
            if any((folder / mark).exists() for mark in _MARKS):
                return folder
        except OSError:
            break
    return here


def unit_key(unit: Unit, argv: Sequence[str], cwd: str, project: Path, tools: Toolchain) -> UnitKey | None:
    """The unit's name; None for what a configure step tries out, which is never the same twice."""
    output = os.path.basename(unit.output)
    if _SCRATCH.search(f"{cwd}/{unit.source}") or _SCRATCH.match(output):
        return None
    if not unit.counted and (unit.source or not output):
        return None
    place = _place(os.path.normpath(os.path.join(cwd, unit.source)), project) if unit.source else f"link {output}"
    return UnitKey(
        project=printable(project.name) or "/",
        place=printable(place),
        output=printable(output),
        options=options_digest(argv),
        nvcc=tools.nvcc if unit.archs or unit.source.endswith(".cu") else "",
        host_compiler=tools.host_compiler,
        host_arch=tools.host_arch,
        archs=unit.archs,
    )


def _place(source: str, project: Path) -> str:
    below = os.path.relpath(source, project)
    if not below.startswith(".."):
        return below
    parts = [part for part in source.split("/") if part]
    for index in range(len(parts) - 1, -1, -1):
        if _TEMPORARY.match(parts[index]):
            parts = parts[index + 1 :]
            break
    return "/".join(parts[-PLACE_PARTS:])
