"""The other builds of this machine, watched from look to look. Pure.

Covers: who has fallen silent, and whose phases ran since the last look.
Does *not* cover: who is dead (``supervise.ledger`` knows processes), or what each may have (``policy.sharing``).

Silence is measured on our own clock, by a beat that stands still: no clock of another build is believed. It counts
while we look ourselves: when the whole machine stood still nobody has said anything, and who looks first would take all
others for silent. A build whose supervisor was stopped, or hangs, counts for what its processes visibly use, which is
missing from headroom anyway, and for no more.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from builddoctor.model.build_record import BuildRecord

SILENT_S = 3.0
"""A build says something ten times a second, four times where it is alone."""

LONGEST_LOOK_S = 1.0
"""Of the time between two looks of ours no more counts: we stood still ourselves."""


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """Another build that lives."""

    record: BuildRecord
    silent: bool = False
    """it has said nothing for a while: it claims nothing, and nothing is kept for it"""
    active: bool = False
    """a phase of it runs, or did since the last look"""


class _Seen(msgspec.Struct):
    record: BuildRecord
    silent_s: float
    """how long we have watched since its beat last rose"""


class Peers:
    """All others, as they were at the last look."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        self._looked_s: float | None = None

    def look(self, records: Sequence[BuildRecord], now_s: float) -> tuple[Peer, ...]:
        """Take in what they say now; whoever says nothing any more is gone."""
        passed_s = min(now_s - self._looked_s, LONGEST_LOOK_S) if self._looked_s is not None else 0.0
        self._looked_s = now_s
        self._seen, before = {}, self._seen
        found: list[Peer] = []
        for record in records:
            last = before.get(record.build_id)
            stands = last is not None and last.record.beat == record.beat
            silent_s = last.silent_s + passed_s if last is not None and stands else 0.0
            self._seen[record.build_id] = _Seen(record, silent_s)
            found.append(
                Peer(
                    record=record,
                    silent=silent_s > SILENT_S,
                    active=record.running > 0 or (last is not None and last.record.changes != record.changes),
                )
            )
        return tuple(found)
