"""What ``nvcc --dryrun`` says of its own toolkit: the real tools, found from the toolkit itself. Pure parsing.

nvcc prints its settings as ``#$ NAME=value`` before its commands (13.0 and before alike): ``_HERE_`` (folder of the
nvcc that runs), ``TOP``, ``CICC_PATH``, ``PATH``, ``INCLUDES``, ``SYSTEM_INCLUDES``, ``LIBRARIES``. A wrapper such as
Debian's /usr/bin/nvcc is seen through, since the nvcc behind it prints its own folder.
"""

from __future__ import annotations

import re
import shlex

import msgspec

_SETTING = re.compile(r"^#\$ (?P<name>[A-Z_]+)=(?P<value>.*)$", re.MULTILINE)
_RELEASE = re.compile(r"release (?P<release>\d+\.\d+), V(?P<version>[\d.]+)")


class NvccSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one nvcc. Folders are spelled as nvcc spells them."""

    here: str
    top: str
    cicc_folder: str
    search_path: tuple[str, ...]
    """where nvcc looks for cudafe++, ptxas and the host compiler, in order"""
    libdevice_folder: str = ""
    include_flags: tuple[str, ...] = ()
    library_flags: tuple[str, ...] = ()


def parse_settings(text: str) -> NvccSettings | None:
    """Settings from the output of ``nvcc --dryrun``; None when it is not that."""
    values = {match["name"]: match["value"].strip() for match in _SETTING.finditer(text)}
    here, top = values.get("_HERE_"), values.get("TOP")
    if not here or not top:
        return None
    return NvccSettings(
        here=here,
        top=top,
        cicc_folder=values.get("CICC_PATH") or f"{top}/nvvm/bin",
        search_path=tuple(folder for folder in values.get("PATH", "").split(":") if folder),
        libdevice_folder=values.get("NVVMIR_LIBRARY_DIR", ""),
        include_flags=_words(values.get("INCLUDES", "")) + _words(values.get("SYSTEM_INCLUDES", "")),
        library_flags=_words(values.get("LIBRARIES", "")),
    )


def parse_version(text: str) -> str:
    """``13.0.88`` from ``nvcc --version``; empty when it is not there."""
    match = _RELEASE.search(text)
    return match["version"] if match else ""


def _words(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError:
        return ()
