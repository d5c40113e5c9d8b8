"""Figures of a build as it goes: counts, overhead, effective jobs over time.

Covers: what the summary and the screen report. Does *not* cover: deciding anything.
"""

from __future__ import annotations

from builddoctor.policy.time_left import Works


class Accounts:
    """Adds up; every method is cheap. Times are seconds of one monotonic clock, sizes MiB."""

    def __init__(self, start_s: float) -> None:
        self.start_s = start_s
        self.units = 0
        self.units_done = 0
        self.phases = 0
        self.phases_done = 0
        self.requeued = 0
        self.killed = 0
        self.runaways = 0
        self.paused = 0
        self.cpu_s = 0.0
        self.peak_mib = 0.0
        self.gates = 0
        self.gate_cpu_s = 0.0
        self.gate_peak_mib = 0.0
        self.answer_s = 0.0
        self.jobs_max = 0
        self.works = Works()
        self._first_s: float | None = None
        self._jobs = 0
        self._jobs_since_s = start_s
        self._busy_s = 0.0
        self._job_seconds = 0.0

    def jobs_changed(self, jobs: int, now_s: float) -> None:
        """The number of running phases is ``jobs`` from now on."""
        passed_s = now_s - self._jobs_since_s
        if self._jobs > 0:
            self._busy_s += passed_s
            self._job_seconds += passed_s * self._jobs
        if jobs and self._first_s is None:
            self._first_s = now_s
        self._jobs, self._jobs_since_s = jobs, now_s
        self.jobs_max = max(self.jobs_max, jobs)

    def jobs_mean(self, now_s: float) -> float:
        """Phases running at once, mean over the time that any ran."""
        self.jobs_changed(self._jobs, now_s)
        return self._job_seconds / self._busy_s if self._busy_s > 0 else 0.0

    def work_rate(self, now_s: float) -> float:
        """Seconds of phases done a second, since the first began; 0 before."""
        self.jobs_changed(self._jobs, now_s)
        passed_s = now_s - self._first_s if self._first_s is not None else 0.0
        return self._job_seconds / passed_s if passed_s > 0 else 0.0

    def gate_ended(self, *, cpu_s: float, peak_kib: int) -> None:
        """A gate said what it cost itself."""
        self.gates += 1
        self.gate_cpu_s += cpu_s
        self.gate_peak_mib = max(self.gate_peak_mib, peak_kib / 1024)

    @property
    def gate_overhead_s(self) -> float:
        """Processor time of the gates, and of answering them."""
        return self.gate_cpu_s + self.answer_s
