"""The overlay's nvcc.profile, from the real one. Pure text.

nvcc reads ``nvcc.profile`` from the folder of its argv[0] and takes its root, search path and flags from it. Ours
differs in CICC_PATH and PATH alone; ``$(_HERE_)`` becomes the real folder, so that TOP and every include and library
flag come out letter for letter as in a plain build.
"""

from __future__ import annotations

import os
import re

from builddoctor.model.toolkit import Toolkit

_LINE = re.compile(r"^\s*(?P<name>\w+)\s*(?P<op>\+=|=\+|=)\s*(?P<value>.*)$")


def default_profile(toolkit: Toolkit) -> str:
    """For a toolkit without a profile of its own."""
    return f"TOP = {toolkit.top}\nCICC_PATH = \nPATH += \n"


def overlay_profile(real_text: str, toolkit: Toolkit, folder: str) -> str:
    """The overlay's nvcc.profile: the real one, but for CICC_PATH and PATH, with the real folder for ``_HERE_``."""
    ours = {
        "CICC_PATH": f"CICC_PATH = {folder}/nvvm/bin",
        "PATH": f"PATH += {folder}/nvvm/bin:{folder}/bin:{os.path.dirname(toolkit.cicc)}:{toolkit.here}:",
    }
    missing = dict(ours)
    lines: list[str] = []
    for line in real_text.splitlines():
        match = _LINE.match(line)
        name = match["name"] if match else ""
        missing.pop(name, None)
        lines.append(ours.get(name) or line.replace("$(_HERE_)", toolkit.here))
    return "\n".join([*lines, *missing.values()]) + "\n"
