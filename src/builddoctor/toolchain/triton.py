"""Triton's own ptxas: programs in its package's folder, which PATH does not lead to.

Covers: which variables name them, and which files Triton would call: those that the user has named, else those of the
package that the command's own Python has. Triton asks a ptxas for its version and writes PTX for that one, and an older
Triton refuses a newer ptxas: so a gate has to stand before that very file, and the toolkit's ptxas is no stand-in.
Does *not* cover: a command that is a shell's script, whose Python is not known before it runs.
"""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from builddoctor.toolchain.discover import is_overlay

_PROGRAMS = (("TRITON_PTXAS_PATH", "ptxas"), ("TRITON_PTXAS_BLACKWELL_PATH", "ptxas-blackwell"))
"""The second is called for sm_100 and later (triton/knobs.py, 3.6)."""

_PACKAGES = ("site-packages", "dist-packages")


class TritonTool(msgspec.Struct, frozen=True, kw_only=True):
    """A ptxas that Triton calls, and the variable that may name another."""

    variable: str
    path: str


def triton_tools(command: tuple[str, ...], env: Mapping[str, str]) -> tuple[TritonTool, ...]:
    """Those that this command's Triton would call. Nothing is started for it."""
    folders = _triton_folders(command, env)
    # Of several it is not known which one counts.
    folder = folders[0] if len(folders) == 1 else None
    found = list[TritonTool]()
    for variable, name in _PROGRAMS:
        path = env.get(variable) or (str(folder / name) if folder is not None else "")
        if os.path.isabs(path) and os.path.isfile(path) and os.access(path, os.X_OK) and not is_overlay(Path(path)):
            found.append(TritonTool(variable=variable, path=path))
    return tuple(found)


def _triton_folders(command: tuple[str, ...], env: Mapping[str, str]) -> list[Path]:
    for prefix in _prefixes(command, env):
        found = [
            Path(each)
            for packages in _PACKAGES
            for each in sorted(glob.glob(f"{glob.escape(prefix)}/lib/python3*/{packages}/triton/backends/nvidia/bin"))
        ]
        if found:
            return found
    return []


def _prefixes(command: tuple[str, ...], env: Mapping[str, str]) -> Iterator[str]:
    """Where the packages of the Python lie that runs the command: beside it, and where a link to it leads."""
    path = shutil.which(command[0], path=env.get("PATH") or os.defpath) if command else None
    if path is None:
        return
    for each in dict.fromkeys((os.path.abspath(path), os.path.realpath(path))):
        yield os.path.dirname(os.path.dirname(each))
