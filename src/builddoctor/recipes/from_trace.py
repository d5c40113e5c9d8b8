"""Recipes from traces of builds.

Covers: one trace or several of the same project, what is left out, in words. A unit counts where
it was built to its end: half a unit would look lighter than it is. Killed runs of phases are left out and counted.
Several traces are joined: units of a build that was continued later come from both, and those built twice have a median
and a high. In traces from before units had names, a unit's place is its path below the build's folder.
Does *not* cover: which phases of two builds are the same (``recipes.measured_phases``).
"""

from __future__ import annotations

import datetime as dt
import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path, PurePosixPath

import msgspec

from builddoctor.core.errors import RecipeError
from builddoctor.core.events import Admit, BuildResult, Header, MemorySampled, PhaseEnded, Resume, Suspend
from builddoctor.core.phase import Outcome, PhaseKind
from builddoctor.core.recipe import Fingerprint, Origin, Recipe, RecipeProject, RecipeUnit
from builddoctor.core.units import counted, escaped, format_mib
from builddoctor.estimation.course import CourseWatch, course_text, together, watch_courses
from builddoctor.recipes.measured_phases import MeasuredPhase, how_words, recipe_of_rows, word
from builddoctor.recipes.recipe_file import checked
from builddoctor.trace.analysis import read_state
from builddoctor.trace.reader import TraceReader
from builddoctor.trace.state import BuildState, PhaseState, UnitState

MOST_NAMED = 5
"""Units of one kind of trouble that are named; the others are counted."""


PLACE_PARTS = 3
"""Of a source outside the build's folder, the last parts of its path."""


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """A recipe, and what did not get into it."""

    recipe: Recipe
    left_out: tuple[str, ...] = ()
    """in words"""
    complete: bool = True
    """every build went to its end, or a later one built what it had not"""
    differs: tuple[str, ...] = ()
    """how the later builds' tools differ from the first's, in words"""
    phases: tuple[MeasuredPhase, ...] = ()
    """what it was made from"""


def recipe_from_traces(paths: Sequence[Path], *, name: str = "") -> Made:
    """``name``: of the project, where the traces do not say it, or say another.

    Raises TraceError for what is no trace, RecipeError for traces of different projects or machines' kinds, and where
    no unit was built to its end.
    """
    builds, twice = _each_once([gather(path, run) for run, path in enumerate(paths, 1)])
    if not builds:
        raise RecipeError("no trace was named", hint="builddoctor recipe from-trace last")
    _same_build(builds, named=bool(name))
    for build in builds:
        if build.header.attached:
            raise RecipeError(
                f"{build.path}: that build ran without builddoctor, and was only looked at once a second",
                hint="run it supervised: `builddoctor run -- COMMAND…`, whose trace has every peak",
            )
    phases, refused = _fit_for_recipes([phase for build in builds for phase in build.phases])
    halves = _halves(builds, {phase.place for phase in phases})
    left_out = [*refused, *halves, *_said(builds), *twice]
    first = builds[0]
    if not phases:
        raise RecipeError(
            f"{first.path}: no unit was built to its end" + "".join(f"; {words}" for words in left_out[:3]),
            hint="`builddoctor trace show` says why the build failed",
        )
    complete = any(build.ended_well for build in builds) and not halves and not refused
    project = RecipeProject(name=word(name or first.project) or "unnamed", version=word(first.version))
    recipe = recipe_of_rows(
        phases,
        project=project,
        fingerprint=_fingerprint(first.header),
        origin=_origin(builds, complete=complete),
    )
    return Made(
        recipe=checked(recipe, first.path.name),
        left_out=tuple(left_out),
        complete=complete,
        differs=_differing(builds),
        phases=tuple(phases),
    )


def _each_once(builds: Sequence[Gathered]) -> tuple[list[Gathered], list[str]]:
    """A build whose trace was named twice, or exists twice, counts once."""
    found: dict[str, Gathered] = {}
    words = []
    for build in builds:
        first = found.setdefault(build.header.trace_id or str(build.path), build)
        if first is not build:
            words.append(f"{build.path.name}: the trace of the same build as {first.path.name}, counted once")
    return list(found.values()), words


def _same_build(builds: Sequence[Gathered], *, named: bool) -> None:
    first = builds[0]
    for build in builds[1:]:
        ours, theirs = first.header, build.header
        for what, a, b in (
            ("project", "" if named else first.project, build.project),
            ("architectures", ",".join(sorted(ours.archs)), ",".join(sorted(theirs.archs))),
            ("processor", ours.host_arch, theirs.host_arch),
        ):
            if a and b and a != b:
                raise RecipeError(
                    f"{first.path.name} and {build.path.name} are of different builds: {what} {a} and {b}",
                    hint="make a recipe of each; `builddoctor recipe diff A B` sets them side by side",
                )


def _differing(builds: Sequence[Gathered]) -> tuple[str, ...]:
    first = builds[0]
    found: dict[str, None] = {}
    for build in builds[1:]:
        for what, a, b in (
            ("version", first.version, build.version),
            ("nvcc", first.header.nvcc, build.header.nvcc),
            ("gcc", first.header.host_compiler, build.header.host_compiler),
            ("pages of KiB", str(first.header.page_kib), str(build.header.page_kib)),
        ):
            if a and b and a != b:
                found[f"{what} {a} in {first.path.name}, {b} in {build.path.name}"] = None
    return tuple(found)


def _fingerprint(header: Header) -> Fingerprint:
    return _fitting(
        Fingerprint(
            archs=tuple(sorted(set(header.archs))),
            nvcc=word(header.nvcc),
            host_compiler=word(header.host_compiler),
            host_arch=word(header.host_arch),
            page_kib=header.page_kib,
        ),
        Fingerprint(nvcc=word(header.nvcc), host_arch=word(header.host_arch)),
    )


def _fitting(wanted: Fingerprint, otherwise: Fingerprint) -> Fingerprint:
    """``otherwise``, when the trace's values are not allowed in a recipe."""
    try:
        return msgspec.convert(msgspec.to_builtins(wanted), Fingerprint)
    except msgspec.ValidationError:
        return otherwise


def _origin(builds: Sequence[Gathered], *, complete: bool) -> Origin:
    last = builds[-1].header
    days = [build.header.started_at[:10] for build in builds]
    machine = [f"{last.cores} cores", f"{format_mib(last.limit_mib)} of memory", escaped(last.host_arch)]
    return Origin(
        provenance="measured",
        how=how_words(len(builds), complete=complete),
        machine=", ".join(part for part in machine if part)[:1000],
        builddoctor=word(last.builddoctor),
        date=max(filter(_is_day, days), default=""),
        traces=tuple(dict.fromkeys(filter(None, (word(build.header.trace_id) for build in builds)))),
    )


def _is_day(text: str) -> bool:
    try:
        return dt.date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _fit_for_recipes(phases: Sequence[MeasuredPhase]) -> tuple[list[MeasuredPhase], list[str]]:
    """The phases whose names and figures are allowed in a recipe; the units that had others, in words."""
    good: list[MeasuredPhase] = []
    refused: dict[str, str] = {}
    for phase in phases:
        fit = _without_odd_target(phase)
        problem = _problem(fit)
        if problem:
            refused.setdefault(phase.place, problem)
        else:
            good.append(fit)
    good = [phase for phase in good if phase.place not in refused]
    words = [f"{escaped(place)[:200]}: {problem}" for place, problem in refused.items()]
    return good, _few(words, "units with names or figures that no recipe may hold")


def _without_odd_target(phase: MeasuredPhase) -> MeasuredPhase:
    """Without a target outside the build's folder (an absolute path): it means nothing on another machine."""
    if not phase.target or _converted(phase, target=phase.target) == "":
        return phase
    return msgspec.structs.replace(phase, target="")


def _problem(phase: MeasuredPhase) -> str:
    return _converted(phase, target=phase.target) if phase.place else "it has no name"


def _converted(phase: MeasuredPhase, *, target: str) -> str:
    """Why the model refuses a unit with this phase; empty when it does not."""
    unit = {
        "place": phase.place,
        "output": phase.output,
        "target": target,
        "options": phase.options,
        "source_digest": phase.source_digest,
        "archs": phase.archs,
        "phases": [
            {
                "kind": phase.kind.value,
                "tool": phase.tool,
                "arch": phase.arch,
                "input_mib": phase.input_mib,
                "peak_mib": phase.peak_mib,
                "cpu_s": phase.cpu_s,
                "course": phase.course,
            }
        ],
    }
    try:
        msgspec.convert(unit, RecipeUnit)
    except msgspec.ValidationError as error:
        return str(error).replace("`$.", "`")
    return ""


def _halves(builds: Sequence[Gathered], whole: set[str]) -> list[str]:
    """Units that no build built to the end."""
    halves = {half.place: half.why for build in builds for half in build.halves if half.place not in whole}
    return _few([f"{escaped(place)[:200]}: {why}" for place, why in halves.items()], "units that did not end")


def _said(builds: Sequence[Gathered]) -> list[str]:
    return [f"{build.path.name}: {said}" if len(builds) > 1 else said for build in builds for said in build.said]


def _few(words: list[str], what: str) -> list[str]:
    more = len(words) - MOST_NAMED
    return [*words[:MOST_NAMED], f"{more} more {what}"] if more > 0 else words


class Half(msgspec.Struct, frozen=True, kw_only=True):
    """A unit that was not built to its end."""

    place: str
    why: str


class Gathered(msgspec.Struct, frozen=True, kw_only=True):
    """What one trace gives."""

    path: Path
    header: Header
    project: str
    version: str
    ended_well: bool
    """the build ended, with exit code 0"""
    phases: tuple[MeasuredPhase, ...]
    halves: tuple[Half, ...]
    said: tuple[str, ...]
    """what a person should know of this trace"""


def gather(path: Path, run: int) -> Gathered:
    """Read one trace; ``run`` is its number. Raises TraceError."""
    state, skipped = read_state(path)
    courses = _courses(path)
    header, summary = state.header, state.summary
    assert header is not None, "a trace begins with its header"
    project = _project(header, state)
    said = []
    if summary is None:
        said.append("the trace was cut off: a part of the build")
    elif summary.result is not BuildResult.OK:
        said.append(f"the build failed with exit code {summary.exit_code}: a part of it")
    if skipped:
        said.append(f"{counted(skipped, 'unreadable line')} of the trace")
    whole: dict[tuple[str, ...], list[MeasuredPhase]] = {}
    halves: dict[str, str] = {}
    others = again = 0
    for unit in state.units:
        if unit.key is not None and unit.key.project != project:
            others += 1
            continue
        # Links have no source, and are not counted among the units; what configure steps try out has no name.
        if not unit.unit.counted and not (_is_link(unit) and _named(unit, header)):
            continue
        place = _place(unit, header)
        failed = summary is None or summary.result is not BuildResult.OK
        why = _unfinished(unit, failed=failed, remedied=state.remedied)
        if why:
            halves.setdefault(place, why)
            continue
        rows = [_row(unit, phase, phase.end, header, run, courses) for phase in unit.phases if phase.end is not None]
        if not rows:
            continue
        key = (place, rows[0].output, rows[0].target)
        again += key in whole
        whole[key] = rows
    if others:
        said.append(f"{counted(others, 'unit')} of other projects, built with it")
    if again:
        said.append(f"{counted(again, 'unit')} compiled more than once in this build: the last time counts")
    if state.counts.superseded:
        said.append(f"{counted(state.counts.superseded, 'run')} of phases that were ended and run again")
    return Gathered(
        path=path,
        header=header,
        project=project,
        version=header.project_version if project == _own_project(header) else "",
        ended_well=summary is not None and summary.result is BuildResult.OK,
        phases=tuple(row for rows in whole.values() for row in rows),
        halves=tuple(Half(place=place, why=why) for place, why in halves.items() if not _in(place, whole)),
        said=tuple(said),
    )


def _courses(path: Path) -> Mapping[int, str]:
    """Of the phases that ended well, by their numbers."""
    watches: dict[int, CourseWatch] = {}
    found: dict[int, str] = {}
    for event in TraceReader(path):
        if isinstance(event, Admit):
            watches[event.phase_id] = CourseWatch(event.at_s)
        elif isinstance(event, MemorySampled | Suspend | Resume):
            watch_courses(watches, event)
        elif isinstance(event, PhaseEnded) and (watch := watches.pop(event.phase_id, None)) is not None:
            course = watch.course(peak_mib=event.peak_mib, wall_s=event.wall_s)
            if course and event.outcome is Outcome.OK:
                found[event.phase_id] = course_text(together([course]))
    return found


def _in(place: str, whole: dict[tuple[str, ...], list[MeasuredPhase]]) -> bool:
    return any(key[0] == place for key in whole)


def _project(header: Header, state: BuildState) -> str:
    """The build's own; where none of its units is of that (``pip install`` from somewhere), the one with the most."""
    own = _own_project(header)
    counts = Counter(unit.key.project for unit in state.units if unit.key is not None and unit.unit.counted)
    return own if not counts or own in counts else counts.most_common(1)[0][0]


def _own_project(header: Header) -> str:
    """Traces from before they had a project have a title, which begins with it, and the folder that was built in."""
    return header.project or header.title.partition(" ")[0] or PurePosixPath(header.cwd).name or "unnamed"


def _is_link(unit: UnitState) -> bool:
    return not unit.unit.source


def _named(unit: UnitState, header: Header) -> bool:
    """Traces with names give none to what configure steps try out; those without any have no host architecture."""
    if unit.unit.output in ("", "-"):
        # What the build only asks of its compiler.
        return False
    return unit.key is not None or (not header.host_arch and not unit.unit.output.startswith(("cmTC_", "a.out")))


def _place(unit: UnitState, header: Header) -> str:
    if unit.key is not None:
        return unit.key.place
    if _is_link(unit):
        return f"link {PurePosixPath(unit.unit.output).name or 'unnamed'}"
    source = os.path.normpath(os.path.join(header.cwd, unit.unit.source))
    below = os.path.relpath(source, header.cwd)
    return below if not below.startswith("..") else "/".join(PurePosixPath(source).parts[-PLACE_PARTS:])


def _target(unit: UnitState, header: Header) -> str:
    """As Ninja calls it; empty for what lies elsewhere, which is nobody's in another folder.

    Without a name, a relative one is below the folder where the compiler ran: Ninja's own.
    """
    output = unit.target if unit.key is not None else unit.unit.output
    if unit.key is None and os.path.isabs(output):
        output = os.path.relpath(output, header.cwd)
    below = os.path.normpath(output) if output else ""
    return "" if below.startswith(("..", "/")) else below


def _unfinished(unit: UnitState, *, failed: bool, remedied: Collection[int]) -> str:
    """Why a unit does not count; empty when it does. ``remedied``: phases that were run with less memory."""
    for state in unit.phases:
        what = escaped(f"{state.row.kind} {state.row.arch}".strip())
        if state.end is None:
            return f"its {what} did not end"
        if state.end.outcome is not Outcome.OK:
            return f"its {what} did not end well ({state.end.outcome.value})"
        if state.end.phase_id in remedied:
            return f"its {what} was made to take less memory than it does (`--auto-remedy`)"
    if failed and not unit.ended:
        return "it did not end"
    if failed and unit.unit.archs and not any(state.kind is PhaseKind.HOST for state in unit.phases):
        # nvcc may have been ended between two phases.
        return "it was ended before its host code was compiled"
    return ""


def _row(
    unit: UnitState, state: PhaseState, end: PhaseEnded, header: Header, run: int, courses: Mapping[int, str]
) -> MeasuredPhase:
    key, phase = unit.key, state.row
    return MeasuredPhase(
        place=_place(unit, header),
        output=key.output if key is not None else PurePosixPath(unit.unit.output).name,
        target=_target(unit, header),
        options=key.options if key is not None else "",
        source_digest=unit.source_digest,
        archs=tuple(sorted(set(unit.unit.archs))),
        after_all=_is_link(unit),
        kind=state.kind,
        tool=phase.tool,
        arch=phase.arch,
        input_mib=max(0.0, phase.input_mib),
        peak_mib=end.peak_mib,
        cpu_s=end.cpu_s or end.wall_s,
        course=courses.get(end.phase_id, ""),
        run=run,
    )
