"""nvcc's own threads: safe, because each arch's cicc asks for itself."""

from __future__ import annotations

import subprocess

import pytest

from builddoctor.core.events import Admit, PhaseAsked, PhaseEnded, PhaseStarted, ReleaseUnit, UnitBegan
from support.capabilities import find_nvcc
from support.example import Example
from support.objects import objects_of
from support.program import Program

pytestmark = [pytest.mark.needs_nvcc]

ARCHS = ("80", "90", "100")


def test_threads_never_run_more_cicc_than_were_admitted(example: Example, program: Program) -> None:
    """`nvcc --threads 3` for three archs in 448 MiB: all three phases ask, and run only as memory allows."""
    unit = example.source / "src" / "rope.cu"
    gencodes = [f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in ARCHS]
    command = ["nvcc", "--threads", "3", "-std=c++17", "-I", str(example.source / "include"), *gencodes]
    options = ["--memory", "448MiB", "--cores", "8"]
    done = program.run(
        *program.supervised(*command, "-c", str(unit), "-o", "x.o", options=options)[3:], cwd=program.folder
    )
    assert done.returncode == 0, done.stderr
    records = program.records()
    (registered,) = [record for record in records if isinstance(record, UnitBegan)]
    assert registered.unit.threads == 3
    assert registered.unit.archs == tuple(f"sm_{arch}" for arch in sorted(ARCHS))
    cicc = {
        record.phase.phase_id for record in records if isinstance(record, PhaseAsked) and record.phase.kind == "cicc"
    }
    assert len(cicc) == 3
    admitted: set[int] = set()
    most_waiting = most_running = 0
    asked: set[int] = set()
    for record in records:
        if isinstance(record, PhaseAsked) and record.phase.phase_id in cicc:
            asked.add(record.phase.phase_id)
        elif isinstance(record, Admit) and record.phase_id in cicc:
            admitted.add(record.phase_id)
            asked.discard(record.phase_id)
        elif isinstance(record, PhaseStarted) and record.phase_id in cicc:
            assert record.phase_id in admitted
        elif isinstance(record, PhaseEnded) and record.phase_id in cicc:
            admitted.discard(record.phase_id)
        most_waiting, most_running = max(most_waiting, len(asked)), max(most_running, len(admitted))
    assert most_waiting >= 1, "the threads never met the budget"
    assert most_running < 3


@pytest.mark.parametrize(("units", "given", "set_to"), [(1, "", 3), (1, "-t8", 3), (4, "--threads=3", 1)])
def test_threads_are_set_by_how_many_units_there_are_and_objects_are_the_same(
    program: Program, units: int, given: str, set_to: int
) -> None:
    """A lone unit of three archs gets three threads; one of as many as cores gets one. nvcc's objects do not care."""
    sources = program.folder / "src"
    sources.mkdir()
    for n in range(units):
        (sources / f"u{n}.cu").write_text(f"__global__ void scale(float *x) {{ x[threadIdx.x] *= {n + 2}; }}\n")
    flags = " ".join(f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in ARCHS)
    edges = "".join(f"build u{n}.o: cu {sources}/u{n}.cu\n" for n in range(units))
    objects = []
    for folder, nvcc in ((program.folder / "plain", str(find_nvcc())), (program.folder / "supervised", "nvcc")):
        folder.mkdir()
        rule = f"rule cu\n  command = {nvcc} {flags} {given} -c $in -o $out\n"
        (folder / "build.ninja").write_text(rule + edges)
        ninja = ["ninja", "-j", str(units)]
        if nvcc == "nvcc":
            ninja = program.supervised(*ninja, options=["--cores", "4"])
        subprocess.run(ninja, cwd=folder, env=program.env, check=True, capture_output=True)
        objects.append(objects_of(folder))
    assert objects[0] == objects[1]
    assert len(objects[0]) == units
    *_, last = [record for record in program.records() if isinstance(record, ReleaseUnit)]
    assert last.threads == set_to
