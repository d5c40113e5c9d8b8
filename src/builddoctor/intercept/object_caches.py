"""ccache or sccache in front of a supervised build's compilers.

Covers: which one, as launcher of CMake's and torch's compilers; what it takes for the compiler's identity; sccache's
server, which would otherwise compile somewhere where no gate is.
Does *not* cover: a build folder that was configured with a launcher, or without: CMake keeps what it was told first.

Both tell compilers apart by the file that they are called by. Here that is a gate, the same for two versions of nvcc
that lay in the same folder one after the other: so the identity of the real programs is given to them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from builddoctor.errors import UsageError
from builddoctor.model.toolkit import HostCompiler, Toolkit

Mode = Literal["auto", "ccache", "sccache", "none"]
MODES: tuple[Mode, ...] = ("auto", "ccache", "sccache", "none")

LAUNCHERS = ("CMAKE_C_COMPILER_LAUNCHER", "CMAKE_CXX_COMPILER_LAUNCHER", "CMAKE_CUDA_COMPILER_LAUNCHER")


def chosen(mode: Mode, env: Mapping[str, str]) -> str:
    """The program's path; empty for none. ``auto``: ccache where it is on PATH; it compiles in place.

    Raises UsageError where one was asked for by name and is not there.
    """
    if mode == "none":
        return ""
    name = "ccache" if mode == "auto" else mode
    found = shutil.which(name, path=env.get("PATH")) or ""
    if not found and mode != "auto":
        raise UsageError(f"--cache {mode}: there is no {mode} on PATH", hint="--cache auto takes what is there")
    return found


def identity(programs: Iterable[str]) -> str:
    """Of compilers: changes with any of their files."""
    digest = hashlib.sha256()
    for program in sorted(set(programs)):
        try:
            real = os.path.realpath(program)
            stamp = os.stat(real)
        except OSError:
            continue
        digest.update(f"{real}\0{stamp.st_size}\0{stamp.st_mtime_ns}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()[:32]


def programs_of(toolkit: Toolkit | None, compilers: Iterable[HostCompiler]) -> list[str]:
    """The files that decide what an object looks like."""
    found = [path for each in compilers for path in (each.driver, *(path for _, path in each.programs))]
    if toolkit is not None:
        found += [toolkit.nvcc, toolkit.cicc, *(path for _, path in toolkit.tools)]
    return found


def cache_settings(cache: str, programs: Iterable[str], *, nvcc: Path | None, run_folder: Path) -> dict[str, str]:
    """Environment for ``cache`` (a path). ``nvcc``: the gate that the build calls; ``run_folder``: gone afterwards."""
    settings = dict.fromkeys(LAUNCHERS, cache)
    if nvcc is not None:
        settings["PYTORCH_NVCC"] = f"{cache} {nvcc}"
    who = identity(programs)
    if os.path.basename(cache) == "sccache":
        # A server that runs already knows nothing of gates: ours ends with the build.
        settings["SCCACHE_SERVER_UDS"] = str(run_folder / "sccache")
        settings["SCCACHE_IDLE_TIMEOUT"] = "0"
        settings["SCCACHE_C_CUSTOM_CACHE_BUSTER"] = who
    else:
        settings["CCACHE_COMPILERCHECK"] = f"string:{who}"
    return settings
