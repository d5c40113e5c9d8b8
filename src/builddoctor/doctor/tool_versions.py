"""Versions of build tools as the tools themselves compare them.

Pure. Does *not* cover: which CUDA toolkits know which architecture (``projects.nvcc_archs``).
"""

from __future__ import annotations

import re

from builddoctor.core.toolchain import BuildTools, Program
from builddoctor.projects.nvcc_archs import Version

_NUMBERS = re.compile(r"\d{1,8}(?:\.\d{1,8})*")


def numbers(version: str) -> Version:
    """``1.13.0.git.kitware`` as (1, 13, 0); empty when it does not start with a number."""
    match = _NUMBERS.match(version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def short(version: str) -> str:
    """The numbers alone, for people: ``1.13.0``."""
    return ".".join(str(part) for part in numbers(version)) or version


def log_version(ninja_version: str) -> int | None:
    """Version of the .ninja_log that this ninja reads and writes; None when its version is unknown.

    5 up to 1.11, 6 for 1.12, 7 from 1.13. A ninja that finds another one builds everything again.
    """
    found = numbers(ninja_version)[:2]
    if len(found) < 2:
        return None
    if found <= (1, 11):
        return 5
    return 6 if found == (1, 12) else 7


def log_writers(log: int) -> str:
    """The ninjas that write this log, in words."""
    return {5: "ninja 1.11 or older", 6: "ninja 1.12", 7: "ninja 1.13 or newer"}.get(log, f"another ninja (log v{log})")


def first_ninja(tools: BuildTools, *, package_first: bool = False) -> Program | None:
    """The ninja that a build takes: CMake's order of names on PATH; scikit-build-core takes python's package first."""
    return _first(tools.ninjas, package_first=package_first)


def torch_ninja(tools: BuildTools) -> Program | None:
    """The ninja that torch takes: the first of this very name on PATH, or none."""
    return next((ninja for ninja in tools.ninjas if ninja.name == "ninja" and ninja.origin == "path"), None)


def first_cmake(tools: BuildTools, *, package_first: bool = False) -> Program | None:
    """The cmake that a build takes."""
    return _first(tools.cmakes, package_first=package_first)


def _first(programs: tuple[Program, ...], *, package_first: bool) -> Program | None:
    on_path = next((program for program in programs if program.origin == "path"), None)
    package = next((program for program in programs if program.origin == "package"), None)
    if package_first and package is not None:
        return package
    # Nothing else finds a package's program that is not on PATH.
    return on_path
