"""What held a build back, and what twice the cores or memory could bring."""

from __future__ import annotations

from builddoctor.core.events import BuildEnded
from builddoctor.trace.held_back import HeldBack, held_back
from builddoctor.trace.report import TraceReport
from support import trace_events as tr
from unit.builders import summary
from unit.small_traces import admitted, asked, ended, read


def phase(
    number: int, asks_s: float, starts_s: float, ends_s: float, *, unit: int = 0, cpu_s: float = 0.0
) -> list[tr.Events]:
    """One phase of unit ``unit`` (0: of a unit of its own)."""
    wall_s = ends_s - starts_s
    return [
        asked(number, asks_s, unit_id=f"u{unit or number}"),
        admitted(number, starts_s),
        ended(number, ends_s, wall_s=wall_s, cpu_s=cpu_s or wall_s),
    ]


def built(*phases: list[tr.Events], cores: int = 2, wall_s: float = 20.0) -> TraceReport:
    units = [tr.unit_began(at_s=0.0, unit_id=f"u{number}", source=f"/src/{number}.cu") for number in range(1, 5)]
    events = sorted(tr.events(*phases), key=lambda each: each.at_s)
    return read(*units, *events, BuildEnded(at_s=wall_s, summary=summary(wall_s=wall_s)), cores=cores)


def test_each_second_is_put_down_to_one_cause() -> None:
    """Both cores have a phase until 4; until 10 one waits for memory; then one runs and nothing asks, until 16."""
    held = held_back(built(phase(1, 0.0, 0.0, 10.0), phase(2, 0.0, 0.0, 4.0), phase(3, 1.0, 10.0, 16.0)))
    assert held is not None
    assert (held.cores_s, held.memory_s, held.neither_s) == (4.0, 6.0, 10.0)


def test_what_more_would_bring_is_no_less_than_the_work_or_the_longest_unit() -> None:
    """30 s of work: 15 on two cores, 7.5 on four, but for a unit whose phases take 12."""
    held = held_back(
        built(
            phase(1, 0.0, 0.0, 5.0, unit=1),
            phase(2, 5.0, 5.0, 12.0, unit=1),
            phase(3, 0.0, 0.0, 18.0, unit=2, cpu_s=9.0),
            phase(4, 0.0, 0.0, 9.0, unit=3),
        )
    )
    assert held == HeldBack(
        cores_s=12.0,
        memory_s=0.0,
        neither_s=8.0,
        longest_unit="/src/1.cu",
        longest_unit_s=12.0,
        twice_the_cores_s=12.0,
        twice_the_memory_s=15.0,
    )


def test_only_the_run_that_did_the_work_counts_as_work() -> None:
    """The one before it was ended, and held a core all the same; between them it waited."""
    run_twice = [
        asked(1, 0.0),
        admitted(1, 0.0),
        ended(1, 6.0, "killed-by-us", wall_s=6.0, cpu_s=6.0),
        tr.requeued(at_s=6.0, phase_id=1, reserve_mib=1350, solo=True, lost_s=6.0),
        admitted(1, 9.0),
        ended(1, 17.0, wall_s=8.0, cpu_s=8.0),
    ]
    held = held_back(built(run_twice, cores=1))
    assert held is not None
    assert (held.cores_s, held.memory_s, held.neither_s) == (14.0, 3.0, 3.0)
    assert (held.longest_unit_s, held.twice_the_cores_s) == (8.0, 8.0)


def test_nothing_is_said_of_a_build_without_an_end_or_a_phase() -> None:
    """There is no time to put down to anything."""
    assert held_back(read(asked(1), admitted(1), ended(1, 6.0))) is None
    assert held_back(built()) is None
