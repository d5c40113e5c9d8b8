"""A recorded build as files for stand-ins."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from builddoctor.core.events import PhaseStarted
from builddoctor.core.phase import PhaseKind
from builddoctor.simulate.workload import PhaseWork, UnitWork, Workload
from builddoctor.toolchain.command_lines import nvcc_unit, parse_sizes, phase_facts
from support import trace_events as tr
from support.magnified import Scale
from support.measured_builds import from_trace
from support.replay_files import instructions, replayed
from unit.builders import header

HALF = Scale(memory=0.5, time=0.1)


def phase(kind: PhaseKind = PhaseKind.CICC, **changes: object) -> PhaseWork:
    given = {"arch": "sm_100", "input_mib": 4.0, "peak_mib": 100.0, "wall_s": 20.0, "tool": kind.value}
    return PhaseWork(kind=kind, **{**given, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("growth", "curve", "lines"),
    [
        ("ramp", (), ["to 2000 51200"]),
        ("flat", (), ["to 0 51200", "to 2000 51200"]),
        ("ramp", ((0.25, 0.5), (0.75, 0.1)), ["to 500 25600", "to 1500 5120", "to 2000 5120"]),
    ],
)
def test_a_stand_in_holds_what_was_recorded_at_the_scale(growth, curve, lines) -> None:
    """100 MiB over 20 s, at a half and a tenth: 50 MiB over 2 s, by the recorded curve where there is one."""
    assert instructions(phase(curve=curve), HALF, growth=growth).splitlines() == lines
    assert instructions(phase(curve=curve), HALF, growth=growth, busy=True).splitlines() == ["busy", *lines]


def test_the_supervisor_reads_from_a_stand_ins_command_line_what_was_recorded() -> None:
    """Kind, arch and size of the input of each phase, in their order, below the unit's nvcc."""
    kinds = [PhaseKind.PREPROCESS, PhaseKind.CUDAFE, PhaseKind.CICC, PhaseKind.PTXAS, PhaseKind.HOST]
    unit = UnitWork(
        name="a/b c$.cu", source="a/b c$.cu", archs=("sm_100",), phases=tuple(phase(kind) for kind in kinds)
    )
    made = replayed(Workload(name="w", units=(unit,)), HALF)
    sizes = {each.name: each.size_bytes for each in made.inputs}
    (source,) = [each for each in made.inputs if each.name.startswith("u0")]
    seen = []
    for line in source.text.splitlines():
        program, *argv = line.split()
        given = ",".join(f"{place}={sizes[word]}" for place, word in enumerate(argv) if word in sizes)
        facts = phase_facts(program, argv, parse_sizes(given))
        seen.append((facts.kind, facts.arch, facts.input_mib))
    assert [kind for kind, _, _ in seen] == kinds
    assert [arch for _, arch, _ in seen] == ["", "", "sm_100", "sm_100", ""]
    assert {size_mib for _, _, size_mib in seen} == {4.0}
    assert source.name == "u0_a_b_c__cu.cu"
    assert nvcc_unit("u", ["-gencode=arch=compute_100,code=sm_100", "-c", source.name], "/").archs == ("sm_100",)


def test_a_link_comes_after_all_units_before_it() -> None:
    """ninja begins it when their objects are there."""
    units = (
        UnitWork(name="a.cpp", source="a.cpp", phases=(phase(PhaseKind.HOST, arch=""),)),
        UnitWork(name="LINK lib.so", phases=(phase(PhaseKind.LINK, arch=""),), after_all=True),
    )
    made = replayed(Workload(name="w", units=units), HALF)
    assert "build u0.o: unit u0_a_cpp.cpp\n  driver = g++\n" in made.ninja
    assert "build u1.so: link u0.o | u1_LINK_lib_so\n" in made.ninja


@pytest.mark.parametrize("input_mib", [float("nan"), float("inf"), -1.0, 1e30])
def test_an_absurd_input_size_makes_no_absurd_file(input_mib: float) -> None:
    """At most 64 GiB, all of it a hole."""
    unit = UnitWork(name="a.cu", source="a.cu", phases=(phase(input_mib=input_mib),))
    made = replayed(Workload(name="w", units=(unit,)), HALF)
    assert all(0 <= each.size_bytes <= 64 * 1024**3 for each in made.inputs)


def test_a_trace_tells_the_course_of_a_phases_last_run(tmp_path: Path) -> None:
    """As shares of its time and of its peak: not of a run that was killed, and not what is seen after its end."""
    given = {"unit_id": "u1", "kind": "cicc", "tool": "cicc", "source": "a.cu"}
    lines = [
        header(),
        tr.phase_asked(at_s=0.0, phase_id=1, estimate_mib=1.0, reserve_mib=1.0, estimate_source="", **given),
        tr.admitted(0.0, 1, 1.0),
        PhaseStarted(at_s=0.0, phase_id=1, pid=7),
        tr.sampled(at_s=1.0, phase_id=1, rss_mib=700.0),
        tr.phase_ended(at_s=2.0, phase_id=1, outcome="killed-by-us", peak_mib=700.0, wall_s=2.0, cpu_s=2.0),
        tr.admitted(9.9, 1, 1.0),
        PhaseStarted(at_s=10.0, phase_id=1, pid=8),
        tr.sampled(at_s=11.0, phase_id=1, rss_mib=200.0),
        tr.sampled(at_s=12.0, phase_id=1, rss_mib=800.0),
        tr.sampled(at_s=13.9, phase_id=1, rss_mib=0.0),
        tr.phase_ended(at_s=14.0, phase_id=1, outcome="ok", peak_mib=800.0, wall_s=4.0, cpu_s=4.0),
    ]
    trace = tmp_path / "trace.jsonl"
    trace.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in tr.events(*lines)))
    (phase,) = from_trace(trace).units[0].phases
    assert phase.curve == ((0.25, 0.25), (0.5, 1.0))
