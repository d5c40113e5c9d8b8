"""How one project is going to be built: command, variables, folders.

Does *not* cover: working it out (``projects.plan``), or doing it.
"""

from __future__ import annotations

import msgspec


class BuildPlan(msgspec.Struct, frozen=True, kw_only=True):
    """All of it, before anything is started."""

    name: str
    title: str
    kind: str
    """``python``, ``cmake``, ``ninja`` or ``make``"""
    folder: str
    """where the command runs"""
    command: tuple[str, ...]
    settings: tuple[tuple[str, str], ...] = ()
    """environment variables and their values, beyond the environment"""
    make_folders: tuple[str, ...] = ()
    """that have to be there before"""
    output: str = ""
    """where what is built goes, for the closing words"""
    kept: str = ""
    """what a second build goes on from"""
    nvcc_by_path: bool = False
    """a setup.py without Ninja and CMake: it calls ``$CUDA_HOME/bin/nvcc``, and the environment catches its tools"""
    notes: tuple[str, ...] = ()
    """what a person should know of it"""
