"""Which running processes are compilers, by their names; the kernel has 15 bytes of each.

Covers: drivers (nvcc, gcc, clang), which make a unit, and the programs inside, which take the memory.
Does *not* cover: their command lines (``toolchain.command_lines``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

_NAMES = "cudafe++ cicc ptxas nvlink fatbinary cc1 cc1plus cc1obj lto1 lto-wrapper collect2 mold rustc"
_PHASES = frozenset(_NAMES.split())
_LINKERS = re.compile(r"(?:ld|ld\.\w+|ld64|lld|\S+-ld(?:\.\w+)?)\Z")
_DRIVERS = re.compile(r"(?:nvcc|(?:[\w.]+-)*(?:cc|c\+\+|gcc|g\+\+|clang|clang\+\+)(?:-[\d.]+)?|icpx|icx|hipcc)\Z")
MOST_NAME_BYTES = 15


def whole_name(name: str, argv: Sequence[str]) -> str:
    """As its command line has it, where the kernel has cut it: ``x86_64-conda-linux-gnu-c++``."""
    full = os.path.basename(argv[0]) if argv else ""
    return full if len(name.encode()) == MOST_NAME_BYTES and full.startswith(name) else name


def is_driver(name: str) -> bool:
    """It makes a unit, and calls others for it. clang does all of it itself, or calls itself once more."""
    return bool(_DRIVERS.match(name))


def is_phase(name: str) -> bool:
    """It does the work of one phase, and holds its memory."""
    return name in _PHASES or bool(_LINKERS.match(name))


def is_compiler(name: str) -> bool:
    """Either."""
    return is_driver(name) or is_phase(name)


def phase_tool(name: str) -> str:
    """As command lines are read: linkers take what collect2 takes."""
    return "collect2" if _LINKERS.match(name) or name in ("mold", "lto-wrapper") else name
