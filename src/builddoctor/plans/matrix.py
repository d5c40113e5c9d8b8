"""A matrix of builds: axes as they are typed, the cells that they make, and a plan of each.

Covers: ``--matrix NAME=VALUE,VALUE``, each of which multiplies the cells, and ``--exclude NAME=VALUE,NAME=VALUE``,
which takes out all cells that have these values, as GitHub's ``strategy.matrix`` has it; the cells' names; a plan for
each set of architectures, of the nearest recipe; what all of them take together.
Does *not* cover: running them (``ui.scripts.slurm_array``); what cells have in common, which is compiled once with a
store (``phase_store``).

Of the axes ``arch`` alone changes a plan: no recipe knows the Python, torch or nvcc of a cell.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence

import msgspec

from builddoctor.core.errors import UsageError
from builddoctor.core.plan import AxisValue, MatrixCell, MatrixPlan, Plan
from builddoctor.core.units import escaped
from builddoctor.plans.inputs import ChosenRecipe, PlanHost
from builddoctor.plans.planner import plan_chosen
from builddoctor.projects.archs import parse_archs

ARCH, PYTHON = "arch", "python"
MOST_CELLS = 1000
"""Slurm's own default of MaxArraySize is 1001."""

LONGEST_NAME = 200
"""Characters of a cell's: it is a folder, and no common file system takes more than 255."""

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,30}\Z")
_VALUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}\Z")
_PYTHON = re.compile(r"3\.\d{1,2}t?\Z")
_HINT = "--matrix arch=sm_90,sm_100 --matrix python=3.11,3.12"


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One build, before it is planned."""

    name: str
    """for a folder: ``sm_90-cp312``, ``sm_80+90``"""
    values: tuple[AxisValue, ...]
    archs: tuple[str, ...] = ()
    """none: those of the recipe"""

    def value(self, axis: str) -> str:
        return next((each.value for each in self.values if each.axis == axis), "")


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """One cell with its recipe and its plan, which it may share with others."""

    cell: Cell
    chosen: ChosenRecipe
    plan: Plan


def read_cells(
    axes: Sequence[str], exclude: Sequence[str] = (), *, archs: Sequence[str] = (), native: tuple[str, ...] = ()
) -> tuple[Cell, ...]:
    """``archs``: those of all cells, where there is no axis of them. ``native``: what that word stands for.

    Raises UsageError, also for what is to be excluded and is not there: a mistyped version would be built for hours.
    """
    read = _axes(axes, native)
    if len({axis.replace("-", "_") for axis in read}) < len(read):
        raise UsageError(
            "two axes of the matrix become one variable of the job", hint=f"rename one of {', '.join(read)}"
        )
    if archs and ARCH in read:
        raise UsageError("architectures are an axis of the matrix already", hint="leave out --arch")
    count = 1
    for values in read.values():
        count *= len(values)
    if count > MOST_CELLS:
        raise UsageError(f"a matrix of {count} cells: at most {MOST_CELLS}", hint="plan a part of it")
    cells = [_cell(read, values, archs, native) for values in itertools.product(*read.values())]
    for text in exclude:
        unwanted = _excluded(text, read, native)
        cells = [cell for cell in cells if not all(cell.value(axis) in values for axis, values in unwanted.items())]
    if not cells:
        raise UsageError("nothing is left of the matrix", hint="leave out an --exclude")
    longest = max((cell.name for cell in cells), key=len)
    if len(longest) > LONGEST_NAME:
        raise UsageError(
            f"the name of a cell is too long for a folder: {longest[:60]}…, {len(longest)} characters",
            hint=f"shorter values, or fewer axes: {LONGEST_NAME} at most",
        )
    if len({cell.name for cell in cells}) < len(cells):
        raise UsageError("two cells of the matrix have one name", hint=_HINT)
    return tuple(cells)


def _axes(texts: Sequence[str], native: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Values as they were typed, each once; architectures that are the same likewise."""
    read: dict[str, tuple[str, ...]] = {}
    for text in texts:
        name, values = _named(text, "--matrix")
        known = {_canonical(name, value, native): value for value in read.get(name, ())}
        for value in values:
            known.setdefault(_canonical(name, value, native), value)
        read[name] = tuple(known.values())
    return read


def _named(text: str, option: str) -> tuple[str, tuple[str, ...]]:
    name, equals, rest = text.partition("=")
    values = tuple(value.strip() for value in rest.split(","))
    if not equals or not _NAME.match(name) or not all(values):
        raise UsageError(f"{option} {escaped(text)[:100]!r}: not an axis and its values", hint=_HINT)
    return name, values


def _canonical(axis: str, value: str, native: tuple[str, ...]) -> str:
    """The same for values that mean the same. Raises UsageError for those that mean nothing."""
    if axis == ARCH:
        try:
            return "+".join(each.sm for each in parse_archs(value, native=native))
        except UsageError as error:
            # Its own hint is for --arch.
            raise UsageError(str(error), hint="--matrix arch=sm_90,sm_100") from None
    if axis == PYTHON and not _PYTHON.match(value):
        raise UsageError(f"not a version of Python: {escaped(value)[:60]!r}", hint="--matrix python=3.11,3.12,3.13t")
    if not _VALUE.match(value):
        raise UsageError(f"--matrix {axis}={escaped(value)[:60]}: letters, digits, `.`, `_` and `-` only", hint=_HINT)
    return value


def _excluded(text: str, read: Mapping[str, Sequence[str]], native: tuple[str, ...]) -> Mapping[str, tuple[str, ...]]:
    """By axis: values of the matrix that are meant."""
    unwanted: dict[str, tuple[str, ...]] = {}
    axis, _, rest = escaped(text)[:100].partition("=")
    if "," in rest and "=" not in rest:
        # As an axis is typed; here a cell has all that stands between commas.
        raise UsageError(
            f"--exclude {axis}={rest}: no cell has several values of an axis",
            hint=" ".join(f"--exclude {axis}={value.strip()}" for value in rest.split(",")),
        )
    for part in text.split(","):
        name, (value,) = _named(part.strip(), "--exclude")
        there = [
            each for each in read.get(name, ()) if _canonical(name, each, native) == _canonical(name, value, native)
        ]
        if not there:
            known = f"{name}={','.join(read[name])}" if name in read else f"the axes {', '.join(read)}"
            raise UsageError(
                f"--exclude {escaped(part.strip())[:100]}: the matrix has no such cell", hint=f"the matrix has {known}"
            )
        unwanted[name] = (*unwanted.get(name, ()), *there)
    return unwanted


def _cell(
    read: Mapping[str, Sequence[str]], values: Sequence[str], archs: Sequence[str], native: tuple[str, ...]
) -> Cell:
    pairs = tuple(AxisValue(axis=axis, value=value) for axis, value in zip(read, values, strict=True))
    names = []
    for each in pairs:
        if each.axis == ARCH:
            archs = tuple(arch.sm for arch in parse_archs(each.value, native=native))
            names.append("+".join([archs[0], *(arch.removeprefix("sm_") for arch in archs[1:])]))
        elif each.axis == PYTHON:
            # As wheels are tagged.
            names.append(f"cp{each.value.replace('.', '')}")
        else:
            names.append(f"{each.axis}{each.value}")
    return Cell(name="-".join(names), values=pairs, archs=tuple(archs))


def plan_cells(
    cells: Sequence[Cell],
    host: PlanHost,
    *,
    choose: Callable[[Sequence[str]], ChosenRecipe],
    by_arch: bool = False,
    time_limit_s: float = 0.0,
) -> tuple[Planned, ...]:
    """A plan for each set of architectures, of the recipe that ``choose`` gives for it."""
    made: dict[tuple[str, ...], tuple[ChosenRecipe, Plan]] = {}
    for cell in cells:
        if cell.archs not in made:
            chosen = choose(cell.archs)
            plan = plan_chosen(chosen, host, by_arch=by_arch, alternatives=False, time_limit_s=time_limit_s)
            made[cell.archs] = (chosen, plan)
    return tuple(Planned(cell=cell, chosen=chosen, plan=plan) for cell in cells for chosen, plan in [made[cell.archs]])


def together(planned: Sequence[Planned], *, time_limit_s: float = 0.0) -> MatrixPlan:
    """What all of them take."""
    cells = tuple(_planned_cell(each) for each in planned)
    longest = max(cells, key=lambda cell: cell.makespan_s)
    one = planned[0].plan
    return MatrixPlan(
        project=one.project,
        version=one.version,
        machine=one.machine,
        host_arch=one.host_arch,
        cores=one.cores,
        memory_limit_mib=one.memory_mib,
        budget_mib=one.budget_mib,
        time_limit_s=time_limit_s or None,
        cells=cells,
        memory_mib=max(cell.memory_mib for cell in cells),
        makespan_s=longest.makespan_s,
        longest=longest.name,
        work_s=round(sum(cell.makespan_s for cell in cells), 1),
        memory_time_gib_h=round(sum(cell.memory_mib / 1024 * cell.makespan_s / 3600 for cell in cells), 2),
        hazards=tuple(dict.fromkeys(hazard for each in planned for hazard in each.plan.hazards)),
        notes=tuple(_notes(planned)),
    )


def _planned_cell(each: Planned) -> MatrixCell:
    plan = each.plan
    return MatrixCell(
        name=each.cell.name,
        values=each.cell.values,
        recipe=plan.recipe,
        archs=plan.archs,
        provenance=plan.provenance,
        differs=plan.differs,
        memory_mib=round(max(plan.peak_range_mib.high, plan.peak_mib) + plan.beside_mib + plan.reserve_mib, 1),
        peak_mib=plan.peak_mib,
        makespan_s=plan.makespan_s,
        makespan_range_s=plan.makespan_range_s,
        longest_unit=plan.longest_unit,
        longest_unit_s=plan.longest_unit_s,
        attempts=plan.attempts,
        too_big=plan.too_big,
    )


def _notes(planned: Sequence[Planned]) -> list[str]:
    others = [each.axis for each in planned[0].cell.values if each.axis != ARCH]
    notes = list(dict.fromkeys(note for each in planned for note in each.plan.notes))
    if others:
        notes.append(f"figures are the same for each {' and '.join(others)}: no recipe knows them apart")
    return notes
