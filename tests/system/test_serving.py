"""A server that compiles while it holds a model: its memory counts, its compilers have gates, and it ends in order."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from builddoctor.core.events import GiveUp, Note, Pause, PhaseStarted, UngatedSeen
from builddoctor.core.verdict import Verdict
from support.fake_toolkit import fake_toolkit
from support.memcg import memory_cgroup
from support.program import PATIENCE_S, Program
from support.serving_client import answer

pytestmark = pytest.mark.slow

MIB = 1024**2
SERVER = Path(__file__).parents[1] / "support" / "serving.py"

LIMIT_MIB = 2048
MODEL_MIB = 1200
UNITS = 4
EACH_MIB = 300
"""Beside the model two of them fit, four do not."""

TOOL = f"""
import mmap, sys, time
flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
held = []
for _ in range({EACH_MIB} // 4):
    held.append(mmap.mmap(-1, 4 << 20, flags=flags))
    time.sleep(0.005)
open(sys.argv[sys.argv.index("-o") + 1], "w").close()
"""
"""In the place of cudafe++: takes memory, and writes the object."""


def server(program: Program, model_mib: int = MODEL_MIB) -> list[str]:
    return [sys.executable, str(SERVER), str(program.folder), str(model_mib)]


def kernels(program: Program, name: str) -> list[str]:
    found = [program.folder / f"{name}{number}.cu" for number in range(UNITS)]
    for each in found:
        each.write_text("")
    return [str(each) for each in found]


def compiled(program: Program, name: str) -> None:
    """As torch's ``load()`` does, by a ninja of the server's own."""
    code, said = answer(program, "compile", source=kernels(program, name), nvcc="nvcc")
    assert code == 0, said


def ended(program: Program, process: subprocess.Popen[str], number: signal.Signals) -> str:
    """Signalled while nothing compiles, and left its time to end."""
    process.send_signal(number)
    program.await_record(Note, process, text=lambda text: "left to end by itself" in text)
    assert (program.folder / "draining").exists()
    (program.folder / "drained").touch()
    return process.communicate(timeout=PATIENCE_S)[0]


@pytest.mark.needs_memcg
def test_kernels_are_compiled_beside_a_model_and_the_server_ends_in_order(program: Program) -> None:
    """60 % of the memory is the model's: of four compilers not all run at once, and the kernel ends nothing. The model
    grows, and the next four have less. SIGTERM reaches the server alone, which takes longer than a build may."""
    toolkit = fake_toolkit(program.folder / "cuda", TOOL)
    options = ["--toolkit", str(toolkit), "--cores", "4"]
    with memory_cgroup(LIMIT_MIB * MIB) as group:
        process = program.start(group.wrapped(program.supervised(*server(program), options=options)))
        compiled(program, "a")
        answer(program, "grow", mib=100)
        compiled(program, "b")
        output = ended(program, process, signal.SIGTERM)
        assert group.kernel_kills == 0, output
    assert process.returncode == 0, output
    assert "ended in order" in output
    assert len(list((program.folder / "kernels").glob("*.o"))) == 2 * UNITS
    records = program.records()
    assert sum(isinstance(each, PhaseStarted) for each in records) >= 2 * UNITS
    assert not [each for each in records if isinstance(each, (Pause, UngatedSeen))], "its worker is never stopped"
    summary = program.summary()
    assert (summary["result"], summary["exit_code"], summary["paused"]) == ("ok", 0, 0)


@pytest.mark.needs_memcg
def test_where_not_one_compiler_fits_beside_the_model_it_is_the_compiler_that_ends(program: Program) -> None:
    """The model holds most of the memory and is the larger by far, yet the kernel takes the compiler. The compile fails
    with a verdict, the server goes on to serve."""
    toolkit = fake_toolkit(program.folder / "cuda", TOOL)
    with memory_cgroup(LIMIT_MIB * MIB) as group:
        command = program.supervised(*server(program, LIMIT_MIB - EACH_MIB), options=["--toolkit", str(toolkit)])
        process = program.start(group.wrapped(command))
        code, said = answer(program, "compile", source=kernels(program, "a")[:1], nvcc="nvcc")
        assert code != 0, said
        assert group.kernel_kills > 0
        assert answer(program, "grow", mib=0) == answer(program, "grow", mib=0), "its worker is there"
        output = ended(program, process, signal.SIGTERM)
    assert process.returncode == 0, output
    assert "ended in order" in output
    gave_up = [each.verdict for each in program.records() if isinstance(each, GiveUp)]
    assert gave_up == [Verdict.TOO_BIG]
