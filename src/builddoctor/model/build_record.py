"""What one supervised build tells the others on its machine.

Covers: the record, as it lies in the ledger (``supervise.ledger``); all of it is read as data of somebody else's.
Does *not* cover: what follows from the records of several builds (``policy.sharing``).
"""

from __future__ import annotations

from typing import Annotated

import msgspec

MOST_MIB = 1e9
"""A figure beyond 1000 TB is no figure. As a lease: everything there is."""

MOST_SCOPES = 32

Size = Annotated[float, msgspec.Meta(ge=0, le=MOST_MIB)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Word = Annotated[str, msgspec.Meta(max_length=64)]


class BuildRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One build at one moment. All sizes in MiB."""

    build_id: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{16}\Z")]
    pid: Annotated[int, msgspec.Meta(ge=0, le=2**31)] = 0
    start_ticks: Count = 0
    """with the pid, the identity of its supervisor"""
    boot_id: Word = ""
    pid_space: Word = ""
    """the namespace in which its pid is counted"""
    beat: Count = 0
    """rises with every word of it: who stands still says nothing any more"""
    scopes: Annotated[tuple[Word, ...], msgspec.Meta(max_length=MOST_SCOPES)] = ()
    """the limits that it lives under (``sensors.scopes``): two builds share those that both name"""
    lease_mib: Size = 0.0
    """what it may promise to its phases together, or has promised, whichever is more"""
    wish_mib: Size = 0.0
    """the lease that it is about to take; 0 for none"""
    claim_mib: Size = 0.0
    """what its first phase needs, while nothing of it runs; 0 for none"""
    wants_mib: Size = 0.0
    """what is promised to its running phases and would be to its waiting ones, as many as it may run at once"""
    use_mib: Size = 0.0
    """what its phases hold"""
    over_mib: Size = 0.0
    """what they hold beyond what they were promised"""
    yields_mib: Size = 0.0
    """what its largest phase that can be run again holds"""
    growth_mib_s: Size = 0.0
    """how fast its phases grow, from one of its looks to the next at the same ones"""
    running: Count = 0
    changes: Count = 0
    """rises whenever another set of phases runs"""
    ending: bool = False
    """it has ended a phase, whose memory is not back yet"""
    served_s: Annotated[float, msgspec.Meta(ge=0, le=1e12)] = 0.0
    """how long something of it ran while others were there: whoever had least goes first"""
