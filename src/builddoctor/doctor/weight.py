"""How heavy the heaviest phases of a project are: what the memory of a machine means for it.

From, in order: the last build of this folder that left a trace; what is known of the project; any heavy CUDA unit.
"""

from __future__ import annotations

import msgspec

HEAVY_MIB = 4198.0
"""The largest phase of TransformerEngine 2.8 for sm_100, nvcc 13.0 (DESIGN 2: 4.1 GiB, measured)."""


class Weight(msgspec.Struct, frozen=True, kw_only=True):
    """The largest phase that has to be expected."""

    heavy_mib: float = HEAVY_MIB
    what: str = "heavy CUDA units"
    source: str = "the largest of TransformerEngine 2.8"


def weigh(*, traced_mib: float | None = None, known_mib: float | None = None, known_source: str = "") -> Weight:
    """The best knowledge there is. Sizes below 64 MiB are no knowledge."""
    if traced_mib is not None and traced_mib >= 64:
        return Weight(heavy_mib=traced_mib, what="its largest phases", source="measured in its last build here")
    if known_mib is not None and known_mib >= 64:
        return Weight(heavy_mib=known_mib, what="its heavy phases", source=known_source)
    return Weight()
