"""The state of a running build as one picture: what the screen shows is gathered here.

Does *not* cover: showing it (``supervise.screen``, ``render``).
"""

from __future__ import annotations

from builddoctor.model.board import BoardState, RunningRow, WaitingRow
from builddoctor.supervise.fronts import Fronts
from builddoctor.supervise.phases import LivePhase
from builddoctor.supervise.prepare import Prepared
from builddoctor.supervise.sampler import Sampler
from builddoctor.supervise.session import Session
from builddoctor.supervise.time_left import build_left


def short_name(source: str, cwd: str) -> str:
    """A source as the user knows it: below the build's folder without that, elsewhere by its last three parts."""
    if source.startswith(cwd + "/"):
        return source[len(cwd) + 1 :]
    return "/".join(source.split("/")[-3:]) if source.startswith("/") else source


def reason_now(reason: str, *, needs_mib: float, free_mib: float, cores_free: bool) -> str:
    """Why a phase waits: the governor's last word, which is old where memory has become free since."""
    if reason != "memory" or needs_mib > free_mib:
        return reason
    return "others" if cores_free else "cores"


class Gathering:
    """One build's picture, at any time."""

    def __init__(self, session: Session, prepared: Prepared, fronts: Fronts, *, title: str, cwd: str) -> None:
        self.sampler: Sampler | None = None
        self._session = session
        self._prepared = prepared
        self._fronts = fronts
        self._title = title
        self._cwd = cwd

    def state(self) -> BoardState:
        """The picture now."""
        session, accounts = self._session, self._session.accounts
        now_s = accounts.start_s + session.at_s()
        reading = self.sampler.reading if self.sampler else self._prepared.reading
        running = tuple(self._running(live, now_s) for live in session.live.values() if live.admitted_at_s is not None)
        release_s = min((row.left_s for row in running if row.left_s), default=None)
        waits = self._waits(now_s, release_s)
        planned = self._fronts.planned
        return BoardState(
            title=self._title,
            elapsed_s=session.at_s(),
            units_done=accounts.units_done,
            units_open=accounts.units - accounts.units_done - len(session.holding),
            units_total=max(planned, accounts.units) if planned else None,
            phases_done=accounts.phases_done,
            requeued=accounts.requeued,
            kernel_kills=session.evidence.total(),
            used_mib=self.sampler.total_mib if self.sampler else 0.0,
            budget_mib=session.governor.budget_mib,
            limit_mib=reading.limit_mib,
            limited_by=reading.tightest.source,
            jobs=session.governor.running,
            jobs_mean=accounts.jobs_mean(now_s),
            jobs_max=accounts.jobs_max,
            window=self._prepared.knobs.window,
            threads=self._prepared.knobs.threads,
            running=running,
            waiting=session.governor.waiting,
            held=next((row for row in waits if row.reason != "cores"), None),
            events=tuple(session.events),
            left=build_left(session, planned, now_s),
            waits=waits,
        )

    def _running(self, live: LivePhase, now_s: float) -> RunningRow:
        running_s = now_s - (live.admitted_at_s if live.admitted_at_s is not None else now_s)
        estimator = self._session.estimator
        left_s = max(0.0, estimator.wall_s(live.phase) - running_s) if estimator is not None else None
        return RunningRow(
            kind=live.phase.kind.value,
            source=short_name(live.phase.source, self._cwd),
            arch=live.phase.arch,
            rss_mib=live.rss_mib,
            estimate_mib=live.estimate.peak_mib if live.estimate else 0.0,
            running_s=running_s,
            reserve_mib=live.estimate.reserve_mib if live.estimate else 0.0,
            evidence=live.estimate.source if live.estimate else "",
            left_s=left_s,
        )

    def _waits(self, now_s: float, release_s: float | None) -> tuple[WaitingRow, ...]:
        governor = self._session.governor
        free_mib = max(0.0, governor.allowed_mib - governor.committed_mib)
        cores_free = governor.running < self._prepared.cores
        rows = [
            WaitingRow(
                kind=live.phase.kind.value,
                source=short_name(live.phase.source, self._cwd),
                needs_mib=live.hold.needs_mib if live.hold is not None else 0.0,
                free_mib=free_mib,
                reason=reason_now(
                    live.hold.reason, needs_mib=live.hold.needs_mib, free_mib=free_mib, cores_free=cores_free
                )
                if live.hold is not None
                else "cores",
                waited_s=now_s - live.asked_at_s,
                release_s=release_s,
            )
            for live in self._session.live.values()
            if live.admitted_at_s is None
        ]
        return tuple(sorted(rows, key=lambda row: -row.waited_s))
