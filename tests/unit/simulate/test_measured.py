"""Workloads from files: measured phases, their digest, traces; and generated ones."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from builddoctor.core.errors import TraceError
from builddoctor.core.events import PhaseEnded, PhaseStarted
from builddoctor.core.phase import PhaseKind
from builddoctor.simulate.workload import PhaseWork, UnitWork, Workload, lower_bound_s
from support import trace_events as tr
from support.measured_builds import from_digest, from_measurements, from_trace
from support.workloads import disturbed, generated
from unit.builders import header

DIGEST = Path(__file__).resolve().parents[2] / "data" / "te-2.8-sm100.csv"
PROVENANCE = '{"what": "phases", "nvcc": "13.0.88"}\n'


def row(**fields: object) -> str:
    known = {"unit": "a.cu", "phase": "cicc", "arch": "compute_100", "input_bytes": 2097152, "peak_mib": 900}
    return json.dumps({**known, "wall_s": 4.0, "cpu_s": 3.5, **fields}) + "\n"


def test_measured_phases_keep_their_order_and_their_units() -> None:
    """The digest of TransformerEngine: 65 units and a link that comes last, 369 phases, the largest of 4124 MiB."""
    workload = from_digest(DIGEST)
    assert (len(workload.units), workload.phases, workload.peak_mib) == (66, 369, 4124)
    assert [unit.name for unit in workload.units if unit.after_all] == ["LINK libtransformer_engine.so"]
    kinds = [phase.kind.value for phase in workload.units[1].phases]
    assert kinds == ["preprocess", "preprocess", "preprocess", "cudafe++", "cicc", "ptxas", "host"]
    assert workload.units[1].archs == ("sm_100",)


def test_a_line_of_measurements_becomes_a_phase(tmp_path: Path) -> None:
    """Bytes become MiB, the virtual arch that of the code, and processor time counts where it was measured."""
    path = tmp_path / "phases.jsonl"
    path.write_text(PROVENANCE + row() + row(phase="host-compile-cxx", unit="b.cpp", arch="", cpu_s=0.0))
    first, second = (unit.phases[0] for unit in from_measurements(path).units)
    assert first == PhaseWork(kind=PhaseKind.CICC, arch="sm_100", input_mib=2.0, peak_mib=900, wall_s=3.5, tool="cicc")
    assert (second.kind, second.wall_s, second.tool) == (PhaseKind.HOST, 4.0, "cc1plus")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe\x00",
        PROVENANCE.encode() + b'{"unit": "a.cu"',
        PROVENANCE.encode() + row(phase="bake").encode(),
        PROVENANCE.encode() + row(peak_mib=-1).encode(),
        PROVENANCE.encode() + row(wall_s=1e999).encode(),
        PROVENANCE.encode() + row(peak_mib="much").encode(),
    ],
)
def test_what_is_no_measurement_is_refused(tmp_path: Path, content: bytes) -> None:
    """Empty, binary, torn, unknown phases, sizes that cannot be: an error that names the file or the phase."""
    path = tmp_path / "phases.jsonl"
    path.write_bytes(content)
    with pytest.raises(TraceError):
        from_measurements(path)


@pytest.mark.parametrize(
    "content", [b"unit,kind\na.cu,cicc\n", b"\xff\xfe", b"unit,kind,peak_mib,wall_s\na,cicc,x,1\n"]
)
def test_what_is_no_digest_is_refused(tmp_path: Path, content: bytes) -> None:
    """Missing columns, binary files and words for numbers are an error."""
    path = tmp_path / "phases.csv"
    path.write_bytes(content)
    with pytest.raises(TraceError):
        from_digest(path)


def test_a_digest_may_have_curves(tmp_path: Path) -> None:
    """Thousandths of time and of peak; nothing where a phase was not seen."""
    path = tmp_path / "phases.csv"
    head = "unit,kind,arch,input_mib,peak_mib,wall_s,cpu_s,curve\n"
    path.write_text(head + "a.cu,cicc,compute_100,2.0,900,4.0,3.5,250:500 1000:1000\nb.cu,cicc,,2.0,900,4.0,3.5,\n")
    seen, unseen = (unit.phases[0].curve for unit in from_digest(path).units)
    assert (seen, unseen) == (((0.25, 0.5), (1.0, 1.0)), ())


@pytest.mark.parametrize("curve", ["250", "250:x", "1:2:3", "-1:5", "1001:5", "5:1001", "500:1 250:2"])
def test_a_curve_that_cannot_be_is_refused(tmp_path: Path, curve: str) -> None:
    """Torn, no figure, beyond the phase or its peak, back in time."""
    path = tmp_path / "phases.csv"
    path.write_text(f"unit,kind,arch,input_mib,peak_mib,wall_s,cpu_s,curve\na.cu,cicc,,2.0,900,4.0,3.5,{curve}\n")
    with pytest.raises(TraceError, match=r"a\.cu"):
        from_digest(path)


def test_files_that_are_not_there_are_refused(tmp_path: Path) -> None:
    """An error of ours, for all three formats."""
    for read in (from_measurements, from_digest, from_trace):
        with pytest.raises(TraceError):
            read(tmp_path / "missing")


def test_a_trace_is_a_workload(tmp_path: Path) -> None:
    """Phases by unit as they asked; the last run counts; configure steps and phases without an end are left out."""

    def asked(phase_id: int, unit_id: str, kind: str) -> tr.Events:
        return tr.phase_asked(
            at_s=1.0, phase_id=phase_id, unit_id=unit_id, kind=kind, tool="t", source="x", arch="sm_90", input_mib=3.0,
            estimate_mib=1.0, reserve_mib=2.0, estimate_source="prior",
        )  # fmt: skip

    def ended(phase_id: int, outcome: str, peak_mib: float, cpu_s: float) -> PhaseEnded:
        return tr.phase_ended(at_s=2.0, phase_id=phase_id, outcome=outcome, peak_mib=peak_mib, wall_s=9.0, cpu_s=cpu_s)

    records = [
        header(),
        tr.unit_began(at_s=0.0, unit_id="u1", source="a.cu", archs=["sm_90"]),
        tr.unit_began(at_s=0.0, unit_id="u2", source="try.c", counted=False),
        asked(1, "u1", "cudafe++"),
        asked(2, "u2", "host"),
        ended(1, "killed-by-kernel", 700, 1.0),
        ended(2, "ok", 50, 0.1),
        ended(1, "ok", 800, 5.0),
        asked(3, "u1", "cicc"),
        asked(4, "u1", "ptxas"),
        asked(5, "", "link"),
        ended(5, "ok", 60, 0.0),
        ended(3, "ok", 1500, 7.0),
    ]
    path = tmp_path / "build.trace"
    path.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in tr.events(*records)))
    first, second = from_trace(path).units
    assert (first.name, first.archs) == ("a.cu", ("sm_90",))
    assert [(each.kind.value, each.peak_mib, each.wall_s) for each in first.phases] == [
        ("cudafe++", 800, 5.0),
        ("cicc", 1500, 7.0),
    ]
    assert second.after_all
    assert second.phases[0].wall_s == 9.0


def test_a_curve_of_a_trace_rises_where_memory_moved(tmp_path: Path) -> None:
    """What the gate held before it became the compiler is no point, nor is a small step; the rest are shares."""
    seen_mib = (14.0, 0.5, 100.0, 103.0, 400.0, 0.0)
    records = [
        header(),
        tr.unit_began(at_s=0.0, unit_id="u1", source="a.cu", archs=["sm_90"]),
        tr.phase_asked(
            at_s=0.0, phase_id=1, unit_id="u1", kind="cicc", tool="cicc", source="a.cu", arch="sm_90", input_mib=3.0,
            estimate_mib=1.0, reserve_mib=2.0, estimate_source="prior",
        ),
        tr.admitted(at_s=0.0, phase_id=1, reserve_mib=2.0),
        PhaseStarted(at_s=0.0, phase_id=1, pid=7),
        *(tr.sampled(at_s, 1, rss_mib) for at_s, rss_mib in enumerate(seen_mib, start=1)),
        tr.phase_ended(at_s=10.0, phase_id=1, outcome="ok", peak_mib=400.0, wall_s=10.0, cpu_s=10.0),
    ]  # fmt: skip
    path = tmp_path / "build.trace"
    path.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in tr.events(*records)))
    (unit,) = from_trace(path).units
    assert unit.phases[0].curve == ((0.3, 0.25), (0.5, 1.0))


def test_the_lower_bound_is_the_largest_of_three() -> None:
    """All work over all cores, memory times time over all memory, or the longest unit, whichever is most."""
    phase = PhaseWork(kind=PhaseKind.CICC, peak_mib=100.0, wall_s=10.0)
    workload = Workload(name="w", units=tuple(UnitWork(name=f"{n}", phases=(phase,)) for n in range(4)))
    assert lower_bound_s(workload, cores=2, limit_mib=1000.0) == 20.0
    assert lower_bound_s(workload, cores=2, limit_mib=100.0) == 40.0
    assert lower_bound_s(workload, cores=9, limit_mib=1000.0) == 10.0
    assert lower_bound_s(workload, cores=4, limit_mib=100.0, held_share=0.5) == 20.0


def test_disturbed_peaks_stay_within_their_share() -> None:
    """Up and down by at most a fifth; times and order stay; the same seed gives the same sizes, another others."""
    workload = from_digest(DIGEST)
    moved = disturbed(workload, share=0.2, seed=1)
    pairs = [
        (then, now)
        for before, after in zip(workload.units, moved.units, strict=True)
        for then, now in zip(before.phases, after.phases, strict=True)
    ]
    ratios = [now.peak_mib / then.peak_mib for then, now in pairs]
    assert 0.8 <= min(ratios) < 0.82
    assert 1.18 < max(ratios) <= 1.2
    assert all((then.kind, then.wall_s) == (now.kind, now.wall_s) for then, now in pairs)
    assert moved == disturbed(workload, share=0.2, seed=1) != disturbed(workload, share=0.2, seed=2)


def test_generated_builds_have_a_heavy_tail() -> None:
    """As in the measured one: about 15 % of units above 2 GiB, most below 1 GiB, times in proportion; by seed."""
    workload = generated(2000, seed=1)
    assert workload == generated(2000, seed=1) != generated(2000, seed=2)
    peaks = [unit.peak_mib for unit in workload.units]
    assert 0.12 < sum(peak > 2048 for peak in peaks) / len(peaks) < 0.22
    assert sum(peak < 1024 for peak in peaks) / len(peaks) > 0.7
    measured = from_digest(DIGEST)
    assert 0.5 < (workload.work_s / 2000) / (measured.work_s / 66) < 2.0
    assert len(generated(1, seed=1, archs=3).units[0].phases) in (1, 13)
