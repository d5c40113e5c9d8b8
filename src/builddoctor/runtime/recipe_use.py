"""The recipe that a build goes by: which one, what is said of it, what it says of each unit, and how the build went.

Covers: the one that was asked for, else the nearest of the project where the command takes one by itself (of equally
near ones the first on the shelf: the user's own and pulled ones, then the project's own, then shipped ones); how far it
is from this build; hazards that hold here; variables that it was measured with. The order of evidence between the
user's history and the recipe: a phase that the history has of exactly this unit comes first; of others, the one that
lies nearer to this build; of two as near, the history's, which was measured here. Units that took more than the recipe
says: one line about them at the end, and the command that makes a new recipe.
Does *not* cover: files (``recipes.shelf``), how near each figure is (``estimation.past``, ``recipes.match``), or what
is made of it (``estimation.estimator``).

A recipe's variables are never set, not even for one that was asked for by name: the same command builds the same
binary with or without a recipe, and a file from elsewhere says what compiling takes, not what is compiled. Where they
differ here the build is told so in one line that can be pasted. Variables that builddoctor sets itself (jobs, threads,
architectures) are left out: it sets them whatever the recipe was measured with.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from builddoctor.core.errors import RecipeError
from builddoctor.core.past import PastPhase, PastUnit, UnitKey
from builddoctor.core.phase import Phase, kind_words
from builddoctor.core.recipe import Hazard, PhaseFigures, Recipe, RecipeUnit
from builddoctor.core.request import RunRequest
from builddoctor.core.units import format_mib, one_line, printable, shell_word
from builddoctor.doctor.memory_checks import HeavyPhase
from builddoctor.estimation.estimator import EXTRA_MIB
from builddoctor.estimation.past import recall, unit_distance
from builddoctor.gates.knobs import JOB_KNOBS, THREAD_KNOBS
from builddoctor.projects.archs import Arch, arch_environment
from builddoctor.projects.catalogue import beside_mib
from builddoctor.projects.metadata import project_version
from builddoctor.recipes.match import Distance, RecipePast, Wanted, distance, nearest
from builddoctor.recipes.shelf import SHIPPED, Shelved, find_recipe, shelved, user_folder
from builddoctor.runtime.units import Toolchain, project_folder, project_of
from builddoctor.scheduler.budget import RESERVE_CAP_SHARE
from builddoctor.system.root import page_size

NO_RECIPE = "none"
"""``--recipe none``: go by no recipe."""

MOST_HAZARDS = 4
"""Of more than these the rest is counted."""

OURS = frozenset((*JOB_KNOBS, *THREAD_KNOBS, *arch_environment((Arch(9, 0, ""),))))
"""Variables that builddoctor sets."""


class ChosenRecipe(msgspec.Struct, frozen=True, kw_only=True):
    """A recipe for one build."""

    name: str
    recipe: Recipe
    wanted: Wanted
    distance: Distance
    new_file: Path
    """where a recipe made of this build would go: in its place where it is the user's own, else to the user's folder;
    beside one whose name says another version"""
    lines: tuple[str, ...] = ()
    """what to say of it before the build begins"""


def choose_recipe(
    request: RunRequest,
    named: Shelved | None,
    tools: Toolchain,
    env: Mapping[str, str],
    *,
    room_mib: float = math.inf,
) -> ChosenRecipe | None:
    """The build's recipe; None for none. Raises RecipeError for one that was asked for and cannot be had.

    ``named``: the one that was asked for, where it was looked up before. ``room_mib``: what one compiler can have here,
    and what starts it; infinite where another machine may run it. A recipe that was not asked for is no reason
    for a build to fail: one that cannot be read is passed over.
    """
    if request.recipe == NO_RECIPE or not (request.recipe or request.nearest_recipe):
        return None
    wanted = _wanted(request, tools)
    if request.recipe:
        found = named or find_recipe(request.recipe, env, request.cwd)
        return _chosen(found, wanted, request, env, room_mib)
    with contextlib.suppress(RecipeError, OSError):
        project = project_of(project_folder(request.command, request.cwd)).folder
        if (near := nearest(shelved(env, project), wanted)) is not None:
            return _chosen(near[0], wanted, request, env, room_mib)
    return None


def _for_version(path: Path, recipe: Recipe, wanted: Wanted) -> Path:
    then = recipe.project.version
    return path.with_name(path.name.replace(then, wanted.version)) if then and wanted.version else path


def _chosen(
    found: Shelved, wanted: Wanted, request: RunRequest, env: Mapping[str, str], room_mib: float
) -> ChosenRecipe | None:
    if found.recipe is None:
        return None
    far = distance(found.recipe, wanted)
    own = found.path if not found.kept_by_others else None
    whence = found.origin if found.kept_by_others and found.origin != SHIPPED else ""
    settings = {**env, **dict(request.extra_env)}
    return ChosenRecipe(
        name=found.name,
        recipe=found.recipe,
        wanted=wanted,
        distance=far,
        new_file=_for_version(own or user_folder(env) / f"{found.name}.toml", found.recipe, wanted),
        lines=(
            *recipe_lines(found.name, found.recipe, far, wanted.host_arch, settings, whence=whence),
            *too_big_lines(found.recipe, far, wanted.archs, room_mib),
        ),
    )


def _wanted(request: RunRequest, tools: Toolchain) -> Wanted:
    """What is known of a build before it starts."""
    project = project_of(project_folder(request.command, request.cwd))
    return Wanted(
        project=project.name,
        version=project_version(project.folder),
        archs=request.archs,
        nvcc=tools.nvcc,
        host_compiler=tools.host_compiler,
        host_arch=tools.host_arch,
        page_kib=page_size() // 1024,
    )


def recipe_lines(
    name: str, recipe: Recipe, far: Distance, host_arch: str, env: Mapping[str, str], *, whence: str = ""
) -> tuple[str, ...]:
    """What a person should know of a recipe before the build begins, a line each. ``whence``: who else keeps it."""
    origin = recipe.origin
    runs = f", {origin.runs} run{'s' * (origin.runs != 1)}" if origin.runs else ""
    head = f"recipe    {name} ({origin.provenance}{runs}{f', {whence}' if whence else ''})"
    lines = [f"{head}; {'; '.join(far.words)}: {far.trust}" if far.words else head]
    here = [each for each in recipe.hazards if each.host_arch in ("", host_arch)]
    lines += [_hazard_line(each) for each in here[:MOST_HAZARDS]]
    if len(here) > MOST_HAZARDS:
        lines.append(f"hazard    {len(here) - MOST_HAZARDS} more are known: builddoctor recipe show {shell_word(name)}")
    other = [each for each in recipe.environment if each.name not in OURS and env.get(each.name) != each.value]
    if other:
        settings = " ".join(f"{each.name}={shell_word(each.value)}" for each in other)
        lines.append(f"recipe    was measured with settings that this build has not, and does not get: {settings}")
    return tuple(one_line(printable(line)) for line in lines)


def too_big_lines(recipe: Recipe, far: Distance, archs: Sequence[str], room_mib: float) -> tuple[str, ...]:
    """What cannot succeed here by the recipe, its distance allowed for: a line, before anything is started. The build
    begins all the same: the unit may be there from an earlier build, or come from a cache."""
    beside = beside_mib(recipe.project.name)
    room_mib = max(0.0, room_mib - beside)
    peaks = [(_largest(unit, archs, recipe.fingerprint.archs), unit.place) for unit in recipe.units if unit.phases]
    too_big = [(phase, place) for phase, place in peaks if phase.peak_mib > room_mib * math.exp(far.value)]
    if not too_big:
        return ()
    phase, place = max(too_big, key=lambda each: each[0].peak_mib)
    more = f" (and {len(too_big) - 1} more)" if len(too_big) > 1 else ""
    takes = f"{kind_words(phase.kind, phase.arch)} of {place} takes {format_mib(phase.peak_mib)}"
    enough = math.ceil((phase.peak_mib + beside) / (1 - RESERVE_CAP_SHARE) / 1024)
    line = f"{takes}, more than the {format_mib(room_mib)} that are there for it{more}"
    return (one_line(printable(f"too big   {line}: unless they are built already, give it {enough} GiB")),)


def heavy_by_recipe(
    project: str, folder: Path | None, archs: Sequence[str], env: Mapping[str, str]
) -> HeavyPhase | None:
    """The largest phase of the project by its nearest recipe; None without one. ``folder``: its sources, whose version
    counts; without them the recipe is taken that is nearest in everything else."""
    wanted = Wanted(
        project=project,
        version=project_version(folder) if folder is not None else "",
        archs=tuple(archs),
        host_arch=os.uname().machine,
        page_kib=page_size() // 1024,
    )
    with contextlib.suppress(RecipeError, OSError):
        near = nearest(shelved(env, folder), wanted)
        if near is not None and (recipe := near[0].recipe) is not None:
            made_for = recipe.fingerprint.archs
            peaks = [(_largest(unit, archs, made_for), unit.place) for unit in recipe.units if unit.phases]
            if not peaks:
                return None
            phase, place = max(peaks, key=lambda each: each[0].peak_mib)
            source = f"{kind_words(phase.kind, phase.arch)} of {os.path.basename(place)}, recipe {near[0].name}"
            return HeavyPhase(
                heavy_mib=phase.peak_mib,
                what="its largest phases",
                source=one_line(printable(source)),
                beside_mib=beside_mib(recipe.project.name),
            )
    return None


def _largest(unit: RecipeUnit, archs: Sequence[str], made_for: Sequence[str]) -> PhaseFigures:
    """For these architectures; all of them where it was not made for one of these."""
    every = not archs or any(arch not in made_for for arch in archs)
    phases = [each for each in unit.phases if every or not each.arch or each.arch not in made_for or each.arch in archs]
    return max(phases or unit.phases, key=lambda each: each.peak_mib)


def _hazard_line(hazard: Hazard) -> str:
    where = f"{hazard.place}: " if hazard.place else ""
    return f"hazard    {where}{hazard.text}{f' ({hazard.source})' if hazard.source else ''}"


class Beyond(msgspec.Struct, frozen=True, kw_only=True):
    """One phase that took more."""

    place: str
    tool: str
    peak_mib: float
    recipe_mib: float

    @property
    def share(self) -> float:
        return self.peak_mib / max(self.recipe_mib, 1.0)


class RecipeUse:
    """One recipe in one build: the past that it gives units, and which of them went beyond it."""

    def __init__(self, chosen: ChosenRecipe) -> None:
        self._chosen = chosen
        self._recipe = RecipePast(chosen.recipe, chosen.wanted)
        self._units = sum(not unit.after_all for unit in chosen.recipe.units)
        self._open: dict[str, tuple[UnitKey, PastUnit]] = {}
        self._seen: set[tuple[str, str]] = set()
        self._over: dict[tuple[str, str], Beyond] = {}

    @property
    def works(self) -> dict[tuple[str, str], float]:
        """Seconds of all phases of each unit, by place and output; links are not counted as units."""
        units = (unit for unit in self._chosen.recipe.units if not unit.after_all)
        made_for = self._chosen.recipe.fingerprint.archs
        return {(unit.place, unit.output): _work_s(unit, self._chosen.wanted.archs, made_for) for unit in units}

    @property
    def over(self) -> list[Beyond]:
        """The worst phase of each unit that went beyond, the worst unit first."""
        return sorted(self._over.values(), key=lambda each: -each.share)

    @property
    def whole(self) -> bool:
        """Every unit of the recipe was built: a recipe made of this build lacks none of them."""
        return len(self._seen) >= self._units

    def unit_began(self, unit_id: str, key: UnitKey, history: PastUnit | None) -> PastUnit | None:
        """The unit's past, of whatever origin."""
        known = self._recipe.find(key)
        if known is not None:
            self._open[unit_id] = key, known
            if not key.place.startswith("link "):
                self._seen.add((key.place, key.output))
        return joined(key, history, known)

    def phase_ended(self, phase: Phase, peak_mib: float) -> None:
        """A phase of a unit that has a name did all its work. More than the recipe's largest, its distance from this
        build allowed for, is beyond."""
        key, known = self._open.get(phase.unit_id, (None, None))
        then = recall(phase, key, known) if known is not None else None
        if key is None or then is None:
            return
        largest_mib = then.peak_mib * math.exp(then.spread)
        if peak_mib <= largest_mib * math.exp(then.distance) + EXTRA_MIB:
            return
        found = Beyond(place=key.place, tool=phase.tool, peak_mib=peak_mib, recipe_mib=largest_mib)
        name = (key.place, key.output)
        if name not in self._over or found.share > self._over[name].share:
            self._over[name] = found

    def unit_ended(self, unit_id: str) -> None:
        """Nothing more comes of it."""
        self._open.pop(unit_id, None)

    def words(self, trace: Path) -> list[str]:
        """For a person, at the end of the build: a line about what went beyond, and what to do; nothing where nothing
        did."""
        if not self._over:
            return []
        over = self.over
        count = f"{len(over)} unit{'s' * (len(over) != 1)} took more than the recipe {self._chosen.name} says"
        worst = over[0]
        most = f"{worst.place}: {worst.tool} {format_mib(worst.peak_mib)}, not {format_mib(worst.recipe_mib)}"
        said = one_line(printable(f"{count} (most of all {most}); the history has learned it"))
        if not self.whole:
            return [said]
        command = f"builddoctor recipe from-trace {shell_word(str(trace))} -o {shell_word(str(self._chosen.new_file))}"
        return [f"{said}; for other machines: {command}"]


def joined(key: UnitKey, history: PastUnit | None, recipe: PastUnit | None) -> PastUnit | None:
    """One past of the unit that is ``key`` now. A build that failed early has left the history with half of it."""
    if recipe is None or not recipe.phases:
        return history
    if history is None or not history.phases:
        return recipe
    best: dict[tuple[str, str, str], PastPhase] = {}
    for past in (history, recipe):
        for phase in past.phases:
            name = (phase.kind.value, phase.arch, phase.tool)
            far = phase.distance + unit_distance(key, past.key, phase.kind)
            if name not in best or far < best[name].distance:
                best[name] = msgspec.structs.replace(phase, distance=far)
    here = {kind for kind, arch, _ in best if arch in key.archs}
    # What is left in for an architecture that the build is not for would be waited for, though it never comes.
    kept = [phase for (kind, arch, _), phase in best.items() if not arch or arch in key.archs or kind not in here]
    return PastUnit(key=key, phases=tuple(kept))


def _work_s(unit: RecipeUnit, archs: Sequence[str], made_for: Sequence[str]) -> float:
    """For these architectures, and those that a source is compiled for whatever is asked. One that the recipe was not
    ``made_for`` takes as long as those that it was."""
    by_arch: dict[str, float] = {}
    for each in unit.phases:
        arch = each.arch.replace("compute_", "sm_")
        by_arch[arch] = by_arch.get(arch, 0.0) + each.cpu_s
    host_s = by_arch.pop("", 0.0)
    if not by_arch or not archs:
        return host_s + sum(by_arch.values())
    kept_s = sum(work_s for arch, work_s in by_arch.items() if arch in archs or arch not in made_for)
    missing = [arch for arch in archs if arch not in made_for]
    return host_s + kept_s + len(missing) * sum(by_arch.values()) / len(by_arch)
