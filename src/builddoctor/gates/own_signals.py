"""Signals to this process itself: which end a build, and that nothing is left whenever they come.

Covers: who is told, before a build runs, while it does, and after. Does *not* cover: what a running build makes of
them (``runtime.build``), or signals to what it has started (``gates.guardian``, ``gates.stopping``).
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator


def heeded_signals() -> list[signal.Signals]:
    """Signals that end a build. What `nohup` or a script's `&` has set to be ignored stays so."""
    usual = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
    return [number for number in usual if signal.getsignal(number) is not signal.SIG_IGN]


def end_in_order() -> None:
    """Until a build heeds them itself, these signals end the program as Ctrl-C does: through whatever has to be tidied
    up. Told once is enough: told again, what is being tidied up would be left."""

    def leave(number: int, _frame: object) -> None:
        heed_no_more()
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)

    for number in heeded_signals():
        signal.signal(number, leave)


def heed(loop: asyncio.AbstractEventLoop, told: Callable[[signal.Signals], None]) -> None:
    """``told`` is called by the loop, which runs. Not ``loop.add_signal_handler``: what asyncio takes back at its end
    is the signal's default, which ends the process wherever it is."""

    def soon(number: int, _frame: object) -> None:
        # Closed where the build could not be started: it ends by itself.
        if not loop.is_closed():
            loop.call_soon_threadsafe(told, signal.Signals(number))

    for number in heeded_signals():
        signal.signal(number, soon)


def heed_no_more() -> None:
    """What has ended tidies up: told again, it would leave that."""
    for number in heeded_signals():
        # A function, since what is ignored stays so in programs that are started.
        signal.signal(number, lambda *_: None)


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """What comes meanwhile is heeded afterwards: between what is made, and that somebody knows that it has to be
    removed. For this thread, while it is the only one; and nothing may be started in it, which would never be told."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, heeded_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def heed_as_usual() -> None:
    """As Python has them when it starts."""
    for number in heeded_signals():
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
