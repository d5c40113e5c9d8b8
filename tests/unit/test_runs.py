"""What all running phases add up to, kept part by part."""

from __future__ import annotations

import math
import random

import pytest

from builddoctor.model.phase import Estimate, Phase, PhaseKind
from builddoctor.policy.running import Running, risk_share
from builddoctor.policy.runs import Runs

EVENNESS = {kind: place / 10 for place, kind in enumerate(PhaseKind)}


def running(phase_id: int, kind: PhaseKind = PhaseKind.CICC, *, alone: bool = False) -> Running:
    return Running(
        phase=Phase(phase_id=phase_id, unit_id=f"u{phase_id}", kind=kind, source="a.cu"),
        estimate=Estimate(peak_mib=100.0 + phase_id, spread_mib=30.0 + phase_id / 7, source="test"),
        admitted_at_s=0.0,
        alone=alone,
        budget_mib=9000.0,
    )


def test_the_sum_is_that_of_all_that_run_whatever_came_and_went() -> None:
    """Not one bit is lost by adding and taking off, in any order; evenness changes on the way."""
    chance, runs, kinds = random.Random(1), Runs(), list(PhaseKind)
    for number in range(500):
        runs.start(running(number, kinds[number % len(kinds)]))
        if chance.random() < 0.7:
            runs.end(chance.choice(list(runs)))
        for run in runs.values():
            runs.sampled(run, chance.choice((run.rss_mib, 300.0 * chance.random())), float(number), number)
        even = EVENNESS if number % 50 < 25 else dict.fromkeys(kinds, 0.0)
        load = runs.load(even.__getitem__)
        assert (load.count, load.killing) == (len(runs), False)
        assert load.expected_mib == sum(run.expected_mib for run in runs.values())
        risks_mib = [risk_share(even[run.phase.kind]) * run.spread_mib for run in runs.values()]
        assert load.risk_mib == math.sqrt(sum(each**2 for each in risks_mib))
    assert len(runs) > 100


def test_a_kill_is_under_way_until_the_phase_has_ended() -> None:
    runs = Runs()
    runs.start(running(1))
    runs.start(running(2))
    assert runs.kill(2) is runs[2]
    assert runs[2].killed
    assert runs.load(EVENNESS.__getitem__).killing
    assert runs.end(1) is not None
    assert runs.killing
    assert runs.end(2) is not None
    assert not runs.killing
    assert runs.end(2) is None


@pytest.mark.parametrize("more", [1, 3])
def test_who_ran_alone_has_company_now(more: int) -> None:
    runs, first = Runs(), running(1, alone=True)
    runs.start(first)
    assert first.alone
    for phase_id in range(2, 2 + more):
        runs.start(running(phase_id))
    assert not any(run.alone for run in runs.values())
