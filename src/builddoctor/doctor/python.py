"""Checks of the python that builds: headers, pip, and the packages that the project's build needs.

Pure. builddoctor builds without isolation, so that the build sees the user's torch and our gates: what pip would have
fetched into an isolated environment has to be there. Does *not* cover: torch (``doctor.torch``).
"""

from __future__ import annotations

import shlex

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

from builddoctor.doctor.versions import numbers
from builddoctor.intercept.build_python import parse_requires
from builddoctor.model.build_tools import BuildPython, BuildTools
from builddoctor.model.check import Check, Status
from builddoctor.model.known_project import KnownProject
from builddoctor.model.source import Source

TOPIC = "python"
WHEEL_INSIDE = (70, 1)
"""setuptools that makes wheels by itself"""


def python_checks(
    python: BuildPython | None, source: Source | None, known: KnownProject | None, tools: BuildTools
) -> list[Check]:
    """What stands in the way; one ok line when nothing does."""
    if python is None:
        status = Status.WARNING if source is None else Status.PROBLEM
        return [_check("python", status, "no python on PATH", "apt install python3 python3-pip", stops=True)]
    if python.silent:
        # It may just be slow: that stops no build.
        return [_check("python", Status.WARNING, f"{python.path} did not answer: {python.problem}")]
    if python.problem:
        return [_check("python", Status.PROBLEM, f"{python.path} does not run: {python.problem}", stops=True)]
    checks = [] if source is None else _packages(python, source, known, tools)
    if not python.headers:
        text = f"Python.h of python {python.version} is missing ({python.include or 'no include folder'})"
        checks.insert(0, _check("python-headers", Status.PROBLEM, text, _headers_hint(python)))
    return checks or [_check("python", Status.OK, f"{python.version} with its headers ({python.path})")]


def _packages(python: BuildPython, source: Source, known: KnownProject | None, tools: BuildTools) -> list[Check]:
    pip = f"{shlex.quote(python.path)} -m pip install"
    if not python.version_of("pip"):
        hint = "apt install python3-pip" if _distribution(python) else f"{shlex.quote(python.path)} -m ensurepip"
        return [_check("python-pip", Status.PROBLEM, f"{python.path} has no pip", hint, stops=True)]
    needs = parse_requires(source.files.requires)
    missing = [need for need in needs if _is_missing(need, python, known, tools)]
    backend = python.missing_backend
    if not source.files.backend and not python.version_of("setuptools"):
        backend = "setuptools"
    if backend:
        wanted = [str(need) for need in missing] or [backend.replace("_", "-")]
        text = f"the project is built by {backend}, which {python.path} does not have; builddoctor "
        text += "builds without isolation, so pip does not fetch it"
        return [_check("python-backend", Status.PROBLEM, text, f"{pip} {shlex.join(wanted)}", stops=True)]
    uses_setuptools = not source.files.backend or source.files.backend.startswith("setuptools")
    version = python.version_of("setuptools")
    if uses_setuptools and not python.version_of("wheel") and numbers(version)[:2] < WHEEL_INSIDE:
        text = f"setuptools {version} makes no wheels, and there is no package wheel: invalid command 'bdist_wheel'"
        return [_check("python-wheel", Status.PROBLEM, text, f"{pip} wheel", stops=True)]
    if missing:
        names = ", ".join(str(need) for need in missing[:4]) + (" …" if len(missing) > 4 else "")
        text = f"pyproject.toml asks for {names}; pip does not fetch it for a build without isolation"
        hint = f"{pip} {shlex.join(str(need) for need in missing)}"
        return [_check("python-packages", Status.WARNING, text, hint)]
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


def _check(name: str, status: Status, text: str, hint: str = "", *, stops: bool = False) -> Check:
    stops_build = stops and status is Status.PROBLEM
    return Check(name=name, topic=TOPIC, status=status, text=text, hint=hint, stops_build=stops_build)
