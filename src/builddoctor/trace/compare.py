"""Two builds side by side: which units grew or slowed, and what differs around them. Pure.

Covers: units matched by their path below the build's folder; what is significant; differences of toolchain, machine
and command. Does *not* cover: why.

A difference is significant when it stands out from how all units differ (the median of their ratios and the spread
around it): on a machine that is slower as a whole, no single unit has slowed. With few units there is no spread to
speak of, and a fixed share takes its place.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import msgspec

from builddoctor.core.events import Header
from builddoctor.trace.report import TraceReport, UnitRow

ENOUGH = 8
"""units for a spread"""
SPREADS = 4.0
FEW_SHARE = 0.15
LEAST_SHARE = 0.05
LEAST_MIB = 16.0
LEAST_S = 1.0
ROUGHLY_NORMAL = 1.4826
"""standard deviations in a median of absolute deviations"""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of a unit before and after."""

    before: float
    after: float
    significant: bool

    @property
    def share(self) -> float:
        """0.1: a tenth more."""
        return self.after / self.before - 1 if self.before > 0 else 0.0


class UnitPair(msgspec.Struct, frozen=True, kw_only=True):
    """One unit in both builds."""

    unit: str
    peak_mib: Change
    wall_s: Change
    requeues_before: int
    requeues_after: int
    options_differ: bool
    """its compiler was called with other arguments"""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Something around the units."""

    what: str
    before: str
    after: str


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    before: str
    after: str
    """ids of the traces"""
    project_before: str
    project_after: str
    units: list[UnitPair]
    """significant changes first, the largest on top"""
    only_before: list[str]
    only_after: list[str]
    differences: list[Difference]
    peak_ratio: float
    """median over the units: after / before"""
    peak_spread: float
    """spread of that ratio around the median, as a share"""
    wall_ratio: float
    wall_spread: float
    build_wall_s: Change
    build_peak_mib: Change


def compare(before: TraceReport, after: TraceReport) -> Comparison:
    """Compare two builds, which may have been made in different folders."""
    old, new = _by_key(before), _by_key(after)
    pairs = [(key, old[key], new[key]) for key in old if key in new]
    peaks = _Ratios([(a.peak_mib, b.peak_mib) for _, a, b in pairs], least=LEAST_MIB)
    walls = _Ratios([(a.wall_s, b.wall_s) for _, a, b in pairs], least=LEAST_S)
    same_folder = before.header.cwd == after.header.cwd
    units = [
        UnitPair(
            unit=key,
            peak_mib=peaks.change(a.peak_mib, b.peak_mib),
            wall_s=walls.change(a.wall_s, b.wall_s),
            requeues_before=a.requeues,
            requeues_after=b.requeues,
            options_differ=same_folder and bool(a.argv_digest and b.argv_digest) and a.argv_digest != b.argv_digest,
        )
        for key, a, b in pairs
    ]
    return Comparison(
        before=before.header.trace_id,
        after=after.header.trace_id,
        project_before=before.header.project_name,
        project_after=after.header.project_name,
        units=sorted(units, key=_order),
        only_before=sorted(old.keys() - new.keys()),
        only_after=sorted(new.keys() - old.keys()),
        differences=_differences(before, after),
        peak_ratio=peaks.middle,
        peak_spread=peaks.spread,
        wall_ratio=walls.middle,
        wall_spread=walls.spread,
        build_wall_s=_whole(before.last_at_s, after.last_at_s, LEAST_S),
        build_peak_mib=_whole(before.peak_mib, after.peak_mib, LEAST_MIB),
    )


class _Ratios:
    """How one figure of all units differs, and what stands out from that."""

    def __init__(self, pairs: Sequence[tuple[float, float]], *, least: float) -> None:
        self._least = least
        logs = [math.log(after / before) for before, after in pairs if before > least / 4 and after > least / 4]
        self._known = len(logs) >= ENOUGH
        self._middle = statistics.median(logs) if logs else 0.0
        away = statistics.median(abs(log - self._middle) for log in logs) if logs else 0.0
        self._spread = ROUGHLY_NORMAL * away
        self.middle = math.exp(self._middle)
        self.spread = math.expm1(min(self._spread, 50.0))

    def change(self, before: float, after: float) -> Change:
        return Change(before=before, after=after, significant=self._stands_out(before, after))

    def _stands_out(self, before: float, after: float) -> bool:
        if before <= 0 or after <= 0:
            return max(before, after) > self._least
        # What the unit would have with the change that all have.
        expected = before * self.middle if self._known else before
        away = abs(math.log(after / expected)) if expected > 0 else 0.0
        bound = max(math.log1p(LEAST_SHARE), SPREADS * self._spread) if self._known else math.log1p(FEW_SHARE)
        return away > bound and abs(after - expected) > self._least


def _whole(before: float, after: float, least: float) -> Change:
    significant = abs(after - before) > max(least, LEAST_SHARE * before)
    return Change(before=before, after=after, significant=significant)


def _order(pair: UnitPair) -> tuple[bool, float, str]:
    stands_out = pair.peak_mib.significant or pair.wall_s.significant
    size = max(
        abs(pair.peak_mib.share) if pair.peak_mib.significant else 0.0,
        abs(pair.wall_s.share) if pair.wall_s.significant else 0.0,
    )
    return (not stands_out, -size if stands_out else -pair.peak_mib.after, pair.unit)


def _by_key(report: TraceReport) -> dict[str, UnitRow]:
    """Units by path below the build's folder; one that was compiled twice also by what is made of it."""
    found: dict[str, UnitRow] = {}
    for unit in sorted(report.units, key=lambda unit: unit.began_at_s):
        key = _below(unit.unit, report.header.cwd) or "(no name)"
        if key in found:
            key = f"{key} -> {_below(unit.output, report.header.cwd) or 'again'}"
        number = 2
        while key in found:
            key, number = f"{key.removesuffix(f' #{number - 1}')} #{number}", number + 1
        found[key] = unit
    return found


def _below(path: str, folder: str) -> str:
    return path[len(folder) + 1 :] if folder and path.startswith(folder + "/") else path


def _differences(before: TraceReport, after: TraceReport) -> list[Difference]:
    rows = zip(_around(before.header), _around(after.header), strict=True)
    return [Difference(what=what, before=a or "none", after=b or "none") for (what, a), (_, b) in rows if a != b]


def _around(header: Header) -> list[tuple[str, str]]:
    return [
        ("nvcc", header.nvcc),
        ("toolkit", header.toolkit),
        ("archs", ", ".join(sorted(header.archs))),
        ("command", " ".join(header.command)),
        ("folder", header.cwd),
        ("cores", str(header.cores)),
        ("window", str(header.window)),
        ("caps", ", ".join(header.caps)),
        ("memory limit", f"{header.limit_mib / 1024:.1f} GiB"),
        ("memory limit set by", header.limited_by),
        ("builddoctor", header.builddoctor),
    ]
