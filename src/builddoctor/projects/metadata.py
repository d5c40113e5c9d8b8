"""What a source tree says of itself: its name, its version, its build system.

Covers: pyproject.toml as TOML, and in this order for the name ``PKG-INFO``, pyproject.toml, setup.cfg, setup.py, git's
remote ``origin`` and CMake's ``project()``; for the version ``PKG-INFO``, pyproject.toml, files such as ``VERSION``,
the tag of the commit that is checked out and ``__version__`` of the package, where it is a plain text. Files are read
with bounds; nothing is run, nothing raises. A pyproject.toml that is no TOML says nothing: pip refuses it too.
Does *not* cover: versions that a setup.py works out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from builddoctor.projects.cmake import read_cmake
from builddoctor.projects.git_checkout import origin_name, tags_of_head
from builddoctor.projects.setup_py import read_setup
from builddoctor.system.source_files import text_of

MOST_BYTES = 256 * 1024
"""of a file; Python's reader of TOML is slow"""
MOST_REQUIRES = 100
MOST_CHARACTERS = 100
"""of a name"""
VERSION_FILES = ("VERSION.txt", "version.txt", "VERSION", "build_tools/VERSION.txt")

_INFO_NAME = re.compile(r"^Name:[ \t]*(\S+)", re.MULTILINE)
_INFO_VERSION = re.compile(r"^Version:[ \t]*(\S+)", re.MULTILINE)
_SETUP_CFG_NAME = re.compile(r"^\[metadata\][^\[]*?^name[ \t]*=[ \t]*(\S+)[ \t]*$", re.MULTILINE)
_OWN_VERSION = re.compile(r"^__version__[ \t]*(?::[^=\n]*)?=[ \t]*[\"']([^\"'\n]+)[\"']", re.MULTILINE)
_VERSION = re.compile(r"v?(\d+(?:\.\d+)+[\w.+-]{0,40})\s*\Z")


class Pyproject(msgspec.Struct, frozen=True, kw_only=True):
    """Empty where it says nothing."""

    name: str = ""
    """of ``[project]``, or of Poetry's table"""
    version: str = ""
    """of ``[project]``; empty where a backend works it out"""
    version_module: str = ""
    """the module that setuptools takes it from, such as ``bitsandbytes``"""
    backend: str = ""
    """``build-backend``; empty for one that lies in the project itself (``backend-path``): it cannot be missing"""
    requires: tuple[str, ...] = ()
    """``build-system.requires``"""
    build_dir: str = ""
    """``tool.scikit-build.build-dir``"""


def read_pyproject(text: str) -> Pyproject:
    """The facts. Never raises."""
    if len(text) > MOST_BYTES:
        return Pyproject()
    try:
        content: dict[str, Any] = msgspec.toml.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return Pyproject()
    project, tool = _table(content, "project"), _table(content, "tool")
    build = _table(content, "build-system")
    setuptools = _table(_table(tool, "setuptools"), "dynamic")
    requires = build.get("requires", [])
    texts = [each for each in requires if isinstance(each, str)] if isinstance(requires, list) else []
    return Pyproject(
        name=_text(project, "name") or _text(_table(tool, "poetry"), "name"),
        version=_text(project, "version"),
        version_module=_text(_table(setuptools, "version"), "attr").rpartition(".")[0],
        backend="" if "backend-path" in build else _text(build, "build-backend"),
        requires=tuple(texts[:MOST_REQUIRES]),
        build_dir=_text(_table(tool, "scikit-build"), "build-dir"),
    )


def pyproject_of(folder: Path) -> Pyproject:
    """That of a folder; one that is missing says nothing."""
    return read_pyproject(text_of(folder / "pyproject.toml") or "")


def project_name(folder: Path) -> str:
    """Its name in small letters and dashes, as package indexes write it; empty when nothing says it."""
    found = (
        _first(_INFO_NAME, folder / "PKG-INFO")
        or pyproject_of(folder).name
        or _first(_SETUP_CFG_NAME, folder / "setup.cfg")
        or next(iter(_setup_names(folder)), "")
        or origin_name(folder)
        or read_cmake(_read(folder / "CMakeLists.txt")).project
    )
    return re.sub(r"[-_.\s]+", "-", found).strip("-").lower()[:MOST_CHARACTERS]


def names_of(folder: Path) -> list[str]:
    """The names that pyproject.toml and setup.py give it, as they stand there."""
    return [name for name in (pyproject_of(folder).name, *_setup_names(folder)) if name]


def project_version(folder: Path) -> str:
    """Such as ``2.8.0``; empty when nothing says it."""
    pyproject = pyproject_of(folder)
    stated = (_first(_INFO_VERSION, folder / "PKG-INFO"), pyproject.version)
    files = (_read(folder / name) for name in VERSION_FILES)
    for text in chain(stated, files, tags_of_head(folder), _own_versions(folder, pyproject.version_module)):
        if found := _VERSION.match(text.strip()):
            return found[1]
    return ""


def _own_versions(folder: Path, module: str) -> Iterator[str]:
    """What the package calls ``__version__``; one that is worked out is none."""
    package = (module or project_name(folder)).replace("-", "_").replace(".", "/")
    if re.fullmatch(r"\w+(/\w+)*", package):
        for place in (f"{package}/__init__.py", f"{package}.py"):
            yield from (_first(_OWN_VERSION, folder / root / place) for root in ("", "src"))
    # FlashAttention 3 keeps it beside its setup.py.
    yield _first(_OWN_VERSION, folder / "__init__.py")


def _setup_names(folder: Path) -> tuple[str, ...]:
    return read_setup(text_of(folder / "setup.py") or "").names


def _table(content: dict[str, Any], key: str) -> dict[str, Any]:
    table = content.get(key, {})
    return table if isinstance(table, dict) else {}


def _text(table: dict[str, Any], key: str) -> str:
    value = table.get(key, "")
    return value if isinstance(value, str) else ""


def _first(pattern: re.Pattern[str], path: Path) -> str:
    found = pattern.search(_read(path))
    return found[1] if found else ""


def _read(path: Path) -> str:
    return text_of(path, MOST_BYTES) or ""
