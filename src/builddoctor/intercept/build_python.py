"""Ask the python that builds a project: its headers, its packages, its torch.

Covers: one short process that prints what it knows of itself; torch's version from the text of its version.py, for to
import torch takes seconds and a gigabyte. Does *not* cover: what that means (``doctor.python``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from builddoctor.intercept.captured import run_captured
from builddoctor.intercept.side_by_side import Patience
from builddoctor.model.build_tools import BuildPython, Package, Torch
from builddoctor.sensors.search_path import first_program
from builddoctor.sensors.source_files import exists, text_of

PROBE_TIMEOUT_S = 5.0
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


def build_python_path(env: Mapping[str, str]) -> str:
    """The python that ``projects.detect`` builds with; empty when there is none."""
    return first_program("python", env) or first_program("python3", env)


def examine_python(
    env: Mapping[str, str], *, requires: Sequence[str], backend: str, patience: Patience | None = None
) -> tuple[BuildPython | None, tuple[str, ...]]:
    """The python that builds, and folders in which its packages keep programs. Never raises."""
    path = build_python_path(env)
    if not path:
        return None, ()
    module = backend.partition(":")[0].partition(".")[0]
    names = list(dict.fromkeys([*ALWAYS_ASKED, *requirement_names(requires)]))
    # In "/": with -c, python looks for modules in the current folder first, and the project's may be called torch.
    argv = [path, "-c", _PROGRAM, module, *names]
    said = run_captured(argv, env=env, cwd="/", timeout_s=PROBE_TIMEOUT_S, patience=patience)
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
