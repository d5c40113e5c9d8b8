"""How far a recipe's figures are from one build: a distance, in words too, and the nearest of several recipes.

Covers: project, version, architectures, toolchain, host architecture, page size, where the figures come from.
Does *not* cover: single units (``recipes.recall``), or files (``recipes.shelf``).

A distance is a residual (natural logarithm), as in ``policy.past``, whose constants count here too. A mismatch lowers
trust; it refuses nothing. These have no measurement behind them and are assumptions: versions of a project, pages, a
project of another name. That of emulated figures is the distance of two host architectures, which is measured with the
same emulator (DESIGN 2); that of derived ones is the distance of two device architectures, since that is what figures
are mostly carried over between.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

import msgspec

from builddoctor.model.recipe import Provenance, Recipe
from builddoctor.policy.past import (
    OTHER_ARCH,
    OTHER_ARCH_COUNT,
    OTHER_HOST_ARCH,
    OTHER_HOST_COMPILER,
    OTHER_MAJOR,
    OTHER_MINOR,
)
from builddoctor.projects.known import find_known

OTHER_PATCH_VERSION = 0.05
OTHER_MINOR_VERSION = 0.15
OTHER_MAJOR_VERSION = 0.3
"""Of the project itself. Assumed: one version of one project is all that was measured."""

OTHER_PAGES = OTHER_HOST_ARCH
"""Assumed: no figure was taken with pages of another size."""

OTHER_PROJECT = 0.3
"""A recipe that was asked for by name, and is of a project that calls itself something else: a fork, say. Assumed."""

PARTLY_USED_PAGES = 1024
"""Of one compiler process: ends of mappings, holes of its heap. Each costs up to the difference in size. Assumed: no
compiler was measured with pages of another size than 4 KiB (64 KiB ones are the default of a GB200's kernels)."""

OF_PROVENANCE: dict[Provenance, float] = {"measured": 0.0, "emulated": OTHER_HOST_ARCH, "derived": OTHER_ARCH}


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """One build, as far as it is known before it starts; empty for what is not known."""

    project: str = ""
    version: str = ""
    archs: tuple[str, ...] = ()
    """such as ``sm_90a``"""
    nvcc: str = ""
    host_compiler: str = ""
    host_arch: str = ""
    page_kib: int = 4


class Distance(msgspec.Struct, frozen=True, kw_only=True):
    """How far a recipe is from a build."""

    value: float
    """residual in natural logarithms; 0 for the same"""
    words: tuple[str, ...] = ()
    """what differs, the weightiest first"""

    @property
    def trust(self) -> str:
        """What that means for the figures; empty for the same."""
        if not self.words:
            return ""
        if self.value < OTHER_MAJOR:
            return "trusted a little less"
        return "trusted less" if self.value < 2 * OTHER_MAJOR else "a rough guide"


class OnShelf(Protocol):
    """A recipe and whatever is known of its file (``recipes.shelf.Shelved``)."""

    @property
    def recipe(self) -> Recipe | None: ...


_Shelved = TypeVar("_Shelved", bound=OnShelf)


def distance(recipe: Recipe, wanted: Wanted) -> Distance:
    """How far this recipe is from this build, whatever its project is."""
    then = recipe.fingerprint
    parts = [
        _of_project(recipe, wanted),
        _of_version(recipe, wanted),
        _of_archs(then.archs, wanted.archs),
        _of_pages(then.page_kib, wanted.page_kib),
        _of_provenance(recipe),
    ]
    if wanted.nvcc and not agree(then.nvcc, wanted.nvcc):
        same_release = then.nvcc.split(".")[0] == wanted.nvcc.split(".")[0]
        made = f"made with nvcc {then.nvcc}" if then.nvcc else "of an unknown nvcc"
        parts.append((OTHER_MINOR if same_release else OTHER_MAJOR, f"{made}, this build has {wanted.nvcc}"))
    if wanted.host_compiler and not agree(then.host_compiler, wanted.host_compiler):
        made = f"with gcc {then.host_compiler}" if then.host_compiler else "of an unknown gcc"
        parts.append((OTHER_HOST_COMPILER, f"{made}, this build has {wanted.host_compiler}"))
    if wanted.host_arch and then.host_arch != wanted.host_arch:
        made = f"for {then.host_arch}" if then.host_arch else "for an unknown processor"
        parts.append((OTHER_HOST_ARCH, f"{made}, this machine is {wanted.host_arch}"))
    differing = sorted((part for part in parts if part is not None), key=lambda part: -part[0])
    return Distance(value=math.fsum(value for value, _ in differing), words=tuple(text for _, text in differing))


def nearest(shelved: Iterable[_Shelved], wanted: Wanted) -> tuple[_Shelved, Distance] | None:
    """The recipe of the same project with the smallest distance, the first of equals; None where there is none."""
    names = names_of(wanted.project)
    found: tuple[_Shelved, Distance] | None = None
    for each in shelved:
        if each.recipe is None or squeezed(each.recipe.project.name) not in names:
            continue
        here = distance(each.recipe, wanted)
        if found is None or here.value < found[1].value:
            found = each, here
    return found


def page_allowance_mib(then_kib: int, now_kib: int) -> float:
    """What every phase may hold more where pages are larger than those it was measured with."""
    return PARTLY_USED_PAGES * max(0, now_kib - then_kib) / 1024


def names_of(project: str) -> frozenset[str]:
    """All names of this project, squeezed: its own, and those that ``projects.catalogue`` knows."""
    known = find_known(project) if project else None
    own = {squeezed(project)} - {""}
    return frozenset(own | ({squeezed(each) for each in (known.name, known.title, *known.aliases)} if known else set()))


def squeezed(name: str) -> str:
    """``Flash-Attn`` and ``flash_attn`` alike."""
    return re.sub(r"[-_.\s]+", "", name).lower()


def _of_project(recipe: Recipe, wanted: Wanted) -> tuple[float, str] | None:
    if not wanted.project or squeezed(recipe.project.name) in names_of(wanted.project):
        return None
    return OTHER_PROJECT, f"of {recipe.project.name}, this is {wanted.project}"


def version_distance(then: str, now: str) -> float:
    """Between two versions of one project; 0 for the same, or where one says no more than the other."""
    ours, theirs = _numbers(now), _numbers(then)
    if not ours or not theirs:
        return OTHER_MINOR_VERSION
    length = max(len(ours), len(theirs), 2)
    here, there = (each + (0,) * (length - len(each)) for each in (ours, theirs))
    if here == there:
        return 0.0
    if here[0] != there[0]:
        return OTHER_MAJOR_VERSION
    return OTHER_MINOR_VERSION if here[1] != there[1] else OTHER_PATCH_VERSION


def agree(one: str, other: str) -> bool:
    """Two versions of a tool are the same as far as both say: Debian's gcc calls itself 12, and is 12.2.0."""
    ours, theirs = one.split("."), other.split(".")
    length = min(len(ours), len(theirs))
    return one == other or (bool(one and other) and ours[:length] == theirs[:length])


def _numbers(version: str) -> tuple[int, ...]:
    """``2.8.0+cu13`` → 2, 8, 0."""
    match = re.match(r"v?(\d{1,9}(?:\.\d{1,9})*)", version)
    return tuple(map(int, match[1].split("."))) if match else ()


def _of_version(recipe: Recipe, wanted: Wanted) -> tuple[float, str] | None:
    then, now = recipe.project.version, wanted.version
    if not then and not now:
        return None
    value = version_distance(then, now)
    if not value:
        return None
    made = f"{recipe.project.name} {then}" if then else "of an unknown version"
    return value, f"{made}, {f'this is {now}' if now else 'this build does not say its version'}"


def _of_archs(then: Sequence[str], now: Sequence[str]) -> tuple[float, str] | None:
    ours, theirs = set(now), set(then)
    if not ours or not theirs or ours == theirs:
        # Not known, or host code alone.
        return None
    # Its own figures of each architecture; the host's phases of a unit grow with their number.
    value = OTHER_ARCH_COUNT * (1 + abs(math.log(len(ours) / len(theirs))))
    if not ours <= theirs:
        value += OTHER_ARCH
    return value, f"for {', '.join(sorted(theirs))}, this build is for {', '.join(sorted(ours))}"


def _of_pages(then_kib: int, now_kib: int) -> tuple[float, str] | None:
    if then_kib == now_kib:
        return None
    return OTHER_PAGES, f"pages of {then_kib} KiB, here {now_kib}"


def _of_provenance(recipe: Recipe) -> tuple[float, str] | None:
    provenance = recipe.origin.provenance
    value = OF_PROVENANCE[provenance]
    host = f" {recipe.fingerprint.host_arch}" if recipe.fingerprint.host_arch else ""
    return (value, f"{provenance}{host} figures") if value else None
