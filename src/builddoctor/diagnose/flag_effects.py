"""What compiler flags bought where they were tried: units of real projects, compiled with and without. Pure.

Covers: the rows of ``flag_effects.csv`` (``scripts/flags`` measures them), and of all that were measured the case that
is nearest to a build's own: the same project's, else the one whose compiler took most nearly as much.
Does *not* cover: which flags help where (``remedies.toml``).
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from importlib import resources

import msgspec

NAME = "flag_effects.csv"
NONE = "none"
"""As the project has it."""
LINE_INFO, NO_LINE_INFO = "-lineinfo", "no -lineinfo"
"""The one is tried where a project does without, the other where it does not: each says what the other would."""
FRONT_END = "-fdevice-syntax-only"
"""cicc ends after its front end: what it takes then, no option of the optimiser changes."""
TWO_ARCHS, TWO_AT_ONCE, OBJTEMP = "two architectures", "--threads 2", "-objtemp"
"""The second of these is tried with two architectures, so that there is something to do at once."""
UNIT = "unit"
"""In the place of a program: all processes of the unit together."""
_TRIED_WITH = {TWO_AT_ONCE: TWO_ARCHS}
_CORES = 2
"""of the machine that ``UNIT``'s times are of"""
SAME_SHARE = 0.03
"""A difference of so little is none."""


class FlagRow(msgspec.Struct, frozen=True, kw_only=True):
    """One compiler program of one unit, with one flag."""

    project: str
    version: str
    place: str
    """of the source, below the project's folder"""
    arch: str
    nvcc: str
    flag: str
    tool: str
    """``UNIT`` for all of them together; empty where the unit does not compile so"""
    peak_mib: float
    """of the largest process of this program; of all that ran at one moment"""
    cpu_s: float
    """of all of them"""
    object_kib: float
    """of the unit"""
    temporary_mib: float
    """most that lay in TMPDIR while the unit was compiled"""
    wall_s: float = 0.0
    """from the first process to the last, of ``UNIT`` alone"""
    error: str = ""
    """the compiler's own words where it does not"""

    @property
    def unit(self) -> tuple[str, str, str]:
        return (self.project, self.place, self.arch)


COLUMNS = FlagRow.__struct_fields__


class Effect(msgspec.Struct, frozen=True):
    """One program of one unit, without a flag and with it. ``changed`` has an error where the unit does not compile."""

    plain: FlagRow
    changed: FlagRow

    def text(self) -> str:
        """A clause: where it was measured, memory before and after, processor time."""
        plain, changed = self.plain, self.changed
        where = f"{plain.project} {plain.version}'s {os.path.basename(plain.place)}"
        if changed.error:
            return f"tried with nvcc {plain.nvcc}: {where} fails so ({changed.error})"
        if changed.flag == FRONT_END:
            return (
                f"measured with nvcc {plain.nvcc}: {plain.tool} of {where} takes {changed.peak_mib:.0f} of its "
                f"{plain.peak_mib:.0f} MiB in its front end"
            )
        same = _is_same(plain.peak_mib, changed.peak_mib)
        sizes = f"{plain.peak_mib:.0f} MiB as before" if same else f"{plain.peak_mib:.0f} to {changed.peak_mib:.0f} MiB"
        parts = [f"measured with nvcc {plain.nvcc}: {plain.tool} of {where}", sizes]
        parts.append(f"{changed.cpu_s / plain.cpu_s:.1f} times the processor time")
        if not _is_same(plain.object_kib, changed.object_kib):
            parts.append(f"an object of {changed.object_kib / plain.object_kib:.1f} times the size")
        return ", ".join(parts)


def _is_same(before: float, after: float) -> bool:
    return abs(after / before - 1) <= SAME_SHARE


@lru_cache(maxsize=1)
def flag_rows() -> tuple[FlagRow, ...]:
    """All, in the file's order."""
    lines = resources.files(__package__).joinpath(NAME).read_text().splitlines()
    return tuple(msgspec.convert(list(csv.DictReader(lines)), list[FlagRow], strict=False))


@cache
def effects(flag: str) -> tuple[Effect, ...]:
    """Of each unit with which it was tried, each program. Kept, for each answer of ``explain`` asks for many."""
    rows = flag_rows()
    of_unit: dict[tuple[str, str, str], list[FlagRow]] = {}
    for row in rows:
        of_unit.setdefault(row.unit, []).append(row)
    plains = (row for row in rows if row.flag == _TRIED_WITH.get(flag, NONE))
    return tuple(effect for plain in plains for effect in _effects_on(plain, flag, of_unit[plain.unit]))


def _effects_on(plain: FlagRow, flag: str, others: Sequence[FlagRow]) -> Iterator[Effect]:
    opposite = {LINE_INFO: NO_LINE_INFO, NO_LINE_INFO: LINE_INFO}.get(flag, "")
    for other in others:
        if other.tool in (plain.tool, ""):
            if other.flag == flag:
                yield Effect(plain, other)
            elif other.flag == opposite and other.tool:
                yield Effect(other, plain)


def nearest_effect(flag: str, *, tool: str, project: str, peak_mib: float | None) -> Effect | None:
    """Of a flag on a program; None where it was not tried with that. ``peak_mib``: what the program took."""
    found = [each for each in effects(flag) if each.plain.tool == tool]
    own = [each for each in found if each.plain.project == project]
    if peak_mib:
        return min(own or found, key=lambda each: abs(math.log(each.plain.peak_mib / peak_mib)), default=None)
    return max(own or found, key=lambda each: each.plain.peak_mib, default=None)


def one_at_a_time_text(project: str) -> str:
    """What two architectures of a unit take one after the other in place of both at once (``--threads``)."""
    found = nearest_effect(TWO_AT_ONCE, tool=UNIT, project=project, peak_mib=None)
    if found is None:
        return ""
    one, two = found.plain, found.changed
    return (
        f"{_measured(one)} for two architectures, {two.peak_mib:.0f} to {one.peak_mib:.0f} MiB at one moment, "
        f"{one.wall_s / two.wall_s:.1f} times the time on {_CORES} cores"
    )


def fewer_archs_text(project: str) -> str:
    """What one architecture of a unit takes in place of two."""
    found = nearest_effect(TWO_ARCHS, tool=UNIT, project=project, peak_mib=None)
    if found is None:
        return ""
    one, two = found.plain, found.changed
    return (
        f"{_measured(one)} for one architecture in place of two, {one.cpu_s / two.cpu_s:.1f} times the processor time, "
        f"an object of {one.object_kib / two.object_kib:.1f} times the size"
    )


def temporary_text(project: str) -> str:
    """How much nvcc keeps in TMPDIR while it compiles one unit: of the project, or of the unit with most."""
    plain = [each for each in flag_rows() if each.flag == NONE]
    own = [each for each in plain if each.project == project]
    most = max(own or plain, key=lambda each: each.temporary_mib)
    where = f"{most.project} {most.version}'s {os.path.basename(most.place)}"
    return f"measured with nvcc {most.nvcc}: {most.temporary_mib:.0f} MiB for one file and architecture, {where}"


def _measured(row: FlagRow) -> str:
    return f"measured with nvcc {row.nvcc}: {row.project} {row.version}'s {os.path.basename(row.place)}"
