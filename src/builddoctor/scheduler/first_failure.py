"""What is left of a ninja that had a failure: units that are built to their ends, and units that are not begun. Pure.

Covers: which of the units that it waits for are still worth building, and when it waits for no such unit any more.
Does *not* cover: which ninja it is, or ending it (``runtime.first_failure``).

Without us ninja would wait for as many units as it runs at once. So those that have a phase running are built to their
ends, which is what they would be then, and their objects are kept; the others were started to have a choice.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from builddoctor.core.events import NinjaFailed, StopNinja


class _Failed(msgspec.Struct, frozen=True):
    pid: int
    last: set[str]
    """units that are built to their ends, and the one that failed"""
    left: tuple[str, ...]


class FirstFailures:
    """Of all ninjas of one build."""

    def __init__(self) -> None:
        self._failed: list[_Failed] = []
        self._left: set[str] = set()

    def failed(self, event: NinjaFailed, at_work: Collection[str]) -> tuple[str, ...]:
        """Units that are not built any more. ``at_work``: units with a phase that runs, or between two of them."""
        last = {event.unit_id, *(each for each in event.units if each in at_work)}
        left = tuple(each for each in event.units if each not in last)
        if left:
            # Else it ends by itself.
            self._failed.append(_Failed(event.pid, last, left))
            self._left.update(left)
        return left

    def is_left(self, unit_id: str) -> bool:
        """This unit is not built any more."""
        return unit_id in self._left

    def unit_ended(self, unit_id: str, now_s: float) -> list[StopNinja]:
        """Ninjas that wait for none but units that are left."""
        self._left.discard(unit_id)
        over = []
        for failed in self._failed:
            failed.last.discard(unit_id)
            if not failed.last:
                over.append(failed)
        self._failed = [each for each in self._failed if each.last]
        return [StopNinja(at_s=now_s, pid=each.pid, units=each.left) for each in over]
