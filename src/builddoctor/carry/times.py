"""When is an object up to date with a header that was installed again, the same but newer?

Covers: times for all that a build is made of, in the order that they had, and later than what was installed. Build
tools compare times and nothing else, so the order is all that counts.
Does *not* cover: whether a header is the same: who asks has compared what is in them.
"""

from __future__ import annotations

from collections.abc import Collection

AGO_NS = 2_000_000_000
"""They begin so long ago, where nothing was installed since: on disks with times of whole seconds, too, what is written
from now on is newer."""
STEP_NS = 1000


def newer_times(
    known: Collection[int], *, objects: Collection[int], outside: Collection[tuple[int, int]], now_ns: int
) -> dict[int, int]:
    """From the old time to the new one, in ns; empty where the old ones will do, or one would hide a change.

    ``known``: all times of the build's own files; ``objects``: those of what was compiled; ``outside``: of each file
    elsewhere the time when the build was saved, and now.
    """
    oldest = min(objects, default=0)
    if all(now <= oldest for _, now in outside) or any(then > oldest for then, _ in outside):
        return {}
    in_order = sorted(set(known) - {0})
    first_ns = max(now_ns - AGO_NS, *(now + 1 for _, now in outside))
    step_ns = min(STEP_NS, (now_ns - first_ns) // (len(in_order) + 1))
    if step_ns < 1:
        return {}
    return {each: first_ns + step_ns * place for place, each in enumerate(in_order)}
