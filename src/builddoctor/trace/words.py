"""Events in words: the one place where what a build did becomes a sentence.

Covers: the line on the screen (``event_row``), the line of a report (``told``), the mark in a picture (``mark``),
and the reasons in all of them. Does *not* cover: layout, colours, counts (``ui``). Nothing reads these sentences back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from builddoctor.core.board import EventRow
from builddoctor.core.events import (
    Admit,
    Continue,
    ContinueReason,
    Event,
    GiveUp,
    Header,
    Hold,
    HoldReason,
    Kill,
    KillReason,
    Note,
    NoteLevel,
    Pause,
    PhaseEnded,
    ReleaseUnit,
    Requeue,
    Resume,
    Rise,
    Stall,
    Status,
    Suspend,
    Throttled,
    ToolkitChosen,
    UngatedProcess,
    Warn,
    WarningKind,
)
from builddoctor.core.evidence import KillCause
from builddoctor.core.phase import STORE, Outcome, kind_words
from builddoctor.core.units import format_mib
from builddoctor.core.verdict import Verdict

if TYPE_CHECKING:
    from builddoctor.trace.report import EventKind
    from builddoctor.trace.state import BuildState, Happening, Told

_CAUSES: Mapping[KillCause, str] = {
    KillCause.CGROUP: "the kernel",
    KillCause.ANCESTOR: "the kernel, for a hidden ancestor's limit or the whole machine's memory,",
    KillCause.HOST: "the kernel, by the machine's counter,",
    KillCause.OOMD: "systemd-oomd",
}

_CALM = (Suspend, Resume, Continue, ToolkitChosen)
"""Nothing is wrong."""

BY_US = "builddoctor, for want of memory"

HINT = "let the build take its compilers from PATH, $CC and $CXX, where gates are"
NO_GATE = f"no gate caught it, so it could not wait for its memory before it started ({HINT})"
STAGED = "a staged build has no gates, where it would have waited for its memory before it started"

THRIFT = "--param=ggc-min-expand=10 --param=ggc-min-heapsize=32768"
"""What a compiler that is to take less memory gets (``gates.gate_program``)."""

HOLD_WORDS: Mapping[HoldReason, str] = {
    HoldReason.MEMORY: "memory",
    HoldReason.CORES: "cores",
    HoldReason.ALONE: "it must run alone",
    HoldReason.OTHER_ALONE: "another runs alone",
    HoldReason.FREEING: "a kill is under way",
    HoldReason.TIME: "time: its unit would not end before the build has to",
    HoldReason.NODE: "it does not fit here, and waits for another machine",
    HoldReason.FAILURE: "nothing: another unit failed, and ninja ends with that",
}

CONTINUE_WORDS: Mapping[ContinueReason, str] = {
    ContinueReason.MEMORY_BACK: "memory is back",
    ContinueReason.NOTHING_MOVES: "nothing else makes progress",
    ContinueReason.LONG_ENOUGH: "it was stopped for long enough",
    ContinueReason.REFUSED: "it could not be stopped",
    ContinueReason.BUILD_ENDS: "the build ends",
    ContinueReason.UNSEEN: "memory cannot be looked at",
}


def describe_cause(cause: KillCause) -> str:
    """What killed a phase, for a sentence: ``ended by …``."""
    return _CAUSES.get(cause, "something else")


# -- reasons ---------------------------------------------------------------------------------------------------


def kill_reason(kill: Kill) -> str:
    """Why builddoctor ends a phase."""
    if kill.said:
        return kill.said
    if kill.reason is KillReason.RUNAWAY and kill.rise is not None:
        return rise_words(kill.rise)
    if kill.reason is KillReason.STALL and kill.stall is not None:
        return stall_words(kill.stall)
    if kill.reason is KillReason.THROTTLED and kill.throttled is not None:
        return throttled_words(kill.throttled)
    if kill.reason is KillReason.INTERRUPTED:
        return "the build is being ended, and the kernel holds back what waits for memory"
    left = f"{kill.headroom_mib:.0f} MiB left"
    if kill.reason is KillReason.UNGATED:
        return f"{left} beside processes that no gate caught, which cannot be redone"
    if kill.reason is KillReason.LARGER_PLACE:
        return f"{kill.headroom_mib:.0f} MiB left here, and another machine has more"
    if kill.reason is KillReason.STOOD:
        return "it stood still for a minute, nothing ended meanwhile, and others wait for what it holds"
    if kill.reason is KillReason.OTHER_BUILD:
        return f"{left} beside another build, which goes on"
    return f"{left} and {kill.growth_mib_s:.0f} MiB/s growing"


def give_up_reason(event: GiveUp) -> str:
    """Why a phase cannot be saved."""
    if event.said:
        return event.said
    if event.verdict is Verdict.RUNAWAY:
        return rise_words(event.rise) if event.rise is not None else "it grows without end"
    if event.verdict is Verdict.EXTERNAL_KILL:
        return "killed again from outside"
    if event.verdict is Verdict.NOT_REDOABLE:
        return "killed, and it reads or writes a pipe: it cannot be run again"
    if event.throttled is not None:
        return throttled_words(event.throttled)
    if event.standstill is not None:
        return f"alone it stood still at {event.peak_mib:.0f} MiB: {stall_words(event.standstill)}"
    return f"killed at {event.peak_mib:.0f} MiB while it ran alone"


def throttled_words(held_back: Throttled) -> str:
    """``memory.high held it back 4 times in 10 s, and it gets no further: it needs more than 2.0 GiB; raise …``."""
    return (
        f"memory.high held it back {held_back.times} times in {held_back.over_s:.0f} s, and it gets no further: it "
        f"needs more than {format_mib(held_back.limit_mib)}; raise {held_back.source}, or set it to max, so that "
        "memory.max alone holds"
    )


def rise_words(rise: Rise) -> str:
    """``it held 9000 MiB, 12 times what was expected, and rose for 31 s without a rest``."""
    times = rise.held_mib / max(1.0, rise.expected_mib)
    beyond = f"it held {rise.held_mib:.0f} MiB, {times:.0f} times what was expected"
    how = "rose without a rest up to its end" if rise.to_its_end else f"rose for {rise.rose_s:.0f} s without a rest"
    return f"{beyond}, and {how}"


def stall_words(stall: Stall) -> str:
    """``all processes waited for memory 40 % of the last 10 s``."""
    if stall.full_share is not None:
        return f"all processes waited for memory {100 * stall.full_share:.0f} % of the last {stall.over_s:.0f} s"
    rate_mib_s = stall.refault_mib_s or 0.0
    return f"{rate_mib_s:.0f} MiB/s are read in again at the limit, and no phase ended for {stall.over_s:.0f} s"


def hold_words(hold: Hold) -> str:
    """``needs 3.6 GiB, 2.1 GiB free (memory)``."""
    return f"needs {format_mib(hold.needs_mib)}, {format_mib(hold.free_mib)} free ({HOLD_WORDS[hold.reason]})"


def process_words(process: UngatedProcess) -> str:
    """``cc1plus (process 17)``."""
    return f"{process.name} (process {process.pid})"


# -- the screen ------------------------------------------------------------------------------------------------


def is_shown(event: Told) -> bool:
    """The screen has a line for it."""
    if isinstance(event, Note):
        return event.level is not NoteLevel.HOLD
    if isinstance(event, Kill):
        # Of others the redo is told, or that the phase is given up.
        return event.reason is KillReason.RUNAWAY
    return not isinstance(event, Hold | PhaseEnded)


def event_row(seen: Happening) -> EventRow | None:
    """The line that the screen shows; None for what it does not show."""
    event = seen.event
    if isinstance(event, Hold | PhaseEnded) or not is_shown(event):
        return None
    warning = not isinstance(event, _CALM)
    if isinstance(event, Kill):
        text = f"runaway: ends {_briefly(seen)}, which grows without end: {kill_reason(event)}"
    elif isinstance(event, Requeue):
        text = f"redoes {seen.phase_name}: {_requeue_words(seen, event)}"
    elif isinstance(event, GiveUp):
        text = f"gives up on {seen.phase_name}: {give_up_reason(event)}"
    elif isinstance(event, Note):
        text, warning = event.text, event.level is NoteLevel.WARNING
    else:
        text = _sentence(seen, event)
    return EventRow(at_s=event.at_s, text=text, warning=warning)


def _requeue_words(seen: Happening, event: Requeue) -> str:
    run = seen.run.attempt if seen.run is not None else None
    if run is not None and run.elsewhere is not None:
        if run.elsewhere.node == STORE:
            return "what the store has of it could not be used"
        gone = run.outcome == Outcome.NODE_LOST.value
        why = "is gone, or was not reached" if gone else f"could not hold it, at {format_mib(event.peak_mib)}"
        return f"{run.elsewhere.node} {why}; {event.lost_s:.0f} s lost"
    by_us = run is not None and run.outcome == Outcome.KILLED_BY_US.value
    by = BY_US if by_us else describe_cause(_cause(run.cause) if run is not None else KillCause.UNKNOWN)
    alone = ", now alone" if event.solo else ""
    return f"ended by {by} at {format_mib(event.peak_mib)}; {event.lost_s:.0f} s lost{alone}"


def _sentence(seen: Happening, event: Suspend | Resume | Pause | Continue | Warn | ToolkitChosen) -> str:
    if isinstance(event, Suspend):
        held, free = format_mib(event.held_mib), format_mib(event.left_mib)
        return f"stops {seen.phase_name} for a while at {held}: {free} free, and others can end first"
    if isinstance(event, Resume):
        return f"continues {seen.phase_name} after {event.stood_s:.0f} s: {CONTINUE_WORDS[event.reason]}"
    if isinstance(event, Pause):
        held, free = format_mib(event.process.rss_mib), format_mib(event.free_mib)
        why = f"; {seen.remark}" if seen.remark else ""
        return f"stops {process_words(event.process)} for a while at {held}: {free} free{why}"
    if isinstance(event, Continue):
        reason = CONTINUE_WORDS[event.reason]
        return f"continues {process_words(event.process)} after {event.stopped_s:.0f} s: {reason}"
    if isinstance(event, ToolkitChosen):
        return f"from here on the build takes CUDA {event.nvcc} of {event.toolkit}"
    if event.kind is WarningKind.STALLED:
        why = stall_words(event.stall) if event.stall is not None else "it makes no progress"
        return f"the build hangs for memory: {why}; nothing new starts"
    if event.kind is WarningKind.FIRST_FAILURE:
        left = f"{event.units} units that ninja has started are" if event.units > 1 else "one more unit is"
        return (
            f"a unit failed: the build ends after what runs; {left} not built (`ninja -k 0`, or --keep-going, goes on)"
        )
    if event.kind is WarningKind.OVERDRAWN:
        held = f"{event.size_mib:.0f} MiB"
        return f"{_briefly(seen)} alone holds more than the limit ({held}): it goes on, by itself"
    size = format_mib(event.size_mib)
    why = f"killed at {size} alone"
    if event.budget_mib is not None:
        why = f"{size} are expected, {format_mib(event.budget_mib)} are there"
    tool = seen.phase.row.tool if seen.phase is not None else "it"
    return (
        f"tries {seen.phase_name} with less memory: {why}; {tool} gets {THRIFT}, "
        "which leaves its output as it is (`--auto-remedy`)"
    )


def _briefly(seen: Happening) -> str:
    """The phase without its architecture."""
    return (
        f"{kind_words(seen.phase.row.kind)} of {seen.phase.row.source}" if seen.phase is not None else seen.phase_name
    )


class Decisions:
    """Every decision on a compiler, and the limit that binds, for ``-v``. What ``event_row`` says is left to it."""

    def __init__(self, state: BuildState) -> None:
        self._state = state
        """to which the events were applied before"""
        self._limited_by = ""

    def row(self, event: Event) -> EventRow | None:
        """The line of a decision; None for what is none, or changes nothing."""
        text = self._text(event)
        return EventRow(at_s=event.at_s, text=text) if text else None

    def _text(self, event: Event) -> str:
        if isinstance(event, Admit):
            return self._admitted(event)
        if isinstance(event, Hold):
            return f"waits: {self._phase(event.phase_id)} {hold_words(event)}"
        if isinstance(event, Kill):
            return f"ends {self._phase(event.phase_id)}: {kill_reason(event)}"
        if isinstance(event, ReleaseUnit):
            unit = self._state.unit(event.unit_id)
            threads = f" with --threads {event.threads}" if event.threads else ""
            return f"opens {unit.row.unit if unit is not None else event.unit_id}{threads}{_after(event.waited_s)}"
        return self._limit(event) if isinstance(event, Header | Status) else ""

    def _limit(self, event: Header | Status) -> str:
        first = self._state.header.limited_by if self._state.header is not None else ""
        before, self._limited_by = self._limited_by, event.limited_by or first
        if self._limited_by == before:
            return ""
        budget = format_mib(event.budget_mib)
        return f"{self._limited_by} binds: {format_mib(event.limit_mib)}, of which compilers may take {budget}"

    def _admitted(self, event: Admit) -> str:
        expected = f"{format_mib(event.estimate.peak_mib)} expected ({event.estimate.source})"
        name, after = self._phase(event.phase_id), _after(event.waited_s)
        if event.node == STORE:
            return f"takes {name} from the store"
        how = f" on {event.node}" if event.node else " alone" if event.alone else ""
        reserve = f"{format_mib(event.estimate.reserve_mib)} set aside"
        return f"starts {name}{how}{after}: {expected}, {reserve}; {event.running} run"

    def _phase(self, phase_id: int) -> str:
        phase = self._state.phases.get(phase_id)
        return phase.row.name if phase is not None else f"phase {phase_id}"


def _after(waited_s: float) -> str:
    return f" after {waited_s:.0f} s" if waited_s >= 1 else ""


# -- reports ---------------------------------------------------------------------------------------------------


def told(seen: Happening) -> tuple[EventKind, str] | None:
    """What a report says of it: its kind and a sentence; None for what it does not tell."""
    event, name = seen.event, seen.phase_name
    if isinstance(event, Kill):
        return "kill", f"builddoctor ends {name}: {kill_reason(event)}"
    if isinstance(event, PhaseEnded):
        if event.outcome in (Outcome.KILLED_BY_US, Outcome.NODE_LOST):
            return None
        if event.outcome is Outcome.KILLED_THERE:
            return "killed", f"{name} ended on {event.node}, which could not hold it, at {format_mib(event.peak_mib)}"
        by = "something unknown" if event.cause is None else describe_cause(event.cause)
        return "killed", f"{name} killed by {by} at {format_mib(event.peak_mib)}"
    if isinstance(event, Requeue):
        how = "alone, " if event.solo else ""
        reserve = format_mib(event.estimate.reserve_mib)
        return "requeue", f"{name} is run again, {how}with {reserve}; {event.lost_s:.0f} s lost"
    if isinstance(event, GiveUp):
        return "give-up", f"{name} cannot be saved ({event.verdict.value}): {give_up_reason(event)}"
    if isinstance(event, Hold):
        return "hold", f"waits: {name} {hold_words(event)}"
    if isinstance(event, Note):
        kinds: Mapping[NoteLevel, EventKind] = {NoteLevel.HOLD: "hold", NoteLevel.WARNING: "warning"}
        return kinds.get(event.level, "note"), event.text
    return "note" if isinstance(event, _CALM) else "warning", _sentence(seen, event)


# -- pictures --------------------------------------------------------------------------------------------------

_ENDED_BY = {
    Outcome.KILLED_BY_US: "builddoctor ended",
    Outcome.KILLED_BY_KERNEL: "the kernel killed",
    Outcome.KILLED_OUTSIDE: "something else killed",
}


def mark(seen: Happening) -> tuple[str, str] | None:
    """What a picture says of it: the kind of its mark and a sentence; None for what has no mark."""
    event = seen.event
    if isinstance(event, PhaseEnded):
        if event.node:
            return "ended", f"{seen.phase_name} did not end on {event.node}"
        run, by_us = seen.run, event.outcome is Outcome.KILLED_BY_US
        why = f": {run.attempt.killed_for}" if by_us and run is not None and run.attempt.killed_for else ""
        peak_mib = run.peak_mib if run is not None else event.peak_mib
        ended = _ENDED_BY.get(event.outcome, _ENDED_BY[Outcome.KILLED_OUTSIDE])
        text = f"{ended} {seen.phase_name} at {format_mib(peak_mib)}{why}"
        return "ended" if by_us else "kill", text
    if isinstance(event, GiveUp):
        return "give-up", f"gives up on {seen.phase_name}: {give_up_reason(event)}"
    if isinstance(event, Hold):
        return "wait", f"waits: {seen.phase_name} {hold_words(event)}"
    if isinstance(event, Note) and event.level is NoteLevel.HOLD:
        return "wait", event.text
    row = event_row(seen)
    return ("warning" if row.warning else "note", row.text) if row is not None else None


def _cause(cause: str) -> KillCause:
    return KillCause(cause) if cause else KillCause.UNKNOWN
