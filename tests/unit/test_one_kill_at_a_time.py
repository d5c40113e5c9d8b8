"""A big victim gives its memory back slowly: nobody else is ended meanwhile."""

from __future__ import annotations

import pytest

from builddoctor.model.phase import Outcome
from builddoctor.policy.actions import Action, Admit, Kill
from builddoctor.policy.events import Event
from builddoctor.policy.governor import Governor
from unit.builders import TableEstimator, asked, ended, sampled

LIMIT_MIB = 16_384.0
FREED_MIB_S = 13_000.0
"""8 GiB take 627 ms to come back (memory.md, experiment 9)."""


def step(governor: Governor, event: Event, now_s: float) -> list[Action]:
    actions = governor.handle(event, now_s)
    governor.check()
    return actions


@pytest.mark.trap(32)
@pytest.mark.parametrize("period_s", [0.05, 0.2])
def test_exactly_one_kill_while_eight_gib_are_being_freed(period_s: float) -> None:
    """Three phases fill the limit; the biggest young one is ended, and looks at low memory end no second one."""
    held = {1: 4000.0, 2: 8192.0, 3: 3900.0}
    governor = Governor(TableEstimator({1: 4000, 2: 4000, 3: 4000, 4: 10}), slots=8, budget_mib=LIMIT_MIB)
    for phase_id in held:
        step(governor, asked(phase_id), float(phase_id))

    def look(now_s: float) -> list[Action]:
        headroom_mib = LIMIT_MIB - sum(held.values())
        return step(governor, sampled(held, headroom_mib=headroom_mib, budget_mib=15_000.0, reserve_mib=1024.0), now_s)

    kills = [action for action in look(10.0) if isinstance(action, Kill)]
    now_s = 10.0
    while held[2] > 0:
        now_s += period_s
        # What it frees, the others take at half that speed: memory stays low all the while.
        freed_mib = min(held[2], FREED_MIB_S * period_s)
        held[2] -= freed_mib
        held[1] += freed_mib / 2
        held[3] += freed_mib / 2 - 1
        kills += [action for action in look(now_s) if isinstance(action, Kill)]
        assert not [each for each in step(governor, asked(4), now_s) if isinstance(each, Admit)]
    assert [kill.phase_id for kill in kills] == [2]
    # Gone, and memory is still low: only now may the next one be considered.
    step(governor, ended(2, Outcome.WITHDRAWN), now_s)
    del held[2]
    assert [action.phase_id for action in look(now_s + period_s) if isinstance(action, Kill)] == [3]
