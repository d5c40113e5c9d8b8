"""Thresholds of what is seen beside headroom, in one place: production's defaults, and shorter ones in tests."""

from __future__ import annotations

import msgspec

from builddoctor.policy.crosscheck import CrossCheckRules
from builddoctor.policy.runaway import RunawayRules
from builddoctor.policy.thrash import ThrashRules


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """All of them."""

    runaway: RunawayRules = RunawayRules()
    thrash: ThrashRules = ThrashRules()
    crosscheck: CrossCheckRules = CrossCheckRules()
