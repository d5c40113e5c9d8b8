"""A project's source tree as facts: files are read with bounds, nothing is run, nothing is written, nothing raises.

Put together from ``submodules``, ``build_files`` and ``build_folders``; judged by ``doctor.source``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from builddoctor.model.source import Source
from builddoctor.sensors.build_files import read_build_files
from builddoctor.sensors.build_folders import build_folders
from builddoctor.sensors.source_files import exists, text_of
from builddoctor.sensors.submodules import checkout_of, submodules_of


def examine_source(folder: Path, env: Mapping[str, str]) -> Source:
    """What the folder of a project holds. An empty or missing folder gives an empty answer."""
    folder = Path(os.path.abspath(folder))
    checkout = checkout_of(folder)
    top = checkout if checkout is not None and exists(checkout / ".gitmodules") else folder
    prefix = "" if top == folder else folder.relative_to(top).as_posix()
    files, submodules = read_build_files(folder, prefix, submodules_of(top))
    watched = ("setup.py", "pyproject.toml", "CMakeLists.txt", ".gitmodules")
    return Source(
        folder=str(folder),
        checkout=str(checkout) if checkout is not None else "",
        python=exists(folder / "setup.py") or exists(folder / "pyproject.toml"),
        cmake=exists(folder / "CMakeLists.txt"),
        submodules=submodules,
        files=files,
        build_folders=tuple(build_folders(folder, env)),
        unread=tuple(
            str(folder / name) for name in watched if exists(folder / name) and text_of(folder / name, 1) is None
        ),
    )
