"""What is said of a build that is looked at from outside."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builddoctor.attach.compilers import Running
from builddoctor.attach.outlook import IDLE_S, Outlook, Surroundings, outlook
from builddoctor.core.phase import Phase, PhaseKind

NOW_S = 1000.0
CALM = Surroundings(
    headroom_mib=8000.0,
    limit_mib=16384.0,
    limited_by="the cgroup",
    reserve_mib=600.0,
    growth_mib_s=0.0,
    stalled_share=0.0,
    kernel_kills=0,
    compilers_killed=0,
    others_idle_s=0.0,
    waits_in="sh (pid 7)",
    guarded=False,
)


def running(*, began_s: float = NOW_S - 30, worked_s: float = NOW_S, cpu_s: float = 29.0, **other: Any) -> Running:
    return Running(
        phase=Phase(phase_id=1, unit_id="u", kind=PhaseKind.CICC, source="src/gelu.cu", tool="cicc"),
        pid=other.pop("pid", 42),
        start_ticks=1,
        name="cicc",
        state=other.pop("state", "R"),
        began_s=began_s,
        rss_mib=500.0,
        peak_mib=500.0,
        cpu_s=cpu_s,
        worked_s=worked_s,
    )


def said(*compilers: Running, paused: tuple[int, ...] = (), **around: Any) -> Outlook:
    return outlook(compilers, NOW_S, msgspec.structs.replace(CALM, **around), paused=frozenset(paused))


def test_a_compiler_of_many_minutes_does_not_hang() -> None:
    """What people ask after an hour of silence: on which file, and does it work?"""
    told = said(running(began_s=NOW_S - 842, cpu_s=840), running())
    assert told.verdict == "it does not hang: cicc has worked 14:02 on src/gelu.cu (100% of a core)"
    assert not told.hangs


def test_short_compilers_are_counted() -> None:
    assert said(running(), running()).verdict == "it works: 2 compilers at work"
    assert said().verdict == "it works, but nothing compiles just now"


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("S", "it seems to hang: nothing of it has taken processor time for 1:30: it waits in sh (pid 7)"),
        ("T", "cicc (pid 42) was stopped 1:30 ago, not by us: `kill -CONT 42`"),
        ("D", "cicc (pid 42) has waited for a disk or for memory for 1:30"),
    ],
)
def test_what_it_waits_in_is_said(state: str, words: str) -> None:
    told = said(running(worked_s=NOW_S - 90, state=state), others_idle_s=90.0)
    assert told.verdict == words
    assert told.hangs


def test_what_we_have_stopped_does_not_hang() -> None:
    """Nor does a build whose other processes work."""
    assert not said(running(worked_s=NOW_S - 90, state="T"), others_idle_s=90.0, paused=(42,)).hangs
    assert not said(running(worked_s=NOW_S - 90), others_idle_s=0.0).hangs


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("S", "cicc (pid 42) has taken no processor time for 1:30; what does is no compiler"),
        ("T", "cicc (pid 42) was stopped 1:30 ago, not by us: `kill -CONT 42`"),
        ("D", "cicc (pid 42) has waited for a disk or for memory for 1:30"),
    ],
)
def test_a_compiler_that_waits_beside_a_program_that_works_is_said(state: str, words: str) -> None:
    """pip's spinner turns all the same."""
    assert said(running(worked_s=NOW_S - 90, state=state), others_idle_s=0.0).verdict == words
    both = said(running(worked_s=NOW_S - 90, state=state), running(pid=43), others_idle_s=0.0)
    assert both.verdict == "it works: 1 compiler at work"


def test_where_the_guard_has_stopped_all_that_is_said() -> None:
    told = said(running(worked_s=NOW_S - 90, state="T"), others_idle_s=90.0, paused=(42,))
    assert told.verdict == "--guard has stopped 1 compiler until there is memory"


def test_a_kill_beside_the_build_is_not_put_down_to_it() -> None:
    """A limit may have more in it than one build."""
    assert said(kernel_kills=1).threat == "the kernel has ended 1 process in its memory limit, none that was seen"


def test_memory_that_will_be_full_is_a_threat() -> None:
    """With when, at this rate, and what can be done; one compiler alone cannot be helped by stopping it."""
    two = (running(), running(pid=43))
    assert said(*two).threat == ""
    told = said(*two, headroom_mib=2048.0, growth_mib_s=512.0).threat
    assert told.startswith("memory: 2.0 GiB left of 16.0 GiB, full in about 0:04 at this rate; ")
    assert told.endswith("--guard stops compilers for a while before that")
    assert "--guard" not in said(*two, headroom_mib=100.0, guarded=True).threat
    assert said(running(), headroom_mib=100.0).threat == "memory: 100 MiB left of 16.0 GiB"


def test_a_kill_and_starving_are_said() -> None:
    assert said(kernel_kills=2, compilers_killed=2).threat.startswith(
        "the kernel has ended 2 compilers for want of memory"
    )
    assert said(running(), stalled_share=0.45).verdict.startswith("it starves: all of it waited for memory in 45%")


@given(
    began=st.floats(0, NOW_S),
    worked=st.floats(0, NOW_S),
    idle=st.floats(0, NOW_S),
    headroom=st.floats(-100, 1e6),
    growth=st.floats(-1e4, 1e4),
    stalled=st.none() | st.floats(0, 1),
    state=st.sampled_from("RSDTtZ"),
)
def test_there_is_a_verdict_for_anything(
    began: float, worked: float, idle: float, headroom: float, growth: float, stalled: float | None, state: str
) -> None:
    """One line; it hangs only where nothing took processor time for long."""
    told = said(
        running(began_s=began, worked_s=worked, state=state),
        others_idle_s=idle,
        headroom_mib=headroom,
        growth_mib_s=growth,
        stalled_share=stalled,
    )
    assert told.verdict
    assert "\n" not in told.verdict + told.threat
    assert told.hangs == (min(idle, NOW_S - worked) >= IDLE_S)
