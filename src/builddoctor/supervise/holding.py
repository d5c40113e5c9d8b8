"""Units that wait at their nvcc gate until the governor opens them.

Does *not* cover: which one is opened (``policy.opening``), or noticing that a gate died (``supervise.units``).
"""

from __future__ import annotations

import asyncio

from builddoctor.sensors.root import Clock


class Holding:
    """Held units by id, each with the answer that its gate waits for. Called in the event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._held: dict[str, tuple[asyncio.Future[int], float]] = {}
        self._count = 0
        self._closed = False

    def __len__(self) -> int:
        """Units that wait."""
        return self._count

    def hold(self, unit_id: str) -> None:
        """It waits from now on; ``threads`` must be called for it."""
        self._held[unit_id] = (asyncio.get_running_loop().create_future(), self._clock())
        self._count += 1

    def close(self) -> None:
        """The build is being ended: what is held stays so until its gate is ended."""
        self._closed = True

    def open(self, unit_id: str, threads: int) -> float | None:
        """Let it go; how long it has waited (s). None when it does not wait: it was never held, or its gate died."""
        return None if self._closed else self._let_go(unit_id, threads)

    def forget(self, unit_id: str) -> None:
        """Its gate died, or was let go and has ended as nvcc."""
        self._let_go(unit_id, 0)

    def _let_go(self, unit_id: str, threads: int) -> float | None:
        held = self._held.get(unit_id)
        if held is None or held[0].done():
            return None
        held[0].set_result(threads)
        self._count -= 1
        return self._clock() - held[1]

    async def threads(self, unit_id: str) -> int:
        """Wait until it is open: the number for its ``--threads``, 0 for its own. At once for one that is not held."""
        held = self._held.get(unit_id)
        if held is None:
            return 0
        try:
            return await held[0]
        finally:
            del self._held[unit_id]
