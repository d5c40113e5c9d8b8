"""What a batch scheduler allotted, from the environment that it gave to this job.

Covers: Slurm (``--mem``, ``--mem-per-cpu``, ``--mem-per-gpu``), LSF and PBS, as an advisory cap: without cgroups they
poll and end the whole step (Slurm's OverMemoryKill), and nothing under /sys says so.
Does *not* cover: their cgroups (``sensors.cgroup``), which say it better. Ids in paths are never parsed.

Slurm's three variables are mutually exclusive, in MB = MiB; 0 means the whole node (slurm_opt.c, sbatch man page).
``LSB_CG_MEMLIMIT`` is in bytes, hexadecimal; ``PBS_RESC_MEM`` in bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from builddoctor.model.limits import Confidence, MemoryLevel
from builddoctor.units import MIB, whole_number

_HEX = re.compile(r"\A[0-9a-fA-F]{1,16}\Z")

LEAST_MIB = 30.0
"""Slurm's own floor, MinRAMSpace (cgroup.conf(5)): less is no allotment."""


class Allotment(msgspec.Struct, frozen=True, kw_only=True):
    """What a scheduler says this job may have on this node."""

    source: str
    memory_mib: float
    confidence: Confidence = "medium"


def allotment(env: Mapping[str, str]) -> Allotment | None:
    """The scheduler's memory for this job; None outside of one, and where it gives the whole node."""
    found = None
    if env.get("SLURM_JOB_ID") or env.get("SLURM_JOBID"):
        found = _slurm(env)
    elif env.get("LSB_JOBID"):
        found = _lsf(env)
    elif env.get("PBS_JOBID"):
        found = _plain("PBS_RESC_MEM", whole_number(env.get("PBS_RESC_MEM", "")))
    return found if found is not None and found.memory_mib >= LEAST_MIB else None


def scheduler_level(found: Allotment, own_use_mib: float) -> MemoryLevel:
    """The allotment as a level. Only our own use is known; other steps of the job count too, unseen."""
    return MemoryLevel(
        source=found.source,
        kind="scheduler",
        limit_mib=found.memory_mib,
        headroom_mib=found.memory_mib - own_use_mib,
        confidence=found.confidence,
        note="no cgroup keeps this; the scheduler may end the job when it looks",
    )


def _slurm(env: Mapping[str, str]) -> Allotment | None:
    per_node = whole_number(env.get("SLURM_MEM_PER_NODE", ""))
    if per_node is not None:
        return Allotment(source="SLURM_MEM_PER_NODE", memory_mib=float(per_node))
    for name, counts in (
        ("SLURM_MEM_PER_CPU", ("SLURM_CPUS_ON_NODE", "SLURM_JOB_CPUS_PER_NODE")),
        ("SLURM_MEM_PER_GPU", ("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE", "SLURM_JOB_GPUS")),
    ):
        each = whole_number(env.get(name, ""))
        if each is None:
            continue
        for count_name in counts:
            if count := _count(env.get(count_name, ""), listed=count_name == "SLURM_JOB_GPUS"):
                return Allotment(source=f"{name} x {count_name}", memory_mib=float(each * count))
        # Without a count one share would be taken for all of them.
        return None
    return None


def _count(text: str, *, listed: bool) -> int:
    """``72``, ``72(x2)`` (each of two nodes), ``h100:4``; a list ``0,1,2,3`` of ids where ``listed``."""
    if listed:
        return len([word for word in text.split(",") if word.strip()])
    match = re.match(r"\A(?:[\w-]+:)?(\d{1,6})", text.strip())
    return int(match[1]) if match else 0


def _lsf(env: Mapping[str, str]) -> Allotment | None:
    text = env.get("LSB_CG_MEMLIMIT", "").strip().removeprefix("0x")
    return _plain("LSB_CG_MEMLIMIT", int(text, 16) if _HEX.match(text) else None)


def _plain(source: str, size: int | None) -> Allotment | None:
    return None if size is None else Allotment(source=source, memory_mib=size / MIB)
