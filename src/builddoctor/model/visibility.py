"""Which evidence of kills and pressure can be had in this place.

Does *not* cover: the evidence itself (``model.evidence``).
"""

from __future__ import annotations

import msgspec


class Visibility(msgspec.Struct, frozen=True, kw_only=True):
    """Each: can it be read from here?"""

    own_kills: bool = False
    """the kernel's OOM kills in our own cgroup"""
    host_kills: bool = False
    """those of the whole host, /proc/vmstat"""
    pressure: bool = False
    """/proc/pressure/memory"""
    kernel_log: bool = False
