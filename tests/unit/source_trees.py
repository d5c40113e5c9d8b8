"""Projects, tools and toolkits as the doctor's checks get them."""

from __future__ import annotations

from typing import Any

import msgspec

from builddoctor.core.check import Check, Status
from builddoctor.core.project import BuildFiles, BuildFolder, Source, Submodule
from builddoctor.core.toolchain import BuildPython, BuildTools, Package, Program, Toolkit, Torch

NVCC = Toolkit(
    nvcc="/cuda/bin/nvcc", version="13.0.88", here="/cuda/bin", top="/cuda", cicc="/cuda/nvvm/bin/cicc", tools=()
)
CUTLASS = Submodule(
    path="3rdparty/cutlass", url="https://github.com/NVIDIA/cutlass.git", named_in="setup.py", certain=True
)


def program(path: str, version: str = "", **changed: Any) -> Program:
    """``/usr/bin/ninja`` 1.11.1 and the like."""
    return Program(name=path.rpartition("/")[2], path=path, version=version, **changed)


NINJA_11 = program("/usr/bin/ninja", "1.11.1")
NINJA_13 = program("/venv/bin/ninja", "1.13.2.git.kitware.jobserver-pipe-1")
CMAKE = program("/usr/bin/cmake", "3.25.1")
TORCH = Torch(version="2.9.0+cu130", cuda="13.0")


def python(
    torch: Torch | None = TORCH, packages: str = "pip=25.0 setuptools=80.9.0 wheel=0.45", **changed: Any
) -> BuildPython:
    """A healthy python, but for what is changed. ``packages``: ``name=version …``."""
    pairs = [word.partition("=") for word in packages.split()]
    fields: dict[str, Any] = {"version": "3.11.7", "include": "/usr/include/python3.11", "headers": True} | changed
    listed = tuple(Package(name=name, version=version) for name, _, version in pairs)
    return BuildPython(path="/venv/bin/python", torch=torch, packages=listed, **fields)


def tools(**changed: Any) -> BuildTools:
    """Healthy tools, but for what is changed."""
    fields: dict[str, Any] = {"cmakes": (CMAKE,), "ninjas": (NINJA_11,), "git": "/usr/bin/git", "python": python()}
    return BuildTools(**(fields | changed))


def source(**changed: Any) -> Source:
    """A Python project's checkout at /p. Fields of BuildFiles go where they belong."""
    inner = {name: changed.pop(name) for name in BuildFiles.__struct_fields__ if name in changed}
    fields: dict[str, Any] = {"folder": "/p", "checkout": "/p", "python": True, "files": BuildFiles(**inner)}
    return Source(**(fields | changed))


def folder(path: str = "/p/build", **changed: Any) -> BuildFolder:
    """A build folder that CMake configured for ninja."""
    fields: dict[str, Any] = {"configured": True, "generator": "Ninja", "make_program": NINJA_11.path}
    return BuildFolder(path=path, **(fields | changed))


def change(struct: Any, **changed: Any) -> Any:
    """A copy with other fields."""
    return msgspec.structs.replace(struct, **changed)


def by_name(checks: list[Check]) -> dict[str, Check]:
    """Checks by their names, each of which may stand there once."""
    found = {check.name: check for check in checks}
    assert len(found) == len(checks)
    return found


def worst(checks: list[Check]) -> Status:
    """The worst of them."""
    return max((check.status for check in checks), key=lambda status: status.rank)
