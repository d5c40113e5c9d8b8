"""The event log of one build: what happens, each event once, to all that want to know.

Covers: the time of events, who is told, and in which order.
Does *not* cover: what events there are (``core.events``), or what observers make of them: the trace (``trace.writer``),
the state (``trace.state``), the screen (``ui``), what is learned (``runtime.history_recorder``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from builddoctor.core.events import Event, Note, NoteLevel
from builddoctor.system.root import Clock

Observer = Callable[[Event], None]


class EventLog:
    """What happens in one build, each event once, to all that want to know: trace, state, screen, what is learned.

    Called in the event loop. Observers are told in their order, and must not log anything themselves.
    """

    def __init__(self, clock: Clock, observers: Sequence[Observer], *, start_s: float | None = None) -> None:
        self._clock = clock
        self._observers = tuple(observers)
        self.start_s = clock() if start_s is None else start_s

    def at_s(self) -> float:
        """Seconds since the build began, as events have it."""
        return round(self._clock() - self.start_s, 4)

    def add(self, *events: Event | None) -> None:
        """These happened, in this order; None for nothing."""
        for event in events:
            if event is not None:
                for observer in self._observers:
                    observer(event)

    def tell(self, text: str, *, warning: bool = False) -> None:
        """A line for a person."""
        self.add(Note(at_s=self.at_s(), text=text, level=NoteLevel.WARNING if warning else NoteLevel.INFO))
