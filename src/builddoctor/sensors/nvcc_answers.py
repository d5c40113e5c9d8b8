"""What nvcc answers about architectures and its host compiler. Pure parsing.

Does *not* cover: its settings and version (``sensors.nvcc_dryrun``).
"""

from __future__ import annotations

import re
import shlex

_LISTED = re.compile(r"^\s*sm_(\d{2,3}[af]?)\s*$", re.MULTILINE)
_QUOTED = re.compile(r"'sm_(\d{2,3}[af]?)'")
_HOST_STEP = re.compile(r"^#\$ (?P<command>\S.* -E -x c\+\+ .*)$", re.MULTILINE)


def parse_archs(*texts: str) -> tuple[str, ...]:
    """All ``sm_…`` in the answers to ``--list-gpu-code`` and ``--help``, in rising order.

    The first names no ``a`` and ``f`` variants (13.0), the second names everything that ``-arch`` allows.
    """
    numbers = {number for text in texts for pattern in (_LISTED, _QUOTED) for number in pattern.findall(text)}
    return tuple(f"sm_{number}" for number in sorted(numbers, key=lambda one: (int(one.rstrip("af")), one)))


def parse_host_driver(text: str) -> str:
    """The host compiler that nvcc calls, as it spells it, from the output of ``--dryrun``; empty when there is none.

    It spells one with a folder as ``"/usr/bin"/g++-12``.
    """
    match = _HOST_STEP.search(text)
    if match is None:
        return ""
    try:
        return shlex.split(match["command"])[0]
    except (ValueError, IndexError):
        return ""
