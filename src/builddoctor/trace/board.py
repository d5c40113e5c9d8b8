"""The state of a build as the screen shows it: the same for the build itself and for `watch`.

Covers: running and waiting phases, why they wait now, time left. Does *not* cover: adding events up (``trace.state``),
showing it (``ui``).
"""

from __future__ import annotations

import math

from builddoctor.core.board import BoardState, RunningRow, TimeLeft, WaitingRow, WaitReason
from builddoctor.core.events import Header
from builddoctor.trace.state import BuildState, PhaseState, RunState
from builddoctor.trace.words import event_row


def board_state(state: BuildState, *, now_s: float | None = None, silent_s: float = 0.0) -> BoardState:
    """The picture at ``now_s`` since the build began; None: at its last event.

    ``silent_s``: how long no event has come. The header must have been seen.
    """
    assert state.header is not None, "a trace begins with its header"
    header, status, counts = state.header, state.status, state.counts
    now_s = state.last_at_s if now_s is None else max(now_s, state.last_at_s)
    running = tuple(_running(run, header, now_s) for run in state.live.values())
    release_s = min((row.left_s for row in running if row.left_s), default=None)
    budget_mib = status.budget_mib if status is not None else header.budget_mib
    free_mib = max(0.0, budget_mib - _committed_mib(state))
    cores_free = len(running) < header.cores
    waits = sorted(
        (
            _waiting(phase, header, now_s, budget_mib, free_mib=free_mib, cores_free=cores_free, release_s=release_s)
            for phase in state.open.values()
            if phase.run is None
        ),
        key=lambda row: -row.waited_s,
    )
    events = [row for seen in state.recent if (row := event_row(seen)) is not None]
    return BoardState(
        title=_title(header),
        elapsed_s=now_s,
        units_done=counts.units_done,
        units_open=counts.units - counts.units_done - state.units_held,
        units_total=max(state.planned, counts.units) if state.planned else None,
        phases_done=counts.phases_done,
        requeued=counts.requeued,
        kernel_kills=(status.oom_kills or 0) if status is not None else 0,
        used_mib=state.held_mib,
        budget_mib=budget_mib,
        limit_mib=status.limit_mib if status is not None else header.limit_mib,
        limited_by=(status.limited_by if status is not None else "") or header.limited_by,
        jobs=len(running),
        jobs_mean=state.jobs.mean(now_s),
        jobs_max=state.jobs.most,
        window=header.window,
        threads=header.threads,
        running=running,
        waiting=len(waits),
        held=next((row for row in waits if row.reason is not WaitReason.CORES), None),
        events=tuple(events),
        left=_left(state, now_s),
        waits=tuple(waits),
        silent_s=silent_s,
    )


def short_name(source: str, cwd: str) -> str:
    """A source as the user knows it: below the build's folder without that, elsewhere by its last three parts."""
    if source.startswith(cwd + "/"):
        return source[len(cwd) + 1 :]
    return "/".join(source.split("/")[-3:]) if source.startswith("/") else source


def wait_reason(
    phase: PhaseState, *, needs_mib: float, free_mib: float, budget_mib: float, cores_free: bool
) -> WaitReason:
    """Why a phase waits: the scheduler's last word, which is old where memory has become free since. What is beyond the
    whole budget waits for no memory: it runs when it is alone."""
    if phase.hold is not None:
        reason = WaitReason(phase.hold.reason.value)
    else:
        reason = WaitReason.MEMORY if phase.again else WaitReason.CORES
    if reason is not WaitReason.MEMORY or needs_mib > free_mib:
        beyond = reason is WaitReason.MEMORY and needs_mib > budget_mib > 0
        return WaitReason.ALONE if beyond else reason
    return WaitReason.OTHERS if cores_free else WaitReason.CORES


def _title(header: Header) -> str:
    parts = (header.title, *header.archs, f"nvcc {header.nvcc}" if header.nvcc else "")
    return " · ".join(part for part in parts if part)


def _running(run: RunState, header: Header, now_s: float) -> RunningRow:
    row, running_s = run.phase.row, run.ran_s(now_s)
    return RunningRow(
        kind=row.kind,
        source=short_name(row.source, header.cwd),
        arch=row.arch,
        rss_mib=run.rss_mib,
        estimate_mib=run.estimate.peak_mib,
        running_s=running_s,
        reserve_mib=run.attempt.reserve_mib,
        evidence=run.estimate.source,
        left_s=max(0.0, run.expected_s - running_s) if run.expected_s > 0 else None,
        suspended=run.suspended_at_s is not None,
        node=run.attempt.elsewhere.node if run.attempt.elsewhere is not None else "",
    )


def _waiting(
    phase: PhaseState,
    header: Header,
    now_s: float,
    budget_mib: float,
    *,
    free_mib: float,
    cores_free: bool,
    release_s: float | None,
) -> WaitingRow:
    # A hold is older than an estimate that a kill has raised since.
    needs_mib = phase.hold.needs_mib if phase.hold is not None else 0.0
    if phase.hold is None and phase.estimate is not None:
        needs_mib = round(phase.estimate.reserve_mib, 1)
    return WaitingRow(
        kind=phase.row.kind,
        source=short_name(phase.row.source, header.cwd),
        needs_mib=needs_mib,
        free_mib=free_mib,
        reason=wait_reason(phase, needs_mib=needs_mib, free_mib=free_mib, budget_mib=budget_mib, cores_free=cores_free),
        waited_s=now_s - phase.waits_since_s,
        release_s=release_s,
    )


def _committed_mib(state: BuildState) -> float:
    """What running phases hold or may still take: as the scheduler said last, else by their estimates."""
    if state.status is not None and state.status.committed_mib:
        return state.status.committed_mib
    expected_mib = squares = 0.0
    for run in state.live.values():
        taken_mib = max(run.estimate.peak_mib, run.rss_mib)
        expected_mib += taken_mib
        squares += max(0.0, run.attempt.reserve_mib - taken_mib) ** 2
    return expected_mib + math.sqrt(squares)


def _left(state: BuildState, now_s: float) -> TimeLeft | None:
    """As the supervisor said it last, less what has passed since."""
    status = state.status
    if status is None or status.left_s is None:
        return None
    low_s, high_s = (max(0.0, each - max(0.0, now_s - status.at_s)) for each in status.left_s)
    return TimeLeft(low_s=min(low_s, high_s), high_s=high_s)
