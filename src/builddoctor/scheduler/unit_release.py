"""Unit release: which of the units that wait at their nvcc gate become nvcc next, and with how many threads. Pure.

Covers: the order (most urgent first, then as they came), how many are open, nvcc's ``--threads``.
Does *not* cover: which phase of an open unit starts (``scheduler.scheduler``), or how many units a build tool starts
(``scheduler.budget.window``).

A unit that waits at its gate costs little less than one that waits at its first phase: 3 MiB against 4 (ADR 0012). It
is held so that units are begun in the order of urgency and not of arrival, so that few leave temporary files behind
the front end, and so that ``--threads`` is chosen when it is known how many units there are.
"""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections.abc import Callable

import msgspec

from builddoctor.core.events import ReleaseUnit
from builddoctor.core.phase import Unit

UnitFigure = Callable[[Unit], float]
"""A priority: higher opens first; or the time that a unit takes, its phases one after the other. Equal for units of
which nothing is known."""

Key = tuple[float, int]
"""Less is sooner: urgency, negated, and the order of arrival."""

LEAST_SPARE = 2
SPARE_SHARE = 4
"""Units whose first phase waits, for each this many slots: a unit that ends is followed at once, and there is a
choice."""

STALL_S = 5.0
"""Nothing runs, nothing asks, nothing ends for so long: whatever the open units wait for, one more is opened."""

LEAST_WEIGHT = 0.01

HasTime = Callable[[float], bool]
"""A unit that takes so many seconds can end in time; one of which nothing is known takes ``LEAST_WEIGHT``."""


def _always(unit_s: float) -> bool:
    del unit_s
    return True


class _Known(msgspec.Struct):
    unit: Unit
    key: Key
    weight: float
    since_s: float


class UnitRelease:
    """The units of one build that were registered and have not ended.

    ``slots``: phases that run at once; ``most_open``: units; ``most_threads``: a cap of the user's, or of an old nvcc.
    """

    def __init__(
        self,
        *,
        priority: UnitFigure,
        expected_s: UnitFigure,
        slots: int,
        cores: int,
        most_open: int,
        most_threads: int | None = None,
    ) -> None:
        self._priority = priority
        self._expected_s = expected_s
        self._slots = max(1, slots)
        self._cores = max(1, cores)
        self._spare = max(LEAST_SPARE, self._slots // SPARE_SHARE)
        self._most_open = max(self._slots + 1, most_open)
        self._most_threads = math.inf if most_threads is None else max(1, most_threads)
        self._units: dict[str, _Known] = {}
        self._held: list[tuple[Key, str]] = []
        self._fresh: list[tuple[Key, str]] = []
        self._late: set[str] = set()
        """opened, and too late to be begun: they wait, and take no core and no disk"""
        self._came = 0
        self._weights = 0.0
        self._moved_s = -math.inf

    @property
    def held(self) -> int:
        """Units that wait to be opened."""
        return len(self._held)

    @property
    def held_s(self) -> float:
        """What the units that wait to be opened take, as far as it is known."""
        return sum(self._units[unit_id].weight for _, unit_id in self._held)

    @property
    def open(self) -> int:
        """Units that were opened and have not ended, but for those that are too late."""
        return len(self._units) - len(self._held) - len(self._late)

    def has_one(self, has_time: HasTime) -> bool:
        """One that waits to be opened could be."""
        return self._first(has_time) is not None

    def registered(self, unit: Unit, now_s: float) -> None:
        """A unit waits at its gate. Once for each."""
        self._came += 1
        expected_s = self._expected_s(unit)
        weight = max(LEAST_WEIGHT, expected_s) if math.isfinite(expected_s) else LEAST_WEIGHT
        known = _Known(unit, (self._rank(unit), self._came), weight, now_s)
        self._units[unit.unit_id] = known
        self._weights += weight
        insort(self._held, (known.key, unit.unit_id))

    def started(self, unit_id: str, now_s: float) -> None:
        """A phase of some unit was admitted; units that never were registered here are no matter."""
        self._moved_s = now_s
        self._late.discard(unit_id)
        known = self._units.get(unit_id)
        if known is not None:
            _take(self._fresh, (known.key, unit_id))

    def too_late(self, unit_id: str) -> None:
        """An opened unit waits for no core any more: a shorter one may be opened in its place."""
        known = self._units.get(unit_id)
        if known is not None and _take(self._fresh, (known.key, unit_id)):
            self._late.add(unit_id)

    def ended(self, unit_id: str, now_s: float) -> None:
        """A unit ended, or its gate died while it waited."""
        self._moved_s = now_s
        self._late.discard(unit_id)
        known = self._units.pop(unit_id, None)
        if known is not None:
            self._weights = self._weights - known.weight if self._units else 0.0
            if not _take(self._held, (known.key, unit_id)):
                _take(self._fresh, (known.key, unit_id))

    def next(
        self,
        now_s: float,
        *,
        running: int,
        waiting: int,
        tight: bool,
        cores_elsewhere: int = 0,
        has_time: HasTime = _always,
    ) -> list[ReleaseUnit]:
        """Units to open now. ``running`` and ``waiting``: phases; ``tight``: memory, not cores, is what is short.
        ``cores_elsewhere``: of other machines that phases are sent to. ``has_time``: the others are passed over.

        Asked after phases were admitted, so that ``running`` is what cores and memory allow of what has asked.
        """
        opened: list[ReleaseUnit] = []
        wanted = max(self._spare, self._slots + cores_elsewhere - running)
        most_open = self._most_open + cores_elsewhere
        while (first := self._first(has_time)) is not None:
            # Units that are open already, as urgent as this one, and have not begun.
            enough = self.open >= most_open or bisect_right(self._fresh, first) >= wanted
            if enough and not self._stalled(now_s, running + waiting):
                break
            _take(self._held, first)
            insort(self._fresh, first)
            self._moved_s = now_s
            known = self._units[first[1]]
            waited_s = round(now_s - known.since_s, 3)
            threads = self._threads(known, tight=tight)
            opened.append(ReleaseUnit(at_s=now_s, unit_id=first[1], threads=threads, waited_s=waited_s))
        return opened

    def _first(self, has_time: HasTime) -> tuple[Key, str] | None:
        return next((entry for entry in self._held if has_time(self._units[entry[1]].weight)), None)

    def _rank(self, unit: Unit) -> float:
        priority = self._priority(unit)
        return 0.0 if math.isnan(priority) else -priority

    def _stalled(self, now_s: float, phases: int) -> bool:
        return not phases and now_s - self._moved_s >= STALL_S

    def _threads(self, known: _Known, *, tight: bool) -> int:
        """0 where the build's own number will do.

        The unit's share of the cores is its share of all units' time: one thread while units are many, up to one for
        each arch when they run out, or for a unit that takes longer than the others. Each arch's cicc asks for itself
        all the same. Objects do not depend on it.
        """
        unit = known.unit
        if tight or len(unit.archs) < 2:
            threads = 1 if tight else unit.threads
        else:
            share = math.ceil(self._cores * known.weight / max(self._weights, known.weight) - 1e-9)
            threads = int(min(len(unit.archs), share, self._most_threads))
        return 0 if threads == unit.threads else max(1, threads)


def _take(ordered: list[tuple[Key, str]], entry: tuple[Key, str]) -> bool:
    """Take an entry out of a sorted list; False when it is not there."""
    index = bisect_right(ordered, entry) - 1
    if index < 0 or ordered[index] != entry:
        return False
    del ordered[index]
    return True
