"""Checks of the python that builds: headers, pip, the packages that the project's build needs, and torch.

builddoctor builds without isolation, so that the build sees the user's torch and our gates: what pip would have fetched
into an isolated environment has to be there. torch has to be made with this toolkit's CUDA; it is not imported.
Does *not* cover: the environment variables that torch reads (``doctor.environment_checks``). Pure.
"""

from __future__ import annotations

import shlex

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

from builddoctor.core.check import Check, Status, Topic
from builddoctor.core.project import KnownProject, Source
from builddoctor.core.toolchain import BuildPython, BuildTools, Toolkit, Torch
from builddoctor.doctor.tool_versions import numbers, short
from builddoctor.toolchain.build_tools import parse_requires

WHEEL_INSIDE = (70, 1)
"""setuptools that makes wheels by itself"""


def python_checks(
    python: BuildPython | None, source: Source | None, known: KnownProject | None, tools: BuildTools
) -> list[Check]:
    """What stands in the way; one ok line when nothing does."""
    if python is None:
        status = Status.WARNING if source is None else Status.PROBLEM
        return [
            Topic.PYTHON.check("python", status, "no python on PATH", "apt install python3 python3-pip", stops=True)
        ]
    if python.silent:
        # It may just be slow: that stops no build.
        return [Topic.PYTHON.check("python", Status.WARNING, f"{python.path} did not answer: {python.problem}")]
    if python.problem:
        return [
            Topic.PYTHON.check("python", Status.PROBLEM, f"{python.path} does not run: {python.problem}", stops=True)
        ]
    checks = [] if source is None else _packages(python, source, known, tools)
    if not python.headers:
        text = f"Python.h of python {python.version} is missing ({python.include or 'no include folder'})"
        checks.insert(0, Topic.PYTHON.check("python-headers", Status.PROBLEM, text, _headers_hint(python)))
    return checks or [Topic.PYTHON.check("python", Status.OK, f"{python.version} with its headers ({python.path})")]


def _packages(python: BuildPython, source: Source, known: KnownProject | None, tools: BuildTools) -> list[Check]:
    pip = f"{shlex.quote(python.path)} -m pip install"
    if not python.version_of("pip"):
        hint = "apt install python3-pip" if _distribution(python) else f"{shlex.quote(python.path)} -m ensurepip"
        return [Topic.PYTHON.check("python-pip", Status.PROBLEM, f"{python.path} has no pip", hint, stops=True)]
    needs = parse_requires(source.files.requires)
    missing = [need for need in needs if _is_missing(need, python, known, tools)]
    backend = python.missing_backend
    if not source.files.backend and not python.version_of("setuptools"):
        backend = "setuptools"
    if backend:
        wanted = [str(need) for need in missing] or [backend.replace("_", "-")]
        text = f"the project is built by {backend}, which {python.path} does not have; builddoctor "
        text += "builds without isolation, so pip does not fetch it"
        return [Topic.PYTHON.check("python-backend", Status.PROBLEM, text, f"{pip} {shlex.join(wanted)}", stops=True)]
    uses_setuptools = not source.files.backend or source.files.backend.startswith("setuptools")
    version = python.version_of("setuptools")
    if uses_setuptools and not python.version_of("wheel") and numbers(version)[:2] < WHEEL_INSIDE:
        text = f"setuptools {version} makes no wheels, and there is no package wheel: invalid command 'bdist_wheel'"
        return [Topic.PYTHON.check("python-wheel", Status.PROBLEM, text, f"{pip} wheel", stops=True)]
    if missing:
        names = ", ".join(str(need) for need in missing[:4]) + (" …" if len(missing) > 4 else "")
        text = f"pyproject.toml asks for {names}; pip does not fetch it for a build without isolation"
        hint = f"{pip} {shlex.join(str(need) for need in missing)}"
        return [Topic.PYTHON.check("python-packages", Status.WARNING, text, hint)]
    return []


def _is_missing(need: Requirement, python: BuildPython, known: KnownProject | None, tools: BuildTools) -> bool:
    name = canonicalize_name(need.name)
    if name == "torch" or (known is not None and name in known.optional_packages):
        return False
    version = python.version_of(name)
    if name == "wheel" and numbers(python.version_of("setuptools")) >= WHEEL_INSIDE:
        return False
    if not version:
        on_path = {"cmake": tools.cmakes, "ninja": tools.ninjas}.get(name, ())
        return not any(program.version for program in on_path)
    try:
        return not need.specifier.contains(version, prereleases=True)
    except InvalidVersion:
        return False


def _distribution(python: BuildPython) -> bool:
    return python.include.startswith("/usr/include/")


def _headers_hint(python: BuildPython) -> str:
    minor = ".".join(str(part) for part in numbers(python.version)[:2]) or "3"
    if python.conda:
        return f"conda install python={minor}"
    if _distribution(python):
        return f"apt install python3-dev python{minor}-dev"
    return "take a python that came with its headers: conda's, uv's, or the distribution's with its -dev package"


# -- torch -----------------------------------------------------------------------------------------------------------


def torch_checks(
    python: BuildPython | None, source: Source | None, known: KnownProject | None, toolkit: Toolkit | None
) -> list[Check]:
    """Nothing for a project without torch, and for no project when there is no torch."""
    if python is None or python.problem or (known is not None and known.name == "pytorch"):
        return []
    needed = known is not None and known.needs_torch
    used = source is not None and bool(source.files.uses_torch)
    if python.torch is None:
        return _missing(python, source, known) if needed or used else []
    if source is not None and not needed and not used:
        return []
    return [_against_toolkit(python.torch, needed=needed, toolkit=toolkit)]


def _missing(python: BuildPython, source: Source | None, known: KnownProject | None) -> list[Check]:
    hint = f"{shlex.quote(python.path)} -m pip install torch"
    if known is not None and known.needs_torch:
        text = f"{python.path} has no torch, and {known.title} does not build without (pip fetches nothing here)"
        return [Topic.TORCH.check("torch", Status.PROBLEM, text, hint, stops=True)]
    where = source.files.uses_torch if source is not None else ""
    if source is not None and source.files.imports_torch:
        return [Topic.TORCH.check("torch", Status.PROBLEM, f"{python.path} has no torch, and {where} imports it", hint)]
    text = f"{python.path} has no torch: what {where} builds for it is left out, or fails"
    return [Topic.TORCH.check("torch", Status.WARNING, text, hint)]


def _against_toolkit(torch: Torch, *, needed: bool, toolkit: Toolkit | None) -> Check:
    trouble = Status.PROBLEM if needed else Status.WARNING
    if torch.rocm:
        return Topic.TORCH.check("torch-cuda", trouble, f"torch {torch.version} is made for AMD GPUs, not for CUDA")
    if not torch.cuda:
        text = f"torch {torch.version} is made without CUDA: its extensions have nothing to link with"
        return Topic.TORCH.check("torch-cuda", trouble, text)
    mine, theirs = numbers(torch.cuda), numbers(toolkit.version) if toolkit is not None else ()
    if toolkit is None or not theirs or not mine:
        return Topic.TORCH.check("torch", Status.OK, f"{torch.version}, made with CUDA {torch.cuda}")
    if mine[0] != theirs[0]:
        made = f"torch {torch.version} is made with CUDA {torch.cuda}"
        text = f"{made}, and nvcc is {short(toolkit.version)}: torch refuses to build with another major version"
        return Topic.TORCH.check(
            "torch-cuda", Status.PROBLEM, text, f"--toolkit {torch.cuda}, or a torch for CUDA {theirs[0]}"
        )
    note = f"; nvcc {short(toolkit.version)} will do" if mine[:2] != theirs[:2] else ""
    return Topic.TORCH.check("torch", Status.OK, f"{torch.version}, made with CUDA {torch.cuda}{note}")
