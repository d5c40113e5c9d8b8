"""Did the kernel kill it? Counters, never text.

A SIGKILL that we did not send is the kernel's when one of its OOM counters rose and no other death has been put down to
that rise. The kernel counts before it sends the signal, so the counter is there when the process has been reaped.
"""

from __future__ import annotations

from builddoctor.sensors.limits import KillCounter


class KillEvidence:
    """Counts kernel kills since it was made, and which of them are explained."""

    def __init__(self, counter: KillCounter) -> None:
        self._counter = counter
        self._own_at_start = counter.own()
        self._host_at_start = counter.host()
        self._claimed = 0

    def claim(self) -> bool:
        """A process died of SIGKILL: was it the kernel? Each counted kill explains one death."""
        if max(self.own_kills(), self._host_kills()) > self._claimed:
            self._claimed += 1
            return True
        return False

    def own_kills(self) -> int:
        """Kernel kills in our own cgroup; without a counter there, those that explained a death."""
        now = self._counter.own()
        if now is None or self._own_at_start is None:
            return self._claimed
        return max(now - self._own_at_start, 0)

    def total(self) -> int:
        """What the summary reports: kills counted in our cgroup, or that explained a death of ours."""
        return max(self.own_kills(), self._claimed)

    def _host_kills(self) -> int:
        now = self._counter.host()
        if now is None or self._host_at_start is None:
            return 0
        return max(now - self._host_at_start, 0)
