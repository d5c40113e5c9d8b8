"""nvcc's own threads: safe, because each arch's cicc asks for itself."""

from __future__ import annotations

import pytest

from builddoctor.trace.analysis import digest
from builddoctor.trace.reader import TraceReader
from builddoctor.trace.records import PhaseAdmitted, PhaseFinished, PhaseQueued, PhaseStarted, UnitBegan
from support.example import Example
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
    assert registered.threads == 3
    assert registered.archs == [f"sm_{arch}" for arch in sorted(ARCHS)]
    cicc = {record.phase_id for record in records if isinstance(record, PhaseQueued) and record.kind == "cicc"}
    assert len(cicc) == 3
    admitted: set[int] = set()
    most_waiting = 0
    asked: set[int] = set()
    for record in records:
        if isinstance(record, PhaseQueued) and record.phase_id in cicc:
            asked.add(record.phase_id)
        elif isinstance(record, PhaseAdmitted) and record.phase_id in cicc:
            admitted.add(record.phase_id)
            asked.discard(record.phase_id)
        elif isinstance(record, PhaseStarted) and record.phase_id in cicc:
            assert record.phase_id in admitted
        elif isinstance(record, PhaseFinished) and record.phase_id in cicc:
            admitted.discard(record.phase_id)
        most_waiting = max(most_waiting, len(asked))
    assert most_waiting >= 1, "the threads never met the budget"
    assert digest(TraceReader(program.trace_file)).most_at_once["cicc"] < 3
