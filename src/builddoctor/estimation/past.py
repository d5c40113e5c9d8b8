"""What a unit's past says of one of its phases, and how far a past that is not quite the same is trusted.

Covers: finding the phase in the past, and distance: other options, another nvcc, other architectures, another machine;
what is still to come of a unit, by its past.
Does *not* cover: keeping pasts (``history``, ``recipes``), or weighing them against other evidence
(``estimation.estimator``).

Distances are residuals (natural logarithms) by which a bound moves away. That of the host's architecture is measured:
TransformerEngine's phases above 1.5 GiB under aarch64 tools lie between 3 % below and 12 % above those under x86-64.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from builddoctor.core.past import Course, PastPhase, PastUnit, Seen, UnitKey
from builddoctor.core.phase import ExpectedPhase, Phase, PhaseKind

OTHER_OPTIONS = 0.3
OTHER_MINOR = 0.1
OTHER_MAJOR = 0.25
OTHER_HOST_COMPILER = 0.15
OTHER_HOST_ARCH = 0.12
OTHER_ARCH = 0.2
"""The same unit for another architecture: other code is chosen by it. Of 470 phases of eleven projects, sm_90 by sm_100
and the other way round, 99 % stay within the bounds that it makes. Most would with less; three units of
TransformerEngine, whose `cicc` takes a quarter more for sm_100, would not (docs/results/nearness.md)."""

OTHER_ARCH_COUNT = 0.05
OTHER_OUTPUT = 0.05
ONE_BUILD = 0.005
"""Seen once. A second run of the same compiler on the same input differs by less than 0.1 % above 300 MiB, and by less
than 5 MiB below (the example, twice: docs/results/predict.md)."""

SAME_INPUT = 0.02
"""Relative difference of sizes that paths in a preprocessed file make."""

UNKNOWN_INPUT = 0.1
"""Its input's size then is not known, or there was none: no figure is carried over from one size to another."""

ROUNDED_MIB = 0.0006
"""Recipes give input sizes in thousandths of a MiB."""

RANK = {
    PhaseKind.PREPROCESS: 0,
    PhaseKind.CUDAFE: 1,
    PhaseKind.CICC: 2,
    PhaseKind.PTXAS: 2,
    PhaseKind.HOST: 3,
    PhaseKind.NVLINK: 4,
    PhaseKind.LINK: 5,
}
"""The order of a unit; cicc and ptxas take turns from architecture to architecture."""

RAISE_FACTOR = 1.5
"""A killed phase is expected to need this much more than it held, or than was expected, whichever is more."""

SPREAD_SHARE = 0.01
SPREAD_MIB = 5.0

DEVICE = (PhaseKind.CUDAFE, PhaseKind.CICC, PhaseKind.PTXAS)


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """What the past says of one phase."""

    peak_mib: float
    wall_s: float
    distance: float
    input_mib: float
    """its input's size then"""
    spread: float = 0.0
    """residual from the median to the largest; 0: as in what was seen"""
    origin: str = "history"
    """or ``recipe``"""
    at_least: bool = False
    """it did not fit: ``peak_mib`` is a guess"""
    courses: tuple[Course, ...] = ()
    """what it held while it ran, in each build that saw it"""


def recall(phase: Phase, now: UnitKey | None, past: PastUnit) -> Past | None:
    """The phase as the unit's past knows it; None when it does not."""
    found = _find(phase, past.phases)
    if found is None or not found.seen:
        return None
    input_mib = size_of(phase)
    slack_mib = ROUNDED_MIB if found.origin == "recipe" else 0.0
    alike = _alike(input_mib, found.seen, slack_mib)
    distance = unit_distance(now, past.key, phase.kind) if now is not None else OTHER_OPTIONS
    if found.arch != phase.arch:
        distance += OTHER_ARCH
    if len(alike) == 1:
        distance += ONE_BUILD
    then_mib = median([each.input_mib for each in alike])
    if then_mib == 0.0 and input_mib > slack_mib and phase.kind is not PhaseKind.PREPROCESS:
        then_mib = input_mib
        distance += UNKNOWN_INPUT
    return Past(
        peak_mib=_peak_mib(alike),
        wall_s=median([each.wall_s for each in alike]),
        distance=distance + found.distance + _other_input(input_mib, then_mib, slack_mib),
        input_mib=then_mib,
        spread=found.spread,
        origin=found.origin,
        at_least=any(each.at_least for each in alike),
        courses=tuple([each.course for each in alike if each.course]),
    )


def size_of(phase: Phase) -> float:
    """Size of a phase's input; 0 for what is no size."""
    return min(phase.input_mib, 1e9) if phase.input_mib > 0 else 0.0


def unit_distance(now: UnitKey, then: UnitKey, kind: PhaseKind | None = None) -> float:
    """How far one unit's figures are from another's; 0 for the same. ``kind``: only what matters for such phases."""
    distance = 0.0
    if now.options != then.options:
        distance += OTHER_OPTIONS
    if now.output != then.output:
        distance += OTHER_OUTPUT
    if now.host_arch != then.host_arch:
        distance += OTHER_HOST_ARCH
    if now.nvcc != then.nvcc and kind not in (PhaseKind.HOST, PhaseKind.PREPROCESS):
        distance += OTHER_MINOR if _release(now.nvcc)[:1] == _release(then.nvcc)[:1] else OTHER_MAJOR
    if now.host_compiler != then.host_compiler and kind not in DEVICE:
        distance += OTHER_HOST_COMPILER
    if now.archs != then.archs:
        distance += OTHER_ARCH_COUNT * (1 + abs(math.log((1 + len(now.archs)) / (1 + len(then.archs)))))
    return distance


def median(values: Sequence[float]) -> float:
    """The middle one, or the mean of the middle two. Raises IndexError for none."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def _find(phase: Phase, phases: Sequence[PastPhase]) -> PastPhase | None:
    same_kind = [each for each in phases if each.kind is phase.kind and each.tool == phase.tool]
    for each in same_kind:
        if each.arch == phase.arch:
            return each
    # The most demanding of the other architectures: ptxas is left to its input's size, which tells more.
    if phase.kind is not PhaseKind.CICC or not same_kind:
        return None
    return max(same_kind, key=lambda each: max((seen.peak_mib for seen in each.seen), default=0.0))


def _alike(input_mib: float, seen: Sequence[Seen], slack_mib: float) -> list[Seen]:
    """Those with the input's size nearest to this one: a unit is preprocessed several times, also from nothing."""
    nearest = min(seen, key=lambda each: abs(each.input_mib - input_mib))
    return [each for each in seen if _other_input(each.input_mib, nearest.input_mib, slack_mib) == 0.0]


def _other_input(input_mib: float, then_mib: float, slack_mib: float) -> float:
    """Distance for an input of another size. What is preprocessed changes by paths alone."""
    if abs(input_mib - then_mib) <= SAME_INPUT * then_mib + slack_mib:
        return 0.0
    return min(1.0, abs(math.log((input_mib + 0.01) / (then_mib + 0.01))))


def _peak_mib(seen: Sequence[Seen]) -> float:
    """What such a phase is expected to take: where it did not fit, more than it held."""
    if any(each.at_least for each in seen):
        return RAISE_FACTOR * max([each.peak_mib for each in seen])
    return median([each.peak_mib for each in seen])


def _release(version: str) -> list[str]:
    return version.split(".")


def to_come(past: PastUnit | None, done: Iterable[Phase], phase: Phase | None) -> Sequence[ExpectedPhase]:
    """Phases after ``phase`` (None: all), in order, without those that are ``done``; empty for a unit without a past.

    Preprocessing is left out: it is short, and each unit has it before each front end.
    """
    if past is None:
        return ()
    seen = {(each.kind, each.arch) for each in done}
    rank = -1
    if phase is not None:
        seen.add((phase.kind, phase.arch))
        rank = RANK[phase.kind] if phase.kind is not PhaseKind.PREPROCESS else -1
    left = [
        each
        for each in past.phases
        if each.seen
        and each.kind is not PhaseKind.PREPROCESS
        and (each.kind, each.arch) not in seen
        and RANK[each.kind] >= rank
    ]
    return [_expected(each) for each in sorted(left, key=lambda each: (RANK[each.kind], _turn(each)))]


def _turn(past: PastPhase) -> tuple[str, bool]:
    """``compute_90`` and ``sm_90`` are one architecture: cicc first, then ptxas."""
    return past.arch.rpartition("_")[2], past.kind is PhaseKind.PTXAS


def _expected(past: PastPhase) -> ExpectedPhase:
    peak_mib = _peak_mib(past.seen)
    wall_s = median([each.wall_s for each in past.seen])
    return ExpectedPhase(peak_mib, SPREAD_SHARE * peak_mib + SPREAD_MIB, wall_s)
