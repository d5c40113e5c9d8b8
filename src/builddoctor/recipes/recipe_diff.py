"""Two recipes side by side: what was added, removed, what grew or shrank beyond its spread, what differs around it.

Covers: the comparison, as figures and words. Pure. Does *not* cover: how far a recipe is from a build that is to
come (``recipes.match``), or the page (``ui.recipe_page``).
"""

from __future__ import annotations

from typing import Literal

from builddoctor.core.recipe import Differences, Fingerprint, Recipe, RecipeUnit, UnitChange, UnitPeak
from builddoctor.recipes.measured_phases import UnitName, unit_names

SPREAD_SHARE = 0.05
"""Two builds of the same source differ by so much."""

SPREAD_MIB = 8.0
SPREAD_S = 1.0

UNIT_WORDS = ("options of some units", "some sources")
"""What is said of a fingerprint's digests: which units differ, the units themselves say."""


def differences(before: Recipe, after: Recipe) -> Differences:
    """Units are the same by place and output; by target too, where those are not enough."""
    names = unit_names(
        [[(unit.place, unit.output, unit.target) for unit in recipe.units] for recipe in (before, after)]
    )
    ours: dict[UnitName, RecipeUnit] = dict(zip(names[0], before.units, strict=True))
    theirs: dict[UnitName, RecipeUnit] = dict(zip(names[1], after.units, strict=True))
    both = [(unit, theirs[name]) for name, unit in ours.items() if name in theirs]
    changes = [change for one, other in both if (change := _change(one, other)) is not None]
    return Differences(
        before=f"{before.project.name} {before.project.version}".strip(),
        after=f"{after.project.name} {after.project.version}".strip(),
        toolchain=fingerprint_words(before.fingerprint, after.fingerprint),
        added=_only([unit for name, unit in theirs.items() if name not in ours]),
        removed=_only([unit for name, unit in ours.items() if name not in theirs]),
        changed=tuple(sorted(changes, key=lambda change: -abs(change.after_mib - change.before_mib))),
        same=len(both) - len(changes),
        hazards_added=tuple(hazard for hazard in after.hazards if hazard not in before.hazards),
        hazards_removed=tuple(hazard for hazard in before.hazards if hazard not in after.hazards),
        environment=_environment(before, after),
    )


def fingerprint_words(a: Fingerprint, b: Fingerprint) -> tuple[str, ...]:
    """What differs, in words; what one of them does not say does not differ."""
    found = []
    for what, ours, theirs in (
        ("archs", ",".join(a.archs), ",".join(b.archs)),
        ("nvcc", a.nvcc, b.nvcc),
        ("gcc", a.host_compiler, b.host_compiler),
        ("processor", a.host_arch, b.host_arch),
        ("pages of", f"{a.page_kib} KiB", f"{b.page_kib} KiB"),
    ):
        if ours and theirs and ours != theirs:
            found.append(f"{what} {ours}, then {theirs}")
    if a.options and b.options and a.options != b.options:
        found.append(UNIT_WORDS[0])
    if a.source and b.source and a.source != b.source:
        found.append(UNIT_WORDS[1])
    return tuple(found)


def unit_peak_mib(unit: RecipeUnit) -> float:
    """Of its largest phase."""
    return max((phase.peak_mib for phase in unit.phases), default=0.0)


def unit_cpu_s(unit: RecipeUnit) -> float:
    """Of all its phases."""
    return sum(phase.cpu_s for phase in unit.phases)


def _only(units: list[RecipeUnit]) -> tuple[UnitPeak, ...]:
    peaks = [
        UnitPeak(place=unit.place, output=unit.output, peak_mib=unit_peak_mib(unit), cpu_s=round(unit_cpu_s(unit), 3))
        for unit in units
    ]
    return tuple(sorted(peaks, key=lambda peak: -peak.peak_mib))


def _change(one: RecipeUnit, other: RecipeUnit) -> UnitChange | None:
    before_mib, after_mib = unit_peak_mib(one), unit_peak_mib(other)
    before_s, after_s = unit_cpu_s(one), unit_cpu_s(other)
    highs = [max((max(p.peak_mib, p.high_mib) for p in unit.phases), default=0.0) for unit in (one, other)]
    longest = [sum(max(phase.cpu_s, phase.high_s) for phase in unit.phases) for unit in (one, other)]
    memory: Literal["grew", "shrank", ""] = ""
    time: Literal["slowed", "sped up", ""] = ""
    if abs(after_mib - before_mib) > _spread(before_mib, after_mib, highs, SPREAD_MIB):
        memory = "grew" if after_mib > before_mib else "shrank"
    if abs(after_s - before_s) > _spread(before_s, after_s, longest, SPREAD_S, times=4):
        time = "slowed" if after_s > before_s else "sped up"
    if not memory and not time:
        return None
    return UnitChange(
        place=one.place,
        output=one.output,
        memory=memory,
        time=time,
        before_mib=before_mib,
        after_mib=after_mib,
        before_s=round(before_s, 3),
        after_s=round(after_s, 3),
        source_changed=bool(one.source_digest and other.source_digest) and one.source_digest != other.source_digest,
        options_changed=bool(one.options and other.options) and one.options != other.options,
    )


def _spread(before: float, after: float, highs: list[float], least: float, *, times: int = 1) -> float:
    """What two builds differ by without any reason: a share, never less than ``least``; more, where runs showed it."""
    seen = max(highs[0] - before, highs[1] - after)
    return max(least, times * SPREAD_SHARE * max(before, after), seen)


def _environment(before: Recipe, after: Recipe) -> tuple[str, ...]:
    ours = {setting.name: setting.value for setting in before.environment}
    theirs = {setting.name: setting.value for setting in after.environment}
    return tuple(
        f"{name}={ours[name]} is gone"
        if name not in theirs
        else f"{name}={theirs[name]} is new"
        if name not in ours
        else f"{name}={ours[name]}, then {theirs[name]}"
        for name in sorted({*ours, *theirs})
        if ours.get(name) != theirs.get(name)
    )
