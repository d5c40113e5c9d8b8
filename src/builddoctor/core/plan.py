"""A plan: how one recipe's build would run on one machine; and a recorded build at other limits. Computed; never kept.

Covers: the shape that ``builddoctor plan`` prints and that recipes are rendered from, of a matrix of builds, and of
a table of simulated ones. Sizes in MiB, times in seconds.
Does *not* cover: working them out (``plans``, ``simulate.what_if``), or how a project is started (``core.build_plan``).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from builddoctor.core.recipe import Hazard, Provenance

PLAN_SCHEMA = 1

AROUND_S = 1200.0
"""Of a build, beside its compilers, for what no recipe knows: configuring, packing, a slow file system."""

StageName = Literal["light", "medium", "heavy", "solo", "rest"]


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """Units that are built together, with one number of jobs: one run of Ninja."""

    name: str
    """such as ``heavy``, or ``heavy sm_90`` where stages are split by architecture"""
    weight: StageName
    """``light`` to ``solo`` by the memory of its units; ``rest``: whatever the other stages have left, links too"""
    jobs: int
    """so many at once fit, whichever of the stage's units they are"""
    threads: int = 1
    archs: tuple[str, ...] = ()
    """all units of the stage are for these; empty where stages are not split by architecture"""
    targets: tuple[str, ...]
    """what Ninja calls them, longest first; none for ``rest``"""
    units: int
    largest_mib: float
    """peak of its largest unit"""
    peak_mib: float
    """of all jobs together, at the worst moment"""
    makespan_s: float


class StaticPair(msgspec.Struct, frozen=True, kw_only=True):
    """The fastest fixed ``MAX_JOBS`` and ``--threads`` that are safe, without builddoctor."""

    jobs: int
    threads: int
    peak_mib: float
    makespan_s: float


class Alternative(msgspec.Struct, frozen=True, kw_only=True):
    """The same build with other memory or cores."""

    cores: int
    memory_mib: float
    budget_mib: float
    makespan_s: float | None
    """None: it does not fit"""
    static_jobs: int | None
    """safe ``MAX_JOBS`` there; None: not even 1"""
    static_s: float | None


class PlanNode(msgspec.Struct, frozen=True, kw_only=True):
    """Another machine that may run phases."""

    cores: int
    budget_mib: float
    """what phases may hold there"""


class WithNodes(msgspec.Struct, frozen=True, kw_only=True):
    """The same build with other machines (``--cluster``)."""

    nodes: tuple[PlanNode, ...]
    makespan_s: float | None
    """None: something fits on none of them"""
    only_there: tuple[str, ...] = ()
    """units that fit on one of them, and not here"""


class Range(msgspec.Struct, frozen=True, kw_only=True):
    """Between these a figure is expected to lie."""

    low: float
    high: float


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    schema: int = PLAN_SCHEMA
    recipe: str
    """its name, or its file's"""
    project: str
    version: str = ""
    archs: tuple[str, ...] = ()
    provenance: Provenance
    runs: int = 1
    differs: tuple[str, ...] = ()
    """how the recipe differs from what is planned, in words; each widens the ranges"""
    machine: str
    """``this machine``, a named one, or ``--cores``/``--memory`` as given"""
    host_arch: str = ""
    cores: int
    memory_mib: float
    """the limit"""
    reserve_mib: float
    beside_mib: float = 0.0
    """held beside the compilers by what starts them: pip, Python with torch"""
    budget_mib: float
    page_kib: int = 4
    page_allowance_mib: float = 0.0
    """added to every phase for pages larger than those that the recipe was measured with"""
    window: int
    """units that are open at once in a gated build (MAX_JOBS there)"""
    threads: int
    """nvcc's ``--threads``"""
    order: tuple[str, ...] = ()
    """places of all units, in the order in which they should begin"""
    stages: tuple[Stage, ...]
    peak_mib: float
    """of all compilers together, gated"""
    peak_range_mib: Range
    makespan_s: float
    """gated"""
    makespan_range_s: Range
    time_limit_s: float | None = None
    """of the jobs that it is built in, where there is one"""
    attempts: int | None = None
    """so many of them, at the upper end of the time; None with a limit: some unit takes longer than a job"""
    longest_unit: str = ""
    longest_unit_s: float = 0.0
    """its phases one after the other: no build is shorter"""
    staged_s: float | None
    """all stages one after the other, without builddoctor; None: a unit does not fit"""
    static: StaticPair | None
    alternatives: tuple[Alternative, ...] = ()
    too_big: tuple[str, ...] = ()
    """units that do not fit alone, with what they need"""
    cluster: WithNodes | None = None
    """with the other machines that were asked for"""
    hazards: tuple[Hazard, ...] = ()
    notes: tuple[str, ...] = ()
    """what a person should know: memory of GPUs that is not counted, page sizes, NUMA"""


class AxisValue(msgspec.Struct, frozen=True, kw_only=True):
    """What one axis of a matrix is for one of its cells."""

    axis: str
    value: str
    """as it was typed"""


class MatrixCell(msgspec.Struct, frozen=True, kw_only=True):
    """One build of a matrix."""

    name: str
    """such as ``sm_90-cp312``"""
    values: tuple[AxisValue, ...]
    recipe: str
    archs: tuple[str, ...]
    provenance: Provenance
    differs: tuple[str, ...] = ()
    memory_mib: float
    """to ask a batch system for: the upper end of its peak under builddoctor, and what stays free; in stages it is
    another figure"""
    peak_mib: float
    makespan_s: float
    makespan_range_s: Range
    longest_unit: str = ""
    longest_unit_s: float = 0.0
    attempts: int | None = None
    """jobs with the time limit that it takes; None with a limit: some unit takes longer than a job"""
    too_big: tuple[str, ...] = ()
    """units that do not fit alone: its other figures are those of what fits"""


class MatrixPlan(msgspec.Struct, frozen=True, kw_only=True):
    """All of them, on one kind of machine."""

    schema: int = PLAN_SCHEMA
    project: str
    version: str = ""
    machine: str
    host_arch: str = ""
    cores: int
    memory_limit_mib: float
    budget_mib: float
    time_limit_s: float | None = None
    """of one job, where there is one"""
    cells: tuple[MatrixCell, ...]
    memory_mib: float
    """the most that a cell needs, as an array job with builddoctor asks for it"""
    makespan_s: float
    """of the longest cell: no array ends sooner"""
    longest: str
    """that cell"""
    work_s: float
    """of all cells, one after the other"""
    memory_time_gib_h: float
    """memory times time, each cell with its own"""
    hazards: tuple[Hazard, ...] = ()
    notes: tuple[str, ...] = ()


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """One simulated build."""

    cores: int
    limit_mib: float
    as_it_was: bool
    """these are the cores and the limit of the recorded build"""
    makespan_s: float | None
    """None when it would not complete"""
    problem: str = ""
    """why not, in words"""
    redone: int = 0
    """phases that would be killed and run again"""
    plain_s: float | None
    """a build tool with MAX_JOBS = cores and no supervision; None when a compiler would be killed"""


class WhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """A table of them: every limit with every number of cores."""

    scenarios: tuple[Scenario, ...]
    cores: tuple[int, ...]
    limits_mib: tuple[float, ...]
    phases: int
    at_least: int
    """phases that never ran to their end: taken with what they held when they were stopped"""
    left_out: str = ""
    """what is not simulated and why; empty when all of the build is"""
