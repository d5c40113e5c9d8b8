"""How long the running build still takes: what is known of it put together for ``policy.time_left``.

Does *not* cover: showing it (``supervise.gathering``, ``render``), or work that earlier builds showed
(``supervise.remembering``).
"""

from __future__ import annotations

from builddoctor.model.board import TimeLeft
from builddoctor.policy.foreseen import NOTHING
from builddoctor.policy.time_left import OpenUnit, time_left
from builddoctor.supervise.session import Session


def build_left(session: Session, planned: int | None, now_s: float) -> TimeLeft | None:
    """Until the last unit has ended; None where nobody has said how many units there will be (``planned``)."""
    if planned is None or session.estimator is None:
        return None
    accounts, estimator = session.accounts, session.estimator
    foreseen = session.remembering.foreseen if session.remembering is not None else None
    counted = [unit_id for unit_id, unit in session.units.open.items() if unit.counted]
    done_s = {unit_id: accounts.works.done_s(unit_id) for unit_id in counted}
    left_s: dict[str, float | None] = dict.fromkeys(counted)
    known: set[str] = set()
    for unit_id in counted:
        if foreseen is not None and (work_s := foreseen.work_s(unit_id, estimator.pace)) is not None:
            left_s[unit_id] = max(0.0, work_s - done_s[unit_id])
            known.add(unit_id)
    for live in session.live.values():
        unit_id = live.phase.unit_id
        if unit_id in left_s:
            ran_s = now_s - live.admitted_at_s if live.admitted_at_s is not None else 0.0
            done_s[unit_id] += ran_s
            left_s[unit_id] = max(0.0, estimator.remaining_s(live.phase) - ran_s)
    return time_left(
        accounts.works,
        to_come=max(0, planned - accounts.units),
        open_units=[OpenUnit(done_s[unit_id], left_s[unit_id], unit_id in known) for unit_id in left_s],
        rate=accounts.work_rate(now_s),
        jobs=session.governor.running,
        foreseen=foreseen.to_come(estimator.pace) if foreseen is not None else NOTHING,
    )
