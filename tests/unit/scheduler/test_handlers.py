"""Every fact is taken."""

from __future__ import annotations

from typing import get_args

from builddoctor.core.events import Fact
from support.schedulers import scheduler_of
from unit.builders import TableEstimator


def test_every_fact_has_a_handler() -> None:
    """And nothing else has one."""
    assert scheduler_of(TableEstimator({}), slots=1, budget_mib=0.0)._handlers.keys() == set(get_args(Fact))
