"""The environment of a supervised build: how it sees the overlays. Pure.

Covers: what every build gets, and what builds of a folder get that was configured without us (``net``).
Does *not* cover: parallelism knobs (``intercept.knobs``).

CXX and CC are left alone: gcc is caught inside, by COMPILER_PATH (docs/adr/0003). CUDA_HOME stays the real toolkit, so
that no include path, library path or RPATH ever names an overlay.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from builddoctor.model.toolkit import Toolkit

SOCKET = "BUILDDOCTOR_SOCKET"
UNIT = "BUILDDOCTOR_UNIT"
NET_MARK = "NVCC_PREPEND_FLAGS=-noprof"
"""What the environment of an nvcc has that is caught by ``net``."""


def build_environment(
    base: Mapping[str, str],
    *,
    socket: str,
    host: Path,
    cuda: Path | None,
    toolkit: Toolkit | None,
    fallback_folder: str,
) -> dict[str, str]:
    """``base`` with the overlays in it. ``fallback_folder``: last on PATH, for a ninja where there is none."""
    env = dict(base)
    for inner in (UNIT, "BUILDDOCTOR_HELD"):
        env.pop(inner, None)
    env[SOCKET] = socket
    folders = [f"{host}/bin", *([f"{cuda}/bin"] if cuda else []), *_split(base.get("PATH") or os.defpath)]
    if fallback_folder:
        folders.append(fallback_folder)
    env["PATH"] = ":".join(dict.fromkeys(folders))
    env["COMPILER_PATH"] = ":".join([f"{host}/gcc", *_split(base.get("COMPILER_PATH", ""))])
    if cuda is not None and toolkit is not None:
        env["CUDACXX"] = env["PYTORCH_NVCC"] = f"{cuda}/bin/nvcc"
        # torch would otherwise take the folder above the first nvcc on PATH, which is the overlay.
        env.setdefault("CUDA_HOME", toolkit.home)
    return env


def net(*, cuda: Path, toolkit: Toolkit) -> dict[str, str]:
    """Further settings that catch the tools of an nvcc called by its own absolute path.

    Without its profile (``-noprof``) nvcc takes CICC_PATH and PATH from the environment; the profile's other settings
    go back in as flags, behind the user's own, where the profile puts them. No command line changes, so nothing that
    was built before is built again. Measured with 13.0: same flags, same objects (docs/adr/0004).
    ``@NAME@`` stands for the value that NAME has where the settings are used. Empty when a path holds a blank, which
    these variables cannot quote.
    """
    flags = " ".join((*toolkit.include_flags, *toolkit.library_flags))
    if any(" " in flag for flag in (*toolkit.include_flags, *toolkit.library_flags)):
        return {}
    settings = {
        "NVCC_PREPEND_FLAGS": "-noprof @NVCC_PREPEND_FLAGS@",
        "NVCC_APPEND_FLAGS": f"@NVCC_APPEND_FLAGS@ {flags}",
        "CICC_PATH": f"{cuda}/nvvm/bin",
        "PATH": f"{cuda}/nvvm/bin:{cuda}/bin:@PATH@:{toolkit.here}",
    }
    if toolkit.libdevice_folder:
        settings["NVVMIR_LIBRARY_DIR"] = toolkit.libdevice_folder
    return settings


def _split(path: str) -> list[str]:
    return [folder for folder in path.split(":") if folder]
