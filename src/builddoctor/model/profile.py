"""A named machine for planning: its figures, and where each of them was found.

Covers: the nominal figures of a machine that nobody has probed. Sizes in MiB, page sizes in KiB.
Does *not* cover: the list of them (``machines``), or this machine as it was found (``model.machine``).
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

PROFILE_SCHEMA = 1

Cores = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
SizeMib = Annotated[float, msgspec.Meta(gt=0, le=1e12)]

Figure = Literal[
    "architecture", "cores", "memory_mib", "page_kib", "gpus", "hbm_mib_as_numa", "unified_memory", "ci_runner"
]
"""The fields of a profile that need a source wherever they are given."""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Where figures come from."""

    figures: tuple[Figure, ...]
    """the fields that it speaks for"""
    says: str
    """what it says, in its own units"""
    where: str
    """address of the page or file; ``by definition`` where the name of the profile is the figure"""


class MachineProfile(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of machine, as its maker describes it."""

    schema: int = PROFILE_SCHEMA
    """version of this object"""
    name: str
    """what ``--on`` takes, e.g. ``gb200-node``"""
    title: str
    """what it is, in a few words"""
    architecture: Literal["x86_64", "aarch64"]
    """as ``uname -m`` says it"""
    cores: Cores
    """what a build on the whole machine may use, counted as ``cores_are`` says"""
    cores_are: Literal["cores", "threads"]
    """``cores``: physical ones; where hyper-threading is on, a process sees twice as many. ``threads``: vCPUs of a
    cloud, or logical CPUs: two of them may share a core"""
    memory_mib: SizeMib
    """nominal memory of the CPUs. The kernel's MemTotal is a few percent less"""
    page_kib: Cores | None = None
    """page size that this kind of machine is run with; null where no source says so"""
    gpus: str = ""
    """number and model; empty where it has none"""
    hbm_mib_as_numa: Annotated[float, msgspec.Meta(ge=0, le=1e12)] = 0.0
    """memory of the GPUs that the kernel shows as NUMA nodes when the driver is in NUMA mode; never counted"""
    unified_memory: bool = False
    """GPU and CPU share one pool: running out freezes the machine"""
    ci_runner: bool = False
    """a CI agent lives in the same memory"""
    notes: tuple[str, ...] = ()
    """what a person should know before planning for it"""
    sources: tuple[Source, ...] = ()
    """where the figures come from"""


class NominalMachine(MachineProfile, frozen=True, kw_only=True):
    """A profile with what it leaves for a build: the keys are those of a machine that was probed."""

    limit_mib: float
    """the nominal memory"""
    headroom_mib: float
    """nominal memory less a share for firmware, kernel and services"""
    reserve_mib: float
    """what is kept free, as on a real machine"""
    budget_mib: float
    """headroom less the reserve: what compiler phases may hold together"""
    confidence: Literal["nominal"] = "nominal"
    """nothing was measured: a probed machine is worth more"""
