"""Make the input of a phase that takes too much memory small: the least text on which its compiler still does.

Covers: which file, what counts as "still", in which bounds; the order of the work: a sweep over top-level parts, then
C-Vise; what is written beside the repro, the best so far where time is up or somebody interrupts.
Does *not* cover: a trial itself (``gates.reduction``), the folder and its script (``repro.folder``).
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from builddoctor.core.errors import ReproError
from builddoctor.core.units import counted, format_clock, format_mib
from builddoctor.gates.phase_replay import Repro
from builddoctor.gates.reduction import Trial, Trials, TrialSeen
from builddoctor.repro.folder import write_text
from builddoctor.system.probes import Deadline
from builddoctor.toolchain.options import LINKERS
from builddoctor.toolchain.source_parts import needed_parts, top_level_parts
from builddoctor.ui.repro_files import REDUCED_SCRIPT, SCRIPT, script_text

PEAK_SHARE = 0.6
MOST_ENDLESS_MIB = 2048.0
"""Beyond this, what grows without end has shown that it does; each trial goes that far."""

LEAST_BEYOND_MIB = 64.0
_TEXTS = (".ii", ".i", ".gpu", ".cu", ".cpp", ".cc", ".cxx", ".C", ".c", ".ptx")
TELL_EVERY_S = 15.0
MOST_PLACE_BYTES, SHORT_PLACE = 45, "/tmp"  # noqa: S108 - the folder in it is of this user alone
ROUNDS = (False, True, True)
"""Sweeps, into blocks or not: what one could not leave out the next may."""

FINAL_SHARE = 2.0
"""Of what a trial must go beyond: how far the result is watched."""


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """Of all trials. ``address_mib``: that a compiler may have, some of it untouched. ``parallel``: trials at once.
    ``furthest_mib``: what one may hold that runs alone."""

    beyond_mib: float
    address_mib: float
    parallel: int
    furthest_mib: float
    note: str = ""


class Reduced(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it. ``ended``: ``done``, ``time`` or ``interrupted``."""

    file: str
    script: str
    before_bytes: int
    before_lines: int
    after_bytes: int
    after_lines: int
    beyond_mib: float
    peak_mib: float
    """where it was ended, or its own"""
    wall_s: float
    grows_on: bool
    """It did not end by itself."""
    ended: str
    trials: int
    """of the sweep; C-Vise has its own"""
    notes: tuple[str, ...] = ()


def choose_bounds(
    *, peak_mib: float, endless: bool, memory_mib: float, cores: int, wanted_mib: float | None = None
) -> Bounds:
    """``memory_mib``: that all trials may have together. Raises ReproError where that is too little."""
    if wanted_mib is None and peak_mib <= 0:
        raise ReproError("the trace does not say what it took", hint="--beyond 500MiB says what is too much")
    beyond_mib = wanted_mib or PEAK_SHARE * peak_mib
    note = ""
    if endless and wanted_mib is None:
        beyond_mib = min(beyond_mib, MOST_ENDLESS_MIB)
    most_mib = _beyond_in(memory_mib)
    if beyond_mib > most_mib:
        if wanted_mib is not None or most_mib < LEAST_BEYOND_MIB:
            least = format_mib(_address_mib(max(beyond_mib if wanted_mib else 0.0, LEAST_BEYOND_MIB)))
            raise ReproError(
                f"a trial may need {least}, and may have {format_mib(memory_mib)}",
                hint="--memory 8GiB, when other programs have ended; or a smaller --beyond",
            )
        beyond_mib, note = most_mib, f"{format_mib(beyond_mib)} in a trial would not fit into the free memory"
    address_mib = _address_mib(beyond_mib)
    parallel = max(1, min(cores, int(memory_mib / address_mib)))
    return Bounds(
        beyond_mib=round(beyond_mib),
        address_mib=round(address_mib),
        parallel=parallel,
        furthest_mib=round(min(FINAL_SHARE * beyond_mib, most_mib)),
        note=note,
    )


def _address_mib(beyond_mib: float) -> float:
    """Address space of a compiler that shall hold so much: mapped files, and what an allocator has in stock."""
    return 1.5 * beyond_mib + 512


def _beyond_in(memory_mib: float) -> float:
    return (memory_mib - 512) / 1.5


def text_to_reduce(made: Repro) -> str:
    """The name of the input. Raises ReproError where there is no text."""
    tool = os.path.basename(made.tool)
    texts = [name for name in made.files if name.endswith(_TEXTS)]
    if tool in LINKERS or not texts:
        raise ReproError(
            f"there is no text to be reduced: {tool} reads {'objects' if tool in LINKERS else 'other files'}",
            hint="--reduce is for front ends, cicc, ptxas and host compilers",
        )
    # Others are the ids of modules, and such.
    return max(texts, key=lambda name: name in made.argv)


class Reducing:
    """Of the phase in ``folder``, which holds its script and input. ``total_s``: for all of it."""

    def __init__(
        self,
        made: Repro,
        *,
        folder: Path,
        env: Mapping[str, str],
        bounds: Bounds,
        total_s: float,
        cvise: str,
        tell: Callable[[str], None],
    ) -> None:
        self._made = made
        self._folder = folder
        self._env = env
        self._bounds = bounds
        self._total_s = total_s
        self._cvise = cvise
        self._tell = tell
        self._input = text_to_reduce(made)
        self._trials_run = 0
        self._notes = [bounds.note] if bounds.note else []

    def reduce(self) -> Reduced:
        """Write the reduced file and its script. Raises ReproError, and KeyboardInterrupt before anything was made
        smaller; after that an interrupt is an end like that of the time."""
        deadline = Deadline(self._total_s)
        text = (self._folder / self._input).read_bytes()
        with tempfile.TemporaryDirectory(prefix="builddoctor-reduce-", dir=_work_place()) as work:
            trials = Trials(Path(work), env=self._env)
            trial = self._first(trials, text, deadline)
            ended, final = "time", None
            try:
                final = self._work(trials, trial, text, deadline)
                ended = "done" if final is not None else "time"
            except KeyboardInterrupt:
                if not trials.best.exists():
                    raise
                ended = "interrupted"
            seen = trials.best_seen()
            best = trials.best.read_bytes() if trials.best.exists() else text
            if final is not None and len(final) <= 2 * len(best):
                # As C-Vise lays it out, which is not its smallest.
                good, at_end = trials.once(trial, final, Deadline(trial.wall_s))
                best, seen = (final, at_end) if good else (best, seen)
            if ended != "interrupted":
                try:
                    seen = self._last_look(trials, trial, best) or seen
                except KeyboardInterrupt:
                    # What was reached is whole; only this is not known of it.
                    ended = "interrupted"
        return self._written(text, best, seen, ended)

    def _first(self, trials: Trials, text: bytes, deadline: Deadline) -> Trial:
        """The trial, after the input itself and an empty one were seen. Raises ReproError where it tells nothing."""
        beyond = format_mib(self._bounds.beyond_mib)
        self._tell(f"reduces {self._input}, as long as {os.path.basename(self._made.tool)} grows beyond {beyond}")
        open_trial = Trial(
            folder=str(self._folder.absolute()),
            links=(SCRIPT, *(name for name in self._made.files if name != self._input)),
            script=SCRIPT,
            input=self._input,
            beyond_mib=self._bounds.beyond_mib,
            address_mib=self._bounds.address_mib,
            cpu_s=math.ceil(self._total_s),
            wall_s=self._total_s,
            clean=False,
        )
        grew, seen = trials.once(open_trial, text, deadline)
        if not grew:
            how = f"exit code {seen.exit_code}" if seen.exit_code is not None else "time was up"
            said = next((line for line in seen.output.splitlines() if line.strip()), "")
            raise ReproError(
                f"here it takes {format_mib(seen.peak_mib)} with the whole input, not more than {beyond} ({how})"
                + (f": {said}" if said else ""),
                hint=f"if that is too much as well: --beyond {max(64, int(0.8 * seen.peak_mib))}MiB; "
                "else: is it the same compiler as in the build?",
            )
        if trials.once(open_trial, b"", deadline)[0]:
            raise ReproError(f"even without any input it takes more than {beyond}", hint="a larger --beyond")
        # A smaller input takes no longer; trials that run side by side may.
        cpu_s = math.ceil(2 * seen.cpu_s + 2)
        return msgspec.structs.replace(
            open_trial, cpu_s=cpu_s, wall_s=8.0 * cpu_s, clean=seen.clean, best=str(trials.best)
        )

    def _work(self, trials: Trials, trial: Trial, text: bytes, deadline: Deadline) -> bytes | None:
        """What C-Vise made of it; None: time was up."""

        told_s = deadline.left_s

        def still(smaller: bytes) -> bool:
            nonlocal told_s
            self._trials_run += 1
            good, _ = trials.once(trial, smaller, deadline)
            if good and told_s - deadline.left_s >= TELL_EVERY_S:
                told_s = deadline.left_s
                self._tell(f"{_size(smaller)} after {counted(self._trials_run, 'trial')}")
            return good

        swept = text
        for into_blocks in ROUNDS:
            parts = top_level_parts(swept, into_blocks=into_blocks)
            swept = b"".join(needed_parts(parts, still, go_on=lambda: deadline.left_s > 0))
        if not deadline.left_s:
            return None
        within = format_clock(deadline.left_s)
        self._tell(f"{_size(swept)} are needed of {_size(text)}; C-Vise goes on with them, for {within} at most")
        try:
            return trials.cvise(self._cvise, trial, swept, parallel=self._bounds.parallel, deadline=deadline)
        except ReproError as error:
            # What was reached is no worse for that.
            self._notes.append(str(error))
            return swept

    def _last_look(self, trials: Trials, trial: Trial, best: bytes) -> TrialSeen | None:
        """Does the result grow on, or end by itself a little later?"""
        beyond_mib = self._bounds.furthest_mib
        far = msgspec.structs.replace(
            trial,
            beyond_mib=beyond_mib,
            address_mib=_address_mib(beyond_mib),
            cpu_s=4 * trial.cpu_s,
            wall_s=4 * trial.wall_s,
            best="",
        )
        _, seen = trials.once(far, best, Deadline(far.wall_s))
        return seen if seen.peak_mib else None

    def _written(self, text: bytes, best: bytes, seen: TrialSeen, ended: str) -> Reduced:
        name = f"reduced-{self._input}"
        (self._folder / name).write_bytes(best)
        notes = [*self._notes]
        if not seen.clean:
            notes.append("the compiler says that the text has errors, as it did of the whole")
        if self._made.endless and not seen.beyond and seen.exit_code is not None:
            notes.append("the result ends by itself: what grew without end may be gone; a larger --beyond keeps it")
        reduced = Reduced(
            file=name,
            script=REDUCED_SCRIPT,
            before_bytes=len(text),
            before_lines=text.count(b"\n"),
            after_bytes=len(best),
            after_lines=best.count(b"\n"),
            beyond_mib=self._bounds.beyond_mib,
            peak_mib=seen.peak_mib,
            wall_s=seen.wall_s,
            grows_on=seen.beyond,
            ended=ended,
            trials=self._trials_run,
            notes=tuple(notes),
        )
        argv = tuple(name if word == self._input else word for word in self._made.argv)
        files = tuple(name if each == self._input else each for each in self._made.files)
        of_it = msgspec.structs.replace(self._made, argv=argv, files=files, peak_mib=seen.peak_mib, wall_s=seen.wall_s)
        write_text(self._folder / REDUCED_SCRIPT, script_text(of_it, REDUCED_SCRIPT), executable=True)
        return reduced


def reduced_lines(reduced: Reduced) -> tuple[str, ...]:
    """For a person, and the README."""
    peak = format_mib(reduced.peak_mib)
    took = (
        f"{peak} after {reduced.wall_s:.1f} s, and still grew"
        if reduced.grows_on
        else f"{peak} in {reduced.wall_s:.1f} s"
    )
    after, before = (
        _amount(reduced.after_lines, reduced.after_bytes),
        _amount(reduced.before_lines, reduced.before_bytes),
    )
    ended = {"time": "the time was up", "interrupted": "interrupted"}
    so_far = [f"{ended[reduced.ended]}: this is the best so far"] if reduced.ended in ended else []
    return (
        f"{reduced.file}: {after}, of {before}",
        f"with it the compiler took {took}",
        *so_far,
        *reduced.notes,
    )


def _work_place() -> str:
    """Sockets of C-Vise are in it, whose paths have 108 bytes at most, and a script that it does not quote."""
    usual = tempfile.gettempdir()
    plain = usual.isprintable() and " " not in usual and len(os.fsencode(usual)) <= MOST_PLACE_BYTES
    return usual if plain else SHORT_PLACE


def _size(text: bytes) -> str:
    return _amount(text.count(b"\n"), len(text))


def _amount(lines: int, size_bytes: int) -> str:
    return f"{counted(lines, 'line')} ({size_bytes:,} bytes)"
