"""Extensions that distutils has built before, with other settings.

distutils goes by the times of files alone: built for sm_90, an extension is newer than its sources, and is taken as it
is when sm_80 is asked for. torch with Ninja, CMake and make compare commands, and need none of this.
Does *not* cover: what else changes a compile, a compiler of another version for one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

NOTE = "builddoctor-settings.json"
_FLAGS = (
    "TORCH_CUDA_ARCH_LIST",
    "CUDAARCHS",
    "NVCC_PREPEND_FLAGS",
    "NVCC_APPEND_FLAGS",
    "CFLAGS",
    "CXXFLAGS",
    "CUDA_HOME",
)


def forget_other_settings(folder: Path, settings: Iterable[tuple[str, str]], env: Mapping[str, str]) -> int:
    """Remove the extensions of ``folder/build`` unless the last build had the same settings; gives how many those were.

    Objects stay: distutils compiles them again by itself. What cannot be removed or noted is left.
    """
    effective = {**{name: env[name] for name in _FLAGS if name in env}, **dict(settings)}
    wanted = msgspec.json.encode(effective, order="sorted")
    build = folder / "build"
    note = build / NOTE
    with contextlib.suppress(OSError):
        if note.read_bytes() == wanted:
            return 0
    removed = 0
    for extension in build.glob("lib*/**/*.so"):
        with contextlib.suppress(OSError):
            extension.unlink()
            removed += 1
    with contextlib.suppress(OSError):
        build.mkdir(exist_ok=True)
        temporary = note.with_suffix(f".{os.getpid()}")
        temporary.write_bytes(wanted)
        os.replace(temporary, note)
    return removed
