"""Signals to this process itself: which end a build, and that nothing is left whenever they come.

Covers: before a build heeds them, and after. Does *not* cover: what a running build makes of them (``runtime.build``),
or signals to what it has started (``gates.guardian``, ``gates.stopping``).
"""

from __future__ import annotations

import asyncio
import signal


def heeded_signals() -> list[signal.Signals]:
    """Signals that end a build. What `nohup` or a script's `&` has set to be ignored stays so."""
    usual = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
    return [number for number in usual if signal.getsignal(number) is not signal.SIG_IGN]


def end_in_order() -> None:
    """Until a build heeds them itself, these signals end the program as Ctrl-C does: through whatever has to be tidied
    up."""

    def leave(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    for number in heeded_signals():
        if number != signal.SIGINT:
            signal.signal(number, leave)


def heed_no_more(loop: asyncio.AbstractEventLoop) -> None:
    """Told once is enough: told again, what is being tidied up would be left. What asyncio takes back at its end is the
    signal's default, which ends the process."""
    numbers = heeded_signals()
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    for number in numbers:
        loop.remove_signal_handler(number)
        # A function, since what is ignored stays so in programs that are started.
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)


def heed_as_usual() -> None:
    """As Python has them when it starts."""
    for number in heeded_signals():
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
