"""A gate that plays what a test writes down."""

from __future__ import annotations

from collections.abc import Callable

from builddoctor.gates.protocol import Connection, Ended, Message

MIB_KIB = 1024
DONE = Ended(status=0, peak_kib=2048 * MIB_KIB, cpu_s=1.0, gate_cpu_s=0.01, gate_peak_kib=8192)


def killed(peak_mib: float) -> Ended:
    """The tool died of a SIGKILL at this size."""
    return Ended(status=9, peak_kib=round(peak_mib * MIB_KIB), cpu_s=1.0, gate_cpu_s=0.01, gate_peak_kib=8192)


class Gate(Connection):
    """Says what is told, one message at a time; then it is gone. What is called happens before the next message."""

    def __init__(self, *messages: Message | Callable[[], None]) -> None:
        self.peer_pid = 11
        self.told: list[tuple[str, ...]] = []
        self._messages = list(messages)

    async def receive(self) -> Message | None:
        while self._messages:
            message = self._messages.pop(0)
            if not callable(message):
                return message
            message()
        return None

    def send(self, *fields: str) -> None:
        self.told.append(fields)
