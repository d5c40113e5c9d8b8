"""What one supervised build tells the others on its machine.

Covers: the record, as it lies in the ledger (``supervise.ledger``); all of it is read as data of somebody else's.
Does *not* cover: what follows from the records of several builds (``policy.sharing``).
"""

from __future__ import annotations

from typing import Annotated

import msgspec

MOST_MIB = 1e9
"""A figure beyond 1000 TB is no figure."""

MOST_SCOPES = 32

Size = Annotated[float, msgspec.Meta(ge=0, le=MOST_MIB)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e12)]


class BuildRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One build at one moment. All sizes in MiB."""

    build_id: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{16}\Z")]
    pid: Annotated[int, msgspec.Meta(ge=0, le=2**31)]
    """for people: as numbered in its own process namespace"""
    boot_id: Annotated[str, msgspec.Meta(max_length=64)] = ""
    scopes: Annotated[
        tuple[Annotated[str, msgspec.Meta(max_length=64)], ...], msgspec.Meta(max_length=MOST_SCOPES)
    ] = ()
    """the limits that it lives under (``sensors.scopes``): two builds share those that both name"""
    beat_s: Seconds = 0.0
    """when it wrote this, on the machine's monotonic clock"""
    committed_mib: Size = 0.0
    """what its running phases hold or were promised, whichever is more of each"""
    rss_mib: Size = 0.0
    """what they hold"""
    waiting_mib: Size = 0.0
    """what its waiting phases would be promised, as many of them as it may run at once"""
    running: Annotated[int, msgspec.Meta(ge=0, le=10**6)] = 0
    claim_mib: Size = 0.0
    """what a phase that cannot start needs while nothing of this build runs, or one that is about to start"""
    trying: bool = False
    """it looks, this moment, whether it may start what it claims"""
    served_s: Seconds = 0.0
    """how long something of it ran while others were there: whoever had least goes first"""
