"""How much memory a phase will take.

Covers: the interface that the scheduler asks, and the estimator behind it. Evidence of a phase, in order: its unit's
past, of this user's history or of a recipe (``estimation.past``), the unit's earlier phases in this build and the size
of its input (``estimation.features``), the tool's prior (``estimation.priors``). Each gives a median and a bound, from
how far such guesses were off so far (``estimation.error_model``).
Does *not* cover: keeping the past (``history``), or recipes (``recipes.match``).

Guesses are put together by inverse variance in logarithms: a narrow one (the past) decides, a wide one hardly counts,
and no threshold is needed below which evidence is dropped. They rest on the same unit and err together, so the bound
is as near as the nearest, never nearer; where guesses contradict each other, it moves away.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from builddoctor.core.past import Course, PastUnit, UnitKey
from builddoctor.core.phase import Estimate, ExpectedPhase, Outcome, Phase, PhaseKind
from builddoctor.estimation.course import together
from builddoctor.estimation.error_model import Book
from builddoctor.estimation.features import Clue, Done, UnitNotes, clues
from builddoctor.estimation.past import ONE_BUILD, RAISE_FACTOR, Past, recall, size_of
from builddoctor.estimation.priors import SHIPPED, Priors, Sort
from builddoctor.estimation.run_time import RunTimes

LEAST_UP = 0.005
"""No bound is nearer to its median than this residual, whatever the evidence."""

BEYOND_SEEN = 0.015
"""Without a past: of a few figures seen the largest is a low bound, since the next may be larger. With this residual
more, 95.3 instead of 94.9 of 100 phases of projects that were left out stayed below (docs/results/predict.md)."""

EXTRA_MIB = 5.0
"""And this much: page sizes, paths in preprocessed files; a small phase's second run differs by up to 5 MiB."""

MOST_UP = 3.0
"""No bound is further from its median than this residual: a factor of 20."""

LEAST_MIB = 0.1
"""No process is smaller: less is a counter that could not be read."""

LARGEST_MIB = 1e9
"""A pebibyte: more is no figure."""

LONGEST_S = 1e6
"""Eleven days: nor is this."""

MOST_UNITS = 4096
"""Units kept in mind; the ones touched longest ago go."""

STALE_FROM = 0.1
"""A unit whose first phases are off from their past by less is the same unit."""

Z_OF_BOUND = 1.6449
"""Standard deviations from median to bound, were it a normal distribution."""


class Estimator(Protocol):
    """What the scheduler needs to know of phases. It alone teaches it: each call follows from an event."""

    def know(
        self,
        unit_id: str,
        *,
        key: UnitKey | None = None,
        past: PastUnit | None = None,
        archs: tuple[str, ...] = (),
        teaches: bool = True,
    ) -> None:
        """A unit began: what it is, and what earlier builds took for it."""
        ...

    def forget(self, unit_id: str) -> None:
        """A unit ended; nothing is asked about it any more."""
        ...

    def estimate(self, phase: Phase) -> Estimate:
        """Peak memory expected of this phase."""
        ...

    def observe(self, phase: Phase, *, outcome: Outcome, peak_mib: float, wall_s: float) -> None:
        """Learn from a phase that ended."""
        ...

    def raise_after_kill(self, phase: Phase, *, peak_mib: float, reserved_mib: float) -> Estimate:
        """The estimate of a phase that died for memory; later estimates of the same phase are no lower."""
        ...

    def remaining_s(self, phase: Phase, *, keep: bool = True) -> float:
        """Time still to go in this phase's unit, from this phase on: the order of admission.

        ``keep``: a guess stands until the unit's next phase ends. False for who only looks: nothing is remembered.
        """
        ...

    def least_s(self, phase: Phase) -> float:
        """The same if all that is only guessed of it is too long."""
        ...

    def wall_s(self, phase: Phase) -> float:
        """Time expected of this phase alone."""
        ...

    def course(self, phase: Phase) -> Course:
        """What this phase will hold while it runs, in shares of its peak; empty where no earlier build shows it."""
        ...

    @property
    def pace(self) -> float:
        """What phases take in this build over what earlier builds or a recipe say."""
        ...

    def outlook(self, unit_id: str, phase: Phase | None) -> Sequence[ExpectedPhase]:
        """What comes in this unit after ``phase`` (None: all of it), in order; empty where it is not known."""
        ...


class _Guess:
    """A median and how far above it the bound lies, as logarithms."""

    __slots__ = ("middle", "source", "up")

    def __init__(self, middle: float, up: float, source: str) -> None:
        self.middle = middle
        self.up = min(max(up, LEAST_UP), MOST_UP)
        self.source = source


class LearningEstimator:
    """Priors and the past, sharpened by every phase that ends."""

    def __init__(self, priors: Priors = SHIPPED) -> None:
        self._priors = priors
        self._books: dict[tuple[Sort, str], Book] = {}
        self._units: dict[str, UnitNotes] = {}
        self._nothing = UnitNotes()
        """known of a unit that has not been heard of; only read"""
        self._floor_mib: dict[tuple[str, PhaseKind, str, str], float] = {}
        self._run_times = RunTimes()
        self._last_guess: tuple[Phase, Sequence[ExpectedPhase]] | None = None
        """after this phase comes that; None when something was learned since. It is asked for when a phase comes, and
        once more when it starts, mostly at once"""

    def know(
        self,
        unit_id: str,
        *,
        key: UnitKey | None = None,
        past: PastUnit | None = None,
        archs: tuple[str, ...] = (),
        teaches: bool = True,
    ) -> None:
        """A unit began: what it is, and what earlier builds took for it.

        ``teaches``: others are like it. What a configure step tries out is not: an empty file's 26 MiB would stand for
        the first C++ units of a library, which take 50 times as much.
        """
        self._last_guess = None
        notes = self._notes(unit_id)
        notes.teaches = teaches
        notes.key, notes.past = key, past
        notes.arch_count = max(1, len(archs))
        notes.version += 1
        notes.walls.clear()

    def forget(self, unit_id: str) -> None:
        """A unit ended; nothing is asked about it any more."""
        self._units.pop(unit_id, None)
        if self._floor_mib:
            self._floor_mib = {key: floor_mib for key, floor_mib in self._floor_mib.items() if key[0] != unit_id}

    def estimate(self, phase: Phase) -> Estimate:
        notes = self._notes(phase.unit_id)
        guesses = [self._by_clue(clue, phase) for clue in clues(phase, notes)]
        past = self._by_past(phase, notes)
        guess = _combined(guesses if past is None else [past, *guesses])
        estimate = _as_estimate(guess, beyond=BEYOND_SEEN if past is None else 0.0)
        floor_mib = self._floor_mib.get(_key(phase), 0.0)
        if floor_mib > estimate.reserve_mib:
            return Estimate(peak_mib=floor_mib, spread_mib=0.0, source="raised after a kill")
        return estimate

    def wall_s(self, phase: Phase) -> float:
        return self._run_times.wall_s(phase, self._units.get(phase.unit_id, self._nothing))

    def course(self, phase: Phase) -> Course:
        """However far the past is: a shape that is off by a third, in height and time, packs better than none, and
        bounds say how far its height is trusted (docs/adr/0025)."""
        base = self._past_base(phase, self._notes(phase.unit_id))
        return together(base[1].courses) if base is not None else ()

    @property
    def pace(self) -> float:
        return self._run_times.pace

    def outlook(self, unit_id: str, phase: Phase | None) -> Sequence[ExpectedPhase]:
        notes = self._notes(unit_id)
        if known := notes.to_come(phase):
            pace = self.pace
            return [ExpectedPhase(each.peak_mib, each.spread_mib, pace * each.wall_s) for each in known]
        return self._guessed(notes, phase)

    def _guessed(self, notes: UnitNotes, phase: Phase | None) -> Sequence[ExpectedPhase]:
        """What a unit without a past has still to do once its front end is through: by the front end's figures."""
        if notes.past is not None or phase is None or notes.front_end is None:
            return ()
        if phase.kind not in (PhaseKind.CUDAFE, PhaseKind.PREPROCESS, PhaseKind.CICC, PhaseKind.PTXAS):
            return ()
        if self._last_guess is not None and self._last_guess[0] is phase:
            return self._last_guess[1]
        size_mib = notes.front_end.phase.input_mib
        archs_left = notes.arch_count - sum(each.phase.kind is PhaseKind.CICC for each in notes.done)
        found: list[ExpectedPhase] = []
        for kind, count in ((PhaseKind.CICC, archs_left - (phase.kind is PhaseKind.CICC)), (PhaseKind.HOST, 1)):
            if count <= 0:
                continue
            tool = "cicc" if kind is PhaseKind.CICC else "cc1plus"
            guess = Phase(phase_id=-1, unit_id=phase.unit_id, kind=kind, source="", input_mib=size_mib, tool=tool)
            estimate = self.estimate(guess)
            wall_s = self._run_times.wall_s(guess, notes)
            found += [ExpectedPhase(estimate.peak_mib, estimate.spread_mib, wall_s)] * count
        self._last_guess = phase, found
        return found

    def observe(self, phase: Phase, *, outcome: Outcome, peak_mib: float, wall_s: float) -> None:
        if outcome is not Outcome.OK and outcome is not Outcome.FAILED:
            return
        if not (math.isfinite(peak_mib) and LEAST_MIB <= peak_mib <= LARGEST_MIB):
            return
        self._last_guess = None
        wall_s = min(max(0.0, wall_s), LONGEST_S) if math.isfinite(wall_s) else 0.0
        notes = self._notes(phase.unit_id)
        if outcome is Outcome.OK and notes.teaches:
            # A compile error ends a phase early: it shows what it took, not what it needs.
            self._teach(phase, notes, peak_mib)
            self._compare_with_past(phase, notes, peak_mib)
            self._run_times.observe(phase, notes, wall_s)
        notes.note(Done(phase, peak_mib, wall_s))

    def raise_after_kill(self, phase: Phase, *, peak_mib: float, reserved_mib: float) -> Estimate:
        """One that outgrew what was set aside teaches the phases alike, too: they need not all be ended to learn it
        (docs/adr/0038)."""
        self._last_guess = None
        key = _key(phase)
        raised_mib = min(RAISE_FACTOR * max(peak_mib, reserved_mib), LARGEST_MIB)
        self._floor_mib[key] = max(self._floor_mib.get(key, 0.0), raised_mib)
        notes, estimate = self._notes(phase.unit_id), self.estimate(phase)
        # What lies below the bound was to be expected, and says nothing.
        if notes.teaches and peak_mib > reserved_mib and raised_mib >= estimate.reserve_mib:
            self._teach(phase, notes, raised_mib)
            estimate = self.estimate(phase)
        return estimate

    def remaining_s(self, phase: Phase, *, keep: bool = True) -> float:
        notes = self._notes(phase.unit_id) if keep else self._units.get(phase.unit_id, self._nothing)
        return self._run_times.remaining_s(phase, notes, keep=keep)

    def least_s(self, phase: Phase) -> float:
        return self._run_times.least_s(phase, self._units.get(phase.unit_id, self._nothing))

    def _teach(self, phase: Phase, notes: UnitNotes, peak_mib: float) -> None:
        for clue in clues(phase, notes):
            residual = math.log(peak_mib / self._priors[clue.sort].base_mib(clue.x))
            self._book(clue.sort, phase.tool).add(clue.features, residual)

    # -- evidence ------------------------------------------------------------------------------------------

    def _notes(self, unit_id: str) -> UnitNotes:
        if not unit_id:
            # Phases of unknown units have nothing in common.
            return UnitNotes()
        notes = self._units.get(unit_id)
        if notes is None:
            notes = self._units[unit_id] = UnitNotes()
            if len(self._units) > MOST_UNITS:
                del self._units[next(iter(self._units))]
        return notes

    def _book(self, sort: Sort, group: str) -> Book:
        book = self._books.get((sort, group))
        if book is None:
            prior = self._priors[sort]
            book = Book(prior.residuals, prior_weight=prior.weight, bandwidth=prior.bandwidth)
            self._books[(sort, group)] = book
        return book

    def _by_clue(self, clue: Clue, phase: Phase) -> _Guess:
        residual, bound = self._book(clue.sort, phase.tool).spread(clue.features)
        base = math.log(self._priors[clue.sort].base_mib(clue.x))
        return _Guess(base + residual, bound - residual, clue.sort.value)

    def _by_past(self, phase: Phase, notes: UnitNotes) -> _Guess | None:
        base = self._past_base(phase, notes)
        if base is None:
            return None
        middle, known = base
        widen = known.distance + known.spread + notes.staleness
        residual, bound = self._book(Sort.PAST, _group(phase, known)).spread((), widen=widen)
        name = known.origin if known.distance <= ONE_BUILD else f"{known.origin}, not quite the same"
        return _Guess(middle + residual, bound - residual, name)

    def _past_base(self, phase: Phase, notes: UnitNotes) -> tuple[float, Past] | None:
        """Logarithm of what the past took, carried over to today's input where size decides; and the past itself."""
        known = recall(phase, notes.key, notes.past) if notes.past is not None else None
        if known is None or not LEAST_MIB <= known.peak_mib <= LARGEST_MIB:
            return None
        middle = math.log(known.peak_mib)
        if phase.kind in (PhaseKind.CUDAFE, PhaseKind.PTXAS):
            prior = self._priors[Sort.PTXAS if phase.kind is PhaseKind.PTXAS else Sort.FRONT_END]
            middle += math.log(prior.base_mib(size_of(phase)) / prior.base_mib(known.input_mib))
        return middle, known

    def _compare_with_past(self, phase: Phase, notes: UnitNotes, peak_mib: float) -> None:
        base = self._past_base(phase, notes)
        if base is None:
            return
        middle, known = base
        if known.at_least:
            return
        residual = math.log(peak_mib) - middle
        self._book(Sort.PAST, _group(phase, known)).add((), residual)
        if phase.kind is not PhaseKind.PREPROCESS and abs(residual) > max(STALE_FROM, known.distance + known.spread):
            # The source has changed since: what is still to come of this unit is less certain, too.
            notes.staleness = max(notes.staleness, abs(residual))


def _combined(guesses: list[_Guess]) -> _Guess:
    if len(guesses) == 1:
        return guesses[0]
    weights = [each.up**-2 for each in guesses]
    middle = sum([weight * each.middle for weight, each in zip(weights, guesses, strict=True)]) / sum(weights)
    best = min(guesses, key=lambda each: each.up)
    # Chi square of the disagreement; bounds stand for 1.64 standard deviations.
    chi2 = sum([((each.middle - middle) * Z_OF_BOUND / each.up) ** 2 for each in guesses]) / (len(guesses) - 1)
    widened = best.up * math.sqrt(max(1.0, chi2))
    furthest = max([each.middle + each.up for each in guesses]) - middle
    return _Guess(middle, max(best.up, min(widened, furthest)), best.source)


def _as_estimate(guess: _Guess, *, beyond: float) -> Estimate:
    peak_mib = min(math.exp(min(guess.middle, 25.0)), LARGEST_MIB)
    spread_mib = peak_mib * (math.exp(guess.up + beyond) - 1) + EXTRA_MIB
    return Estimate(peak_mib=peak_mib, spread_mib=spread_mib, source=guess.source)


def _group(phase: Phase, past: Past) -> str:
    """Pasts of one origin at like distances err alike; and so do phases of one kind."""
    return f"{phase.kind.value} {past.origin} {'same' if past.distance <= ONE_BUILD else 'near'}"


def _key(phase: Phase) -> tuple[str, PhaseKind, str, str]:
    return (phase.unit_id, phase.kind, phase.arch, phase.source)
