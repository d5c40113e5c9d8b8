"""What the scheduler is told before the first event: places, the first budget, and thresholds of its watches.

All of it is in a trace's header, so that a replay decides as the build did. Times are seconds, sizes MiB.
"""

from __future__ import annotations

import msgspec

from builddoctor.core.units import Mib, Seconds, Whole


class RunawayRules(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What makes a runaway."""

    estimate_factor: float = 3.0
    """a suspect holds this many times what was expected of it at first"""
    floor_mib: float = 16384.0
    front_end_floor_mib: float = 8192.0
    """the same for ``cudafe++``"""
    floor_share: float = 0.5
    """and 16 GiB, or this share of the budget where that is less: small machines see runaways too"""
    growth_factor: float = 1.5
    """to be ended, it must hold half as much again, whatever the budget: a 20 GiB ``cicc`` is big, but it ends"""
    rising_s: float = 60.0
    """and rise for this long since it became a suspect"""
    front_end_rising_s: float = 30.0
    """the same for ``cudafe++``"""
    rest_s: float = 10.0
    """no growth for this long is a rest, and ends the rise"""
    step_mib: float = 16.0
    step_share: float = 0.005
    """growth below this does not count: 8 GiB that become 8.02 GiB in ten seconds rest"""
    fall_share: float = 0.9
    """a phase that gives back a tenth of its memory does not grow without end"""
    cpu_share: float = 0.9
    """processor time since it became a suspect, as a share of one core"""
    company_cpu_share: float = 0.6
    """the same beside other phases, which take their part of the cores"""
    strange_s: float = 10.0
    """a suspect other than a front end is strange when it has risen for this long since it became one: compilers pass
    three times what was expected of them on their way to a peak that was not known"""
    killed_rising_s: float = 30.0
    """a phase that the kernel ended must have risen for this long without a rest"""
    front_end_killed_factor: float = 8.0
    """or, of a front end, have held this many times what was expected: then a small limit may be reached sooner"""
    dying_s: float = 10.0
    """up to its end: a killed process gives its memory back before its end is heard of, 80 ms for each GiB"""


class ThrashRules(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What makes thrashing."""

    full_share: float = 0.3
    stall_s: float = 10.0
    """all tasks stalled for this share of this long"""
    low_headroom_share: float = 0.2
    """pressure counts with less headroom than this share of the limit, or with refaults at the limit"""
    plenty_headroom_share: float = 0.5
    """pressure with more headroom than this, and without refaults, is not believed again"""
    refault_mib_s: float = 10.0
    """memory read in again: what a slow disk can do"""
    at_limit_share: float = 0.95
    idle_s: float = 60.0
    """refaults count when the limit has been reached, and no phase has ended, for this long"""
    high_headroom_share: float = 0.03
    """at a limit: less is left than this share of it"""
    high_growth_share: float = 0.02
    """and in ``stall_s`` the phases grew by less than this share of it"""
    high_events: int = 3
    """while the kernel held processes back at least this often"""
    high_some_share: float = 0.2
    """and some process waited for memory for this share of the time"""
    standstill_headroom_share: float = 0.01
    """nothing of use is left: less than this share of the limit"""
    standstill_growth_share: float = 0.01
    """and the only phase grew by less than this share of itself"""
    standstill_s: float = 120.0
    """for this long, with refaults as above"""
    calm_s: float = 30.0
    """after something ended, nothing new starts, and nothing else is ended, for this long: more than ``stall_s``"""


class SchedulerSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All of it."""

    slots: Whole
    """phases that run at once, at most"""
    budget_mib: Mib
    """until memory was looked at"""
    cores: Whole | None = None
    """None: as many as slots"""
    most_open: Whole | None = None
    """units that are open at once, at most; None: ``slots + 1``"""
    most_threads: Whole | None = None
    """nvcc's ``--threads``, at most; None for any number"""
    until_s: Seconds | None = None
    """the build has to end by then, on the clock of its events; None: whenever it does"""
    thrift: bool = False
    """a host compiler that does not fit alone may be started with earlier garbage collection (``--auto-remedy``)"""
    runaway: RunawayRules = RunawayRules()
    thrash: ThrashRules = ThrashRules()
