"""How a trace ends that has no summary: the supervisor died, or still runs. Pure.

Covers: what the last seconds say about memory; whether the machine was started anew since.
Does *not* cover: what else the system knows of it: its own log does.
"""

from __future__ import annotations

import msgspec

from builddoctor.trace.report import TraceReport
from builddoctor.units import format_clock, format_mib

STILL_WRITTEN_S = 8.0
"""A running build writes once a second."""

SHORT_SHARE = 0.08
"""of the limit left: memory was short"""

FAST_FILL_S = 5.0
"""at the last pace full within this: likewise"""


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of it."""

    still_running: bool = False
    memory_was_short: bool = False
    why: str = ""
    evidence: list[str] = []
    look_at: list[tuple[str, str]] = []
    """where more can be learned: what, and a command"""


def how_it_ended(report: TraceReport, *, boot_id: str, idle_s: float | None) -> Ending:
    """``boot_id``: this machine's now, empty when not known. ``idle_s``: since the trace was last written to."""
    same_boot = bool(boot_id) and boot_id == report.header.boot_id
    if same_boot and idle_s is not None and idle_s < STILL_WRITTEN_S:
        return Ending(still_running=True)
    short = _short(report)
    evidence = _last_words(report)
    if same_boot:
        why = "builddoctor was killed, or the container that it ran in: the machine has not been started anew since"
        look_at = [("look at what the kernel killed", "journalctl -k -b | grep -iE 'kill|oom'")]
    elif boot_id and report.header.boot_id:
        why = "the machine was started anew since, or the trace is of another one: what ended it was sudden"
        look_at = [("look at how the machine was last doing before it was started anew", "journalctl -b -1 -n 50")]
    else:
        why = "builddoctor, its container or the machine ended all at once"
        look_at = []
    if short:
        why += f". Memory was short: {short}"
    return Ending(memory_was_short=bool(short), why=why, evidence=evidence, look_at=look_at)


def _short(report: TraceReport) -> str:
    """How short memory was at the end, in words; empty when it was not."""
    if not report.last_points:
        return ""
    last = report.last_points[-1]
    left_mib = last.limit_mib - last.used_mib
    if last.limit_mib > 0 and left_mib < SHORT_SHARE * last.limit_mib:
        return f"{format_mib(left_mib)} of {format_mib(last.limit_mib)} left"
    before = report.last_points[max(0, len(report.last_points) - 4)]
    if last.at_s > before.at_s:
        pace = (last.used_mib - before.used_mib) / (last.at_s - before.at_s)
        if pace > 0 and left_mib / pace < FAST_FILL_S:
            return f"{format_mib(left_mib)} left, and {pace:.0f} MiB/s growing"
    return ""


def _last_words(report: TraceReport) -> list[str]:
    lines = [f"the last line that could be read is of {format_clock(report.last_at_s)}"]
    if report.last_points:
        last = report.last_points[-1]
        lines.append(
            f"at {format_clock(last.at_s)}: {format_mib(last.used_mib)} of {format_mib(last.limit_mib)} in use, "
            f"{format_mib(last.ours_mib)} of it by {last.running} running phases, {last.waiting} waiting"
        )
    return lines
