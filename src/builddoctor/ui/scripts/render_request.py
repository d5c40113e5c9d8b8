"""What a file is rendered with, beside recipe and plan, and what the plan's stages need of a machine. Pure.

Covers: the project's sources, its command, its variables; memory of the stages, the least with which any of them can
run, time for a batch system; refusing plans in which a unit does not fit alone. Sizes in MiB, times in seconds. Texts
in here come from the project's facts and the command line; of a recipe's environment, only names that are allowed.
Does *not* cover: working the request out (``cli.recipe_render``).
"""

from __future__ import annotations

import math

import msgspec
from packaging.version import Version

from builddoctor.core.errors import MemoryBudgetError
from builddoctor.core.plan import AROUND_S, Plan
from builddoctor.core.recipe import Recipe
from builddoctor.core.units import escaped, format_mib

WHEEL = (
    *("{python}", "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-cache-dir", "--verbose"),
    *("--wheel-dir", "{wheels}", "{source}"),
)
"""A wheel, in the environment that is there: with build isolation the project would not see its torch."""

PACKAGES = ("setuptools", "wheel", "packaging", "ninja", "cmake")


SPARE_PERCENT = 10
"""Percent of the memory that is kept free at most, as in a gated build (docs/adr/0006)."""


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    """One environment variable."""

    name: str
    value: str
    """``{build}`` in it stands for the folder that is kept from one build to the next"""
    why: str = ""
    forced: bool = False
    """it replaces what the user has set: architectures, jobs and threads, which the plan was made for"""


class RenderWith(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    source: str = "."
    """a folder, or the address of a git repository"""
    tag: str = ""
    """what to check out of that"""
    subfolder: str = ""
    """the folder of the checkout that is built"""
    command: tuple[str, ...] = WHEEL
    """what builds it; ``{python}``, ``{source}``, ``{wheels}`` and ``{build}`` stand for themselves"""
    variables: tuple[Variable, ...] = ()
    jobs: tuple[str, ...] = ("MAX_JOBS", "CMAKE_BUILD_PARALLEL_LEVEL")
    """variables that the project reads its number of jobs from"""
    threads: tuple[str, ...] = ("NVCC_THREADS",)
    """variables that it reads nvcc's ``--threads`` from"""
    packages: tuple[str, ...] = PACKAGES
    """what has to be installed to build it"""
    image: str = ""
    """container image with nvcc; empty: NVIDIA's for the recipe's nvcc"""
    with_builddoctor: bool = False
    """the build runs under builddoctor, not in stages"""
    builddoctor: str = ""
    """its version"""
    recipe: str = ""
    """for its ``--recipe``: a name, or a file"""
    recipe_is_file: bool = False

    @property
    def from_git(self) -> bool:
        """The sources are cloned."""
        return "://" in self.source or self.source.startswith("git@")

    @property
    def released(self) -> bool:
        """This builddoctor has a tag: what lies between two of them is in no package index."""
        version = Version(self.builddoctor or "0.0")
        return version > Version("0.0") and not version.is_devrelease and version.local is None


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """In whole MiB and seconds, rounded up."""

    peak_mib: int
    """all compilers together, in the stage that takes most"""
    largest_mib: int
    """of one unit: with less nothing goes"""
    spare_mib: int
    """kept free on top: half of what the plan keeps free, the other half being for what runs there already"""
    beside_mib: int
    """held by what starts the compilers"""
    least_mib: int
    """a machine has to have that much free"""
    threads: int
    jobs: int
    """for what is not run by Ninja, and so not in stages"""
    time_s: int

    @property
    def beside_words(self) -> str:
        """Within a list of what memory is for."""
        return f"{self.beside_mib} for what starts them, " if self.beside_mib else ""

    @property
    def wanted_mib(self) -> int:
        """Free memory that the plan counts on."""
        return self.peak_mib + self.beside_mib + self.spare_mib


def needs_of(recipe: Recipe, plan: Plan, how: RenderWith) -> Needs:
    """The needs of the plan's stages, or of the gated build. Raises MemoryBudgetError where a unit does not fit."""
    refuse_too_big(recipe, plan)
    largest = max((stage.largest_mib for stage in plan.stages), default=0.0)
    peak = max((stage.peak_mib for stage in plan.stages), default=0.0)
    if how.with_builddoctor or not plan.stages:
        peak = max(plan.peak_range_mib.high, plan.peak_mib)
    # A unit that runs alone may take of what should stay free: then less than half of that is left.
    spare = min(plan.reserve_mib, max(0.0, plan.memory_mib - plan.beside_mib - max(peak, largest))) / 2
    beside = math.ceil(plan.beside_mib)
    return Needs(
        peak_mib=math.ceil(max(peak, largest)),
        largest_mib=math.ceil(largest),
        spare_mib=math.ceil(spare),
        beside_mib=beside,
        least_mib=_least(largest, spare) + beside,
        threads=min((stage.threads for stage in plan.stages), default=plan.threads),
        jobs=plan.static.jobs if plan.static is not None else 1,
        time_s=math.ceil(_longest_s(plan, how) + AROUND_S),
    )


def refuse_too_big(recipe: Recipe, plan: Plan) -> None:
    """Raises MemoryBudgetError: no number of jobs helps a unit that does not fit alone."""
    if not plan.too_big:
        return
    tallest = max((max(phase.peak_mib, phase.high_mib) for unit in recipe.units for phase in unit.phases), default=0.0)
    least = _least(tallest + plan.page_allowance_mib, plan.reserve_mib) + math.ceil(plan.beside_mib)
    shown = "; ".join(escaped(each) for each in plan.too_big[:3])
    more = f" and {len(plan.too_big) - 3} more" if len(plan.too_big) > 3 else ""
    raise MemoryBudgetError(
        f"nothing to render: with {format_mib(plan.memory_mib)} there is no number of jobs that works, for what does "
        f"not fit alone: {shown}{more}",
        hint=f"it takes {format_mib(least)}: `--memory {math.ceil(least / 1024)}GiB`",
    )


def _least(largest_mib: float, spare_mib: float) -> int:
    """The least memory M with M less what is kept of it (at most a tenth) at least the largest unit."""
    return math.ceil(min(largest_mib + spare_mib, largest_mib / (1 - SPARE_PERCENT / 100)))


def _longest_s(plan: Plan, how: RenderWith) -> float:
    """The upper end of what is expected."""
    if how.with_builddoctor or plan.staged_s is None:
        return plan.makespan_range_s.high
    widening = plan.makespan_range_s.high / plan.makespan_s if plan.makespan_s > 0 else 1.0
    return plan.staged_s * max(1.0, widening)
