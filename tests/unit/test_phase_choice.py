"""Which phase is meant, and the command that is shown for it."""

from __future__ import annotations

import msgspec
import pytest

from builddoctor.diagnose.repro_command import repro_command
from builddoctor.errors import UsageError
from builddoctor.trace.analysis import digest
from builddoctor.trace.phase_choice import choose_phase
from builddoctor.trace.records import AnyRecord, End, GaveUp, Kept, PhaseQueued, UnitCommand
from builddoctor.trace.report import TraceReport
from unit.builders import header, summary
from unit.test_trace_report import admitted, asked, ended, unit


def report(*more: AnyRecord) -> TraceReport:
    """Unit u1 (/src/a.cu) with cudafe++ (1), cicc (2) and a larger cicc (3); u2 (/src/b.cu) with ptxas (4)."""
    lines: list[AnyRecord] = [header(), unit(), unit(unit_id="u2", source="/src/b.cu", output="b.o")]
    for number, (unit_id, kind) in enumerate([("u1", "cudafe++"), ("u1", "cicc"), ("u1", "cicc"), ("u2", "ptxas")], 1):
        lines += [ask(number, unit_id, kind), admitted(number, float(number))]
        lines.append(ended(number, number + 0.5, peak_mib=100.0 * number))
    return digest([*lines, *more])


def ask(number: int, unit_id: str, tool: str) -> PhaseQueued:
    source = {"u1": "/src/a.cu", "u2": "/src/b.cu"}[unit_id]
    return msgspec.structs.replace(asked(number, float(number), unit_id, tool), source=source, tool=tool, arch="")


def summed_up(trace: str) -> End:
    return End(at_s=20.0, summary=summary(trace=trace))


def command(unit_id: str = "u1") -> UnitCommand:
    return UnitCommand(at_s=0.0, unit_id=unit_id, tool="nvcc", cwd="/src", argv=["-c", "a.cu"])


def kept(phase_id: int) -> Kept:
    return Kept(at_s=9.0, phase_id=phase_id, tool="/cuda/cicc", argv=["a.ii"], cwd="/src", files=[])


@pytest.mark.parametrize("wanted", ["1", "/src/a.cu:cudafe++", "a.cu:cudafe++", "a:cudafe++"])
def test_a_phase_is_named_by_number_or_by_unit_and_program(wanted: str) -> None:
    """A source by its path, its name, or its name without the suffix."""
    assert choose_phase(report(), wanted).phase_id == 1


def test_of_several_the_largest_is_meant() -> None:
    """``a.cu`` alone, or a program that ran twice for it."""
    assert choose_phase(report(), "a.cu").phase_id == 3
    assert choose_phase(report(), "a.cu:cicc").phase_id == 3
    assert choose_phase(report(), "b").phase_id == 4


@pytest.mark.parametrize("wanted", ["99", "c.cu", "a.cu:nvlink", "a.cu:cicc:sm_75", ":", "a.cu:"])
def test_what_does_not_name_a_phase_is_said(wanted: str) -> None:
    """With the forms that do; an empty program means any."""
    if wanted == "a.cu:":
        assert choose_phase(report(), wanted).phase_id
        return
    with pytest.raises(UsageError) as caught:
        choose_phase(report(), wanted)
    assert "builddoctor trace units" in caught.value.hint


def test_without_a_word_it_is_the_one_that_died() -> None:
    """Given up before failed by itself; in a build in which none died it has to be said."""
    given_up = GaveUp(at_s=8.0, phase_id=3, verdict="too-big", reason="killed while it ran alone")
    failed = [ask(5, "u2", "ptxas"), admitted(5, 7.0), ended(5, 7.5, outcome="failed")]
    assert choose_phase(report(*failed), "").phase_id == 5
    assert choose_phase(report(*failed, given_up), "").phase_id == 3
    with pytest.raises(UsageError, match="no phase of this build died"):
        choose_phase(report(), "")


def test_the_command_is_shown_where_something_can_come_of_it() -> None:
    """With an input that was kept, or the unit's command; otherwise nothing is promised."""
    plain = report()
    phases = {phase.phase_id: phase for phase in plain.phases}
    assert repro_command(plain, phases[1]) == ""
    name = plain.header.trace_id
    assert repro_command(report(command()), phases[1]) == f"builddoctor trace repro {name} 1"
    assert repro_command(report(command()), phases[4]) == ""
    assert repro_command(report(kept(4)), phases[4]) == f"builddoctor trace repro {name} 4"


def test_a_trace_elsewhere_is_named_by_its_file() -> None:
    """An id is looked up in builddoctor's own folder alone; a file's name is quoted."""
    told = report(command(), summed_up(trace="/my builds/it's.jsonl"))
    assert repro_command(told, told.phases[0]) == """builddoctor trace repro '/my builds/it'"'"'s.jsonl' 1"""
    name = told.header.trace_id
    told = report(command(), summed_up(trace=f"/home/me/traces/20260101-{name}.jsonl"))
    assert repro_command(told, told.phases[0]) == f"builddoctor trace repro {name} 1"
