"""The summary of a supervised build: what ``--summary FILE`` writes, one JSON object. Others rely on its keys."""

from __future__ import annotations

import msgspec

SUMMARY_SCHEMA = 1


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one build. Sizes are MiB, durations seconds."""

    schema: int = SUMMARY_SCHEMA
    """version of this object"""
    result: str
    """``ok``, ``failed`` or ``interrupted``"""
    exit_code: int
    """the build's own exit code; 128 + N after signal N"""
    verdict: str | None = None
    """why it failed, as its trace was judged at the end (one of the verdicts in remedies.md); null where it did not"""
    wall_s: float
    """from the start of the build command to its end"""
    cpu_s: float
    """processor time of all gated compiler phases"""
    budget_mib: float
    """memory that phases could have at the end: headroom + their own use - reserve"""
    limit_mib: float
    """the smallest memory limit in force"""
    peak_mib: float
    """most memory that phases held at once, sampled"""
    kernel_oom_kills: int
    """kills that the kernel made in this build's limits"""
    requeued: int
    """phases that were killed and run again"""
    killed: int
    """phases that builddoctor killed itself"""
    runaways: int = 0
    """phases that grew without end and were given up"""
    remedied: int = 0
    """phases that were too big and tried again with less memory (``--auto-remedy``)"""
    paused: int = 0
    """times that a process was stopped for a while for memory, since no gate had asked for it"""
    units: int
    """translation units that were compiled"""
    phases: int
    """compiler phases that ran"""
    effective_jobs_mean: float
    """phases running at once, mean over the time that any ran"""
    effective_jobs_max: int
    """phases running at once, most"""
    gate_overhead_s: float
    """processor time of all gates and of the supervisor's answers to them"""
    gate_peak_mib: float
    """most memory that one gate held"""
    gates: int
    """gates that ran"""
    trace: str
    """path of the trace"""
