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
    pace: float = 1.0
    """seconds of the clock for each that passes: more than one where a recorded build is replayed in less time"""
    rest_s: float = 0.75
    """a phase whose memory holds still is looked at again after this time, unless memory is short"""
