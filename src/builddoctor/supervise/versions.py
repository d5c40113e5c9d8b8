"""What compiles in a build: versions of its nvcc, its host compiler, its C library, and the machine's architecture.

Does *not* cover: finding them (``supervise.prepare``).
"""

from __future__ import annotations

import os

from builddoctor.supervise.prepare import Prepared
from builddoctor.supervise.unit_keys import Toolchain


def toolchain(prepared: Prepared) -> Toolchain:
    """As units' names across builds have it."""
    return Toolchain(
        nvcc=prepared.toolkit.version if prepared.toolkit is not None else "",
        host_compiler=next((each.version for each in prepared.tools.compilers), ""),
        host_arch=os.uname().machine,
    )


def versions(prepared: Prepared) -> list[str]:
    """What a vendor asks for first."""
    tools = toolchain(prepared)
    libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
    named = (("nvcc", tools.nvcc), ("gcc", tools.host_compiler), ("", libc), ("", os.uname().machine))
    return [f"{name} {value}".strip() for name, value in named if value]
