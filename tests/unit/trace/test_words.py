"""Events in words: on the screen, in reports, as marks of pictures."""

from __future__ import annotations

import pytest

from builddoctor.core.events import (
    Admit,
    BuildEvent,
    Continue,
    ContinueReason,
    GiveUp,
    Hold,
    HoldReason,
    Kill,
    KillReason,
    Note,
    NoteLevel,
    Pause,
    ReleaseUnit,
    Rise,
    Stall,
    Status,
    UngatedProcess,
    Warn,
    WarningKind,
)
from builddoctor.core.verdict import Verdict
from builddoctor.gates import gate_program
from builddoctor.trace import words
from builddoctor.trace.state import BuildState, Happening
from support import trace_events as tr
from unit.builders import header

RISE = Rise(held_mib=9000, expected_mib=750, rose_s=31)
STALL = Stall(over_s=10, full_share=0.4)
PROCESS = UngatedProcess(pid=17, start_ticks=5, name="cc1plus", rss_mib=900, cpu_s=3)
ASKED = tr.phase_asked(1, 1, "u1", "cicc", "cicc", "src/gelu.cu", arch="sm_90", estimate_mib=100, reserve_mib=150)


def seen(*parts: tr.Events, **fields: object) -> Happening:
    """What the last of these events comes to."""
    state = BuildState()
    told = [state.apply(event) for event in tr.events(header(**fields), ASKED, tr.admitted(2, 1, 150), *parts)]
    assert told[-1] is not None
    return told[-1]


@pytest.mark.parametrize(
    ("kill", "why"),
    [
        (
            Kill(phase_id=1, reason=KillReason.HEADROOM, headroom_mib=90, growth_mib_s=200),
            "90 MiB left and 200 MiB/s growing",
        ),
        (
            Kill(phase_id=1, reason=KillReason.UNGATED, headroom_mib=9),
            "9 MiB left beside processes that no gate caught, which cannot be redone",
        ),
        (
            Kill(phase_id=1, reason=KillReason.OTHER_BUILD, headroom_mib=9),
            "9 MiB left beside another build, which goes on",
        ),
        (
            Kill(phase_id=1, reason=KillReason.STALL, stall=STALL),
            "all processes waited for memory 40 % of the last 10 s",
        ),
        (
            Kill(phase_id=1, reason=KillReason.STALL, stall=Stall(over_s=60, refault_mib_s=25)),
            "25 MiB/s are read in again at the limit, and no phase ended for 60 s",
        ),
        (
            Kill(phase_id=1, reason=KillReason.RUNAWAY, rise=RISE),
            "it held 9000 MiB, 12 times what was expected, and rose for 31 s without a rest",
        ),
        (Kill(phase_id=1, reason=KillReason.HEADROOM, said="as it was said"), "as it was said"),
    ],
)
def test_why_a_phase_is_ended(kill: Kill, why: str) -> None:
    """In figures; as it was said where a trace has words alone."""
    assert words.kill_reason(kill) == why
    assert words.told(seen(kill)) == ("kill", f"builddoctor ends cicc sm_90 of src/gelu.cu: {why}")


def test_the_screen_says_that_a_runaway_is_ended() -> None:
    """Other ends are told by what becomes of the phase."""
    row = words.event_row(seen(Kill(at_s=3, phase_id=1, reason=KillReason.RUNAWAY, rise=RISE)))
    assert row is not None
    assert row.text == (
        "runaway: ends cicc of src/gelu.cu, which grows without end: it held 9000 MiB, 12 times what was expected, "
        "and rose for 31 s without a rest"
    )
    assert (row.at_s, row.warning) == (3, True)
    assert words.event_row(seen(Kill(phase_id=1, reason=KillReason.HEADROOM))) is None


@pytest.mark.parametrize(
    ("outcome", "cause", "by"),
    [
        ("killed-by-us", "", "builddoctor, for want of memory"),
        ("killed-by-kernel", "cgroup", "the kernel"),
        ("killed-outside", "outside", "something else"),
    ],
)
def test_a_redo_says_who_ended_the_run(outcome: str, cause: str, by: str) -> None:
    """At how much, and what is lost by it."""
    ended = tr.phase_ended(5, 1, outcome, peak_mib=1008, cause=cause)
    told = seen(ended, tr.requeued(5, 1, 1500, solo=True, lost_s=4, peak_mib=1008))
    row = words.event_row(told)
    assert row is not None
    assert row.text == f"redoes cicc sm_90 of src/gelu.cu: ended by {by} at 1008 MiB; 4 s lost, now alone"
    assert words.told(told) == (
        "requeue",
        "cicc sm_90 of src/gelu.cu is run again, alone, with 1.5 GiB; 4 s lost",
    )


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (GiveUp(phase_id=1, verdict=Verdict.TOO_BIG, peak_mib=900), "killed at 900 MiB while it ran alone"),
        (GiveUp(phase_id=1, verdict=Verdict.EXTERNAL_KILL), "killed again from outside"),
        (
            GiveUp(phase_id=1, verdict=Verdict.NOT_REDOABLE),
            "killed, and it reads or writes a pipe: it cannot be run again",
        ),
        (
            GiveUp(
                phase_id=1,
                verdict=Verdict.RUNAWAY,
                rise=Rise(held_mib=50, expected_mib=0, rose_s=1, to_its_end=True),
            ),
            "it held 50 MiB, 50 times what was expected, and rose without a rest up to its end",
        ),
    ],
)
def test_what_cannot_be_saved(event: GiveUp, why: str) -> None:
    """With the reason, on the screen, in the report, in the picture."""
    told, name = seen(event), "cicc sm_90 of src/gelu.cu"
    row = words.event_row(told)
    assert row is not None
    assert row.text == f"gives up on {name}: {why}"
    assert words.told(told) == ("give-up", f"{name} cannot be saved ({event.verdict.value}): {why}")
    assert words.mark(told) == ("give-up", f"gives up on {name}: {why}")


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (
            Warn(kind=WarningKind.STALLED, stall=STALL),
            "the build hangs for memory: all processes waited for memory 40 % of the last 10 s; nothing new starts",
        ),
        (
            Warn(kind=WarningKind.OVERDRAWN, phase_id=1, size_mib=4096),
            "cicc of src/gelu.cu alone holds more than the limit (4096 MiB): it goes on, by itself",
        ),
        (
            Warn(kind=WarningKind.THRIFT, phase_id=1, size_mib=900),
            (
                f"tries cicc sm_90 of src/gelu.cu with less memory: killed at 900 MiB alone; cicc gets {words.THRIFT}, "
                "which leaves its output as it is (`--auto-remedy`)"
            ),
        ),
        (
            Warn(kind=WarningKind.FIRST_FAILURE, units=23),
            (
                "a unit failed: the build ends after what runs; 23 units that ninja has started are not built "
                "(`ninja -k 0`, or --keep-going, goes on)"
            ),
        ),
        (
            Continue(process=PROCESS, stopped_s=5, reason=ContinueReason.MEMORY_BACK),
            "continues cc1plus (process 17) after 5 s: memory is back",
        ),
        (Note(text="careful", level=NoteLevel.WARNING), "careful"),
    ],
)
def test_what_a_person_should_know(event: BuildEvent, text: str) -> None:
    """The same on the screen and in the report."""
    told = seen(event)
    row = words.event_row(told)
    assert row is not None
    said = words.told(told)
    assert said is not None
    assert row.text == said[1] == text
    assert row.warning == (said[0] == "warning")


def test_a_thrifty_start_is_weighed_against_what_there_is() -> None:
    """Before its first run it is what is expected."""
    row = words.event_row(seen(Warn(kind=WarningKind.THRIFT, phase_id=1, size_mib=3000, budget_mib=2048)))
    assert row is not None
    assert "with less memory: 2.9 GiB are expected, 2.0 GiB are there; cicc gets" in row.text


def test_what_a_thrifty_compiler_gets_is_what_gates_give_it() -> None:
    """The words are no second opinion."""
    assert " ".join(gate_program.THRIFT) == words.THRIFT


def test_the_first_pause_says_why() -> None:
    """In a staged build there are no gates that could have held it back."""
    pause = Pause(process=PROCESS, free_mib=40)
    first, second = words.event_row(seen(pause)), words.event_row(seen(pause, pause))
    staged = words.event_row(seen(pause, staged=True))
    assert first is not None
    assert second is not None
    assert staged is not None
    assert second.text == "stops cc1plus (process 17) for a while at 900 MiB: 40 MiB free"
    assert first.text == f"{second.text}; {words.NO_GATE}"
    assert staged.text == f"{second.text}; {words.STAGED}"


@pytest.mark.parametrize("reason", HoldReason)
def test_a_hold_is_told_and_not_shown(reason: HoldReason) -> None:
    """The board has a row of its own for what waits."""
    told = seen(Hold(phase_id=1, needs_mib=3686, free_mib=500, reason=reason))
    said = words.told(told)
    assert said is not None
    assert said[0] == "hold"
    assert said[1].startswith("waits: cicc sm_90 of src/gelu.cu needs 3.6 GiB, 500 MiB free (")
    assert words.event_row(told) is None
    assert words.mark(told) == ("wait", said[1])


def test_a_kill_is_marked_with_who_did_it() -> None:
    """And with builddoctor's reason."""
    kill = Kill(phase_id=1, reason=KillReason.HEADROOM, headroom_mib=90, growth_mib_s=200)
    ours = words.mark(seen(kill, tr.phase_ended(5, 1, "killed-by-us", peak_mib=400)))
    theirs = words.mark(seen(tr.phase_ended(5, 1, "killed-by-kernel", peak_mib=400)))
    name = "cicc sm_90 of src/gelu.cu at 400 MiB"
    assert ours == ("ended", f"builddoctor ended {name}: 90 MiB left and 200 MiB/s growing")
    assert theirs == ("kill", f"the kernel killed {name}")


def decided(*parts: tr.Events) -> list[str]:
    """What ``-v`` adds to the usual lines."""
    state = BuildState(rows=False)
    decisions = words.Decisions(state)
    lines = []
    for event in tr.events(header(limited_by="memory.max", limit_mib=4096, budget_mib=3072), *parts):
        state.apply(event)
        if (row := decisions.row(event)) is not None:
            lines.append(row.text)
    return lines


def test_every_decision_on_a_compiler_has_a_line() -> None:
    """In words, with the figures that it was decided upon."""
    admit = Admit(phase_id=1, estimate=tr.estimate_of(2048, 3072, "recipe"), waited_s=12.4, running=2)
    told = decided(
        tr.unit_began(1, "u1", "src/gelu.cu", held=True),
        ReleaseUnit(unit_id="u1", threads=2, waited_s=3),
        ASKED,
        Hold(phase_id=1, needs_mib=3072, free_mib=500, reason=HoldReason.MEMORY),
        admit,
        Kill(phase_id=1, reason=KillReason.HEADROOM, headroom_mib=90, growth_mib_s=200),
        Admit(phase_id=1, estimate=tr.estimate_of(2048, 3072), alone=True, running=1),
    )
    name = "cicc sm_90 of src/gelu.cu"
    assert told == [
        "memory.max binds: 4.0 GiB, of which compilers may take 3.0 GiB",
        "opens src/gelu.cu with --threads 2 after 3 s",
        f"waits: {name} needs 3.0 GiB, 500 MiB free (memory)",
        f"starts {name} after 12 s: 2.0 GiB expected (recipe), 3.0 GiB set aside; 2 run",
        f"ends {name}: 90 MiB left and 200 MiB/s growing",
        f"starts {name} alone: 2.0 GiB expected (prior), 3.0 GiB set aside; 1 run",
    ]


def test_another_limit_is_told_when_it_begins_to_bind() -> None:
    """And when the first does again; not once a second."""

    def status(limited_by: str) -> Status:
        figures = {"headroom_mib": 100.0, "ours_mib": 0.0, "running": 0, "waiting": 0, "open_units": 0}
        return Status(budget_mib=1024, limit_mib=2048, limited_by=limited_by, **figures)

    told = decided(*map(status, ("", "memory.max", "MemAvailable", "MemAvailable", "")))
    assert [line.partition(" binds")[0] for line in told] == ["memory.max", "MemAvailable", "memory.max"]
    assert told[1] == "MemAvailable binds: 2.0 GiB, of which compilers may take 1.0 GiB"
