"""Kernels that flashinfer compiles in the process that serves: a real nvcc, called by the toolkit's own path."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from builddoctor.core.events import PhaseAsked
from support.capabilities import find_nvcc
from support.program import Program
from support.serving_client import answer

pytestmark = [pytest.mark.needs_nvcc]

SERVER = Path(__file__).parents[1] / "support" / "serving.py"


def test_an_nvcc_that_a_server_calls_by_its_own_path_has_gates(program: Program) -> None:
    """``$cuda_home/bin/nvcc`` in a file that ``-f`` names: cudafe++, cicc and ptxas ask. No command line changes, so
    what a server without us has cached is not compiled again."""
    nvcc = find_nvcc()
    assert nvcc is not None
    program.env["CUDA_HOME"] = str(nvcc.parent.parent)
    kernel = program.folder / "scale.cu"
    kernel.write_text("__global__ void scale(float *x) { x[threadIdx.x] *= 2; }\n")
    asked = {"source": str(kernel), "nvcc": "$cuda_home/bin/nvcc"}
    logs = []
    for command in (program.supervised, lambda *words: list(words)):
        (program.folder / "port").unlink(missing_ok=True)
        process = program.start(command(sys.executable, str(SERVER), str(program.folder), "64"))
        code, said = answer(program, "compile", **asked)
        assert code == 0, said
        logs.append(said)
        (program.folder / "drained").touch()
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate()
        assert process.returncode == 0, output
    assert "no work to do" in logs[1]
    tools = {Path(each.phase.tool).name for each in program.records() if isinstance(each, PhaseAsked)}
    assert tools >= {"cudafe++", "cicc", "ptxas"}
