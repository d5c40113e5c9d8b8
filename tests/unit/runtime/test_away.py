"""Phases on other machines, as the build's event loop sees them."""

from __future__ import annotations

import asyncio

import pytest

from builddoctor.runtime.away import until_set


@pytest.mark.parametrize("turns", range(6))
def test_a_cancellation_is_never_lost(turns: int) -> None:
    """Whichever turn of the event loop it comes in, after the event: who waits has ended, or ends by it."""

    async def waits_on(event: asyncio.Event) -> None:
        await until_set(event, 60)
        await asyncio.sleep(60)

    async def told_to_end() -> None:
        event = asyncio.Event()
        task = asyncio.ensure_future(waits_on(event))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        event.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        done, _ = await asyncio.wait((task,), timeout=10)
        assert done
        assert task.cancelled()

    asyncio.run(told_to_end())


def test_it_ends_with_the_event_or_the_time() -> None:
    async def twice() -> None:
        event = asyncio.Event()
        await until_set(event, 0.01)
        event.set()
        await until_set(event, 60)

    asyncio.run(twice())
