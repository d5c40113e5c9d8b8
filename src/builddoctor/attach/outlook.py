"""What a running build's compilers say of it: whether it works, hangs or starves, and what threatens it. Pure.

Covers: one sentence each, from what was seen over the last seconds.
Does *not* cover: looking (``attach.compilers``), or why a build failed (``diagnose``).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from builddoctor.attach.compilers import Running
from builddoctor.core.units import counted, format_clock, format_mib

IDLE_S = 20.0
"""No processor time for this long: a compiler works, or it waits for something."""
LONG_S = 60.0
"""From here on a person asks whether it hangs."""
STALLED_SHARE = 0.3
"""Of the last seconds all processes waited for memory (``scheduler.thrashing``)."""
SOON_S = 10.0
GROWTH_OVER_S = 5.0


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What is around the compilers."""

    headroom_mib: float
    limit_mib: float
    limited_by: str
    reserve_mib: float
    growth_mib_s: float
    """of all compilers together, over the last seconds"""
    stalled_share: float | None
    """of the last seconds in which all processes waited for memory; None where the kernel does not say"""
    kernel_kills: int
    """in its memory limit, since the build was attached to"""
    compilers_killed: int
    """compilers that went with one of these"""
    others_idle_s: float
    """for how long nothing of the build took processor time"""
    waits_in: str
    """what it waits in then: a process and its pid"""
    guarded: bool


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """In words, for the board."""

    verdict: str
    threat: str = ""
    hangs: bool = False


def outlook(running: Sequence[Running], now_s: float, around: Surroundings, *, paused: frozenset[int]) -> Outlook:
    """``paused``: pids that are stopped by us."""
    return Outlook(
        verdict=_verdict(running, now_s, around, paused),
        threat=_threat(running, around),
        hangs=_hangs(running, now_s, around, paused),
    )


def _hangs(running: Sequence[Running], now_s: float, around: Surroundings, paused: frozenset[int]) -> bool:
    ours = [each for each in running if each.pid not in paused]
    idle_s = min((now_s - each.worked_s for each in ours), default=around.others_idle_s)
    return min(idle_s, around.others_idle_s) >= IDLE_S and not paused


def _verdict(running: Sequence[Running], now_s: float, around: Surroundings, paused: frozenset[int]) -> str:
    if _hangs(running, now_s, around, paused):
        return _stuck(running, now_s, around)
    if around.stalled_share is not None and around.stalled_share >= STALLED_SHARE:
        return f"it starves: all of it waited for memory in {around.stalled_share:.0%} of the last seconds"
    ours = [each for each in running if each.pid not in paused]
    at_work = [each for each in ours if now_s - each.worked_s < IDLE_S]
    if not at_work and ours:
        idle = max(ours, key=lambda each: each.worked_s)
        return (
            _idle(ours, now_s)
            or f"{_named(idle)} has taken no processor time for {_for(idle, now_s)}; what does is no compiler"
        )
    if not at_work and paused:
        return f"--guard has stopped {counted(len(paused), 'compiler')} until there is memory"
    if not at_work:
        return "it works, but nothing compiles just now"
    longest = min(at_work, key=lambda each: each.began_s)
    took_s = now_s - longest.began_s
    if took_s < LONG_S:
        return f"it works: {counted(len(at_work), 'compiler')} at work"
    share = longest.cpu_s / took_s if took_s > 0 else 0.0
    on = f"{format_clock(took_s)} on {longest.phase.source} ({share:.0%} of a core)"
    return f"it does not hang: {longest.name} has worked {on}"


def _stuck(running: Sequence[Running], now_s: float, around: Surroundings) -> str:
    for_s = format_clock(around.others_idle_s)
    where = f": it waits in {around.waits_in}" if around.waits_in else ""
    return _idle(running, now_s) or f"it seems to hang: nothing of it has taken processor time for {for_s}{where}"


def _idle(running: Sequence[Running], now_s: float) -> str:
    """Of compilers that take no processor time, what one of them waits for, where its state says so."""
    stopped = next((each for each in running if each.state == "T"), None)
    if stopped is not None:
        return f"{_named(stopped)} was stopped {_for(stopped, now_s)} ago, not by us: `kill -CONT {stopped.pid}`"
    disk = next((each for each in running if each.state == "D"), None)
    return f"{_named(disk)} has waited for a disk or for memory for {_for(disk, now_s)}" if disk is not None else ""


def _named(each: Running) -> str:
    return f"{each.name} (pid {each.pid})"


def _for(each: Running, now_s: float) -> str:
    return format_clock(now_s - each.worked_s)


def _threat(running: Sequence[Running], around: Surroundings) -> str:
    if around.compilers_killed:
        kills = f"{counted(around.compilers_killed, 'compiler')}" if around.compilers_killed > 1 else "a compiler"
        return f"the kernel has ended {kills} for want of memory: this build fails, or has failed"
    if around.kernel_kills:
        return f"the kernel has ended {counted(around.kernel_kills, 'process')} in its memory limit, none that was seen"
    soon_s = around.headroom_mib / around.growth_mib_s if around.growth_mib_s > 0 else float("inf")
    short = around.headroom_mib < around.reserve_mib
    if not short and soon_s > SOON_S:
        return ""
    left = f"{format_mib(max(0.0, around.headroom_mib))} left of {format_mib(around.limit_mib)}"
    at = f", full in about {format_clock(soon_s)} at this rate" if soon_s <= SOON_S else ""
    way = "" if around.guarded or len(running) < 2 else "; --guard stops compilers for a while before that"
    return f"memory: {left}{at}{way}"
