"""Named machines for planning: their figures with sources, and what such a machine leaves for a build.

Covers: the machines of this folder's TOML files, finding one by name or in a file, and its budget by arithmetic.
To add a machine, add a ``[[machine]]`` to one of the files; ``docs/reference/machine-list.schema.json`` has the keys.
Does *not* cover: this machine as it was found (``system.machine_probe``).

**GB or GiB.** Memory is built in powers of two, and makers who write ``480 GB`` of it mean 480 GiB: 32 modules of 64 GB
make the 2 TB of a DGX H100, Azure hands out 900 GiB of the 960 GB of a GB200 node, and the kernel of a DGX Spark (128
GB) counts 124,546 MiB, more than 128 decimal GB. So 1 GB of memory is taken as 1024 MiB, and 1 TB as 1024 GB.

**The share of the system.** MemTotal is less than what is built in (firmware, the kernel itself), and services take
some more before a build starts. Planners that schedule on machines they have not seen yet take 7.5 % off: that is the
default of Karpenter's ``VM_MEMORY_OVERHEAD_PERCENT`` for every instance type of AWS. A DGX Spark's MemTotal is 5.0 %
below its nominal memory. A desktop with a browser takes far more; there ``machine probe`` knows better.
"""

from __future__ import annotations

import difflib
import functools
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from builddoctor.core.errors import MachineNotFoundError
from builddoctor.core.limits import LevelKind, MemoryLevel, MemoryReading, Surroundings
from builddoctor.core.machine import Machine
from builddoctor.scheduler.budget import allowance

PROFILE_SCHEMA = 1
SYSTEM_SHARE = 0.075
"""Nominal memory that no build gets: firmware, kernel, services."""

FILES = ("nvidia", "clouds", "runners", "computers")
"""In the order in which machines are listed."""

LARGEST_FILE = 4 * 1024 * 1024
"""A probe of a machine with 34 NUMA nodes is 20 KB."""

MOST_SUGGESTIONS = 3
LONGEST_SHOWN = 60
_HINT = "a file from `builddoctor machine probe -o FILE` is one; `builddoctor machine list` shows those with a name"

Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
SizeMib = Annotated[float, msgspec.Meta(gt=0, le=1e12)]

Figure = Literal[
    "architecture",
    "cores",
    "memory_mib",
    "page_kib",
    "gpus",
    "hbm_mib_as_numa",
    "unified_memory",
    "ci_runner",
    "whole_vm",
]
"""The fields of a profile that need a source wherever they are given."""


class FigureSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where figures come from."""

    figures: tuple[Figure, ...]
    """the fields that it speaks for"""
    says: str
    """what it says, in its own units"""
    where: str
    """address of the page or file; ``by definition`` where the name of the profile is the figure"""


class MachineProfile(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of machine, as its maker describes it. Sizes in MiB, page sizes in KiB."""

    schema: int = PROFILE_SCHEMA
    """version of this object"""
    name: str
    """what ``--on`` takes, e.g. ``gb200-node``"""
    title: str
    """what it is, in a few words"""
    architecture: Literal["x86_64", "aarch64"]
    """as ``uname -m`` says it"""
    cores: Count
    """what a build on the whole machine may use, counted as ``cores_are`` says"""
    cores_are: Literal["cores", "threads"]
    """``cores``: physical ones; where hyper-threading is on, a process sees twice as many. ``threads``: vCPUs of a
    cloud, or logical CPUs: two of them may share a core"""
    memory_mib: SizeMib
    """nominal memory of the CPUs. The kernel's MemTotal is a few percent less"""
    page_kib: Count | None = None
    """page size that this kind of machine is run with; null where no source says so"""
    gpus: str = ""
    """number and model; empty where it has none"""
    hbm_mib_as_numa: Annotated[float, msgspec.Meta(ge=0, le=1e12)] = 0.0
    """memory of the GPUs that the kernel shows as NUMA nodes when the driver is in NUMA mode; never counted"""
    unified_memory: bool = False
    """GPU and CPU share one pool: running out freezes the machine"""
    ci_runner: bool = False
    """a CI agent lives in the same memory"""
    whole_vm: bool = False
    """a virtual machine that can end as a whole when its memory runs out"""
    notes: tuple[str, ...] = ()
    """to be read before planning for it"""
    sources: tuple[FigureSource, ...] = ()
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


class ListedMachine(MachineProfile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A ``[[machine]]`` of a file."""

    shared: tuple[str, ...] = ()
    """names of sources in the file's ``shared`` that speak for it too"""


class MachineList(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One TOML file of machines."""

    shared: dict[str, FigureSource] = {}
    """sources that speak for several machines"""
    machine: tuple[ListedMachine, ...]


@functools.cache
def profiles() -> tuple[MachineProfile, ...]:
    """All named machines."""
    folder = Path(__file__).parent
    lists = [msgspec.toml.decode((folder / f"{name}.toml").read_bytes(), type=MachineList) for name in FILES]
    return tuple(_profile(each, listed.shared) for listed in lists for each in listed.machine)


def _profile(listed: ListedMachine, shared: dict[str, FigureSource]) -> MachineProfile:
    known = {name: getattr(listed, name) for name in MachineProfile.__struct_fields__}
    return MachineProfile(**{**known, "sources": (*listed.sources, *(shared[name] for name in listed.shared))})


def nominal(profile: MachineProfile) -> NominalMachine:
    """The profile with its nominal limit, headroom, reserve and budget."""
    headroom = profile.memory_mib * (1.0 - SYSTEM_SHARE)
    there = Surroundings(unified_memory=profile.unified_memory, ci_runner=profile.ci_runner, whole_vm=profile.whole_vm)
    level = MemoryLevel(source=profile.name, kind=LevelKind.HOST, limit_mib=profile.memory_mib, headroom_mib=headroom)
    allowed = allowance(MemoryReading(levels=(level,), surroundings=there), 0.0)
    return NominalMachine(
        **{name: getattr(profile, name) for name in MachineProfile.__struct_fields__},
        limit_mib=profile.memory_mib,
        headroom_mib=round(headroom, 1),
        reserve_mib=round(allowed.reserve_mib, 1),
        budget_mib=round(allowed.budget_mib, 1),
    )


def find_machine(name: str) -> MachineProfile:
    """The profile of that name. Raises MachineNotFoundError with the names that are near."""
    for profile in profiles():
        if profile.name == name.strip().lower():
            return profile
    shown = name if len(name) <= LONGEST_SHOWN else name[:LONGEST_SHOWN] + "…"
    near = nearest_machines(name)
    meant = f"; did you mean {', '.join(near[:-1])}{' or ' if near[1:] else ''}{near[-1]}?" if near else ""
    raise MachineNotFoundError(
        f"no machine is called {shown!r}{meant}",
        hint="`builddoctor machine list` shows those there are; `builddoctor machine probe -o FILE` makes one of yours",
    )


def nearest_machines(name: str) -> tuple[str, ...]:
    """Names that may have been meant: those that begin so first, then those that are spelled much alike."""
    word = name[:LONGEST_SHOWN].strip().lower()
    names = [profile.name for profile in profiles()]
    begins = [each for each in names if word and (each.startswith(word) or word.startswith(each))]
    alike = difflib.get_close_matches(word, names, n=MOST_SUGGESTIONS, cutoff=0.6)
    return tuple(dict.fromkeys([*begins, *alike]))[:MOST_SUGGESTIONS]


def load_machine(name: str) -> Machine | NominalMachine:
    """A named machine, or one from a file that ``machine probe -o`` or ``machine show --json`` wrote.

    A name goes before a file that is called so. Raises MachineNotFoundError.
    """
    if "/" in name or name.endswith(".json"):
        return _read_machine(Path(name))
    try:
        return nominal(find_machine(name))
    except MachineNotFoundError:
        if _is_file(Path(name)):
            return _read_machine(Path(name))
        raise


class _Kind(msgspec.Struct):
    """What tells a probed machine from a profile: only the former was found with memory levels."""

    schema: int = PROFILE_SCHEMA
    levels: msgspec.Raw = msgspec.Raw(b"null")


def _read_machine(path: Path) -> Machine | NominalMachine:
    """Raises MachineNotFoundError: no such file, not a machine, or of a newer schema."""
    try:
        if path.exists() and not path.is_file():
            raise MachineNotFoundError(f"{path} is no file that holds a machine", hint=_HINT)
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
    except (OSError, ValueError) as error:
        raise MachineNotFoundError(
            f"cannot read {path}: {getattr(error, 'strerror', None) or error}", hint=_HINT
        ) from error
    if len(content) > LARGEST_FILE:
        raise MachineNotFoundError(f"{path} is too big to be a machine", hint=_HINT)
    try:
        kind = msgspec.json.decode(content, type=_Kind)
        if kind.schema > PROFILE_SCHEMA:
            raise MachineNotFoundError(
                f"{path} is of schema {kind.schema}, this builddoctor reads up to {PROFILE_SCHEMA}",
                hint="`pip install -U builddoctor`",
            )
        if bytes(kind.levels) != b"null":
            return msgspec.json.decode(content, type=Machine)
        return nominal(msgspec.json.decode(content, type=MachineProfile))
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        # The error may quote the file: control sequences in it must not reach the terminal.
        said = str(error) if str(error).isprintable() else repr(str(error))
        raise MachineNotFoundError(f"{path} holds no machine: {said}", hint=_HINT) from error


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False
