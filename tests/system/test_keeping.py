"""Inputs of phases that died, kept while their gate held the driver: real gates, real kernel kills, real crashes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from builddoctor.core.events import BuildEvent, InputsKept, UnitCommand
from builddoctor.core.settings import RunawayRules
from builddoctor.runtime.sampler import Rules
from support.fake_toolkit import fake_toolkit
from support.memcg import memory_cgroup
from support.program import Program
from support.stand_ins import stand_in

MIB = 1024**2
EXAMPLE = Path(__file__).parents[2] / "examples" / "attention_kernels"
CRASH = """
import os, signal, sys
if "other.cu" not in sys.argv:
    os.kill(os.getpid(), signal.SIGSEGV)
"""
GROWS = """
import time
held = []
began = time.monotonic()
while True:
    if len(held) < 200 * (time.monotonic() - began):
        held.append(bytearray(b"x") * 1048576)
"""
SHORT = Rules(
    runaway=RunawayRules(floor_mib=300, growth_factor=1.1, rising_s=1.0, rest_s=1.0, cpu_share=0.3, killed_rising_s=1.0)
)


def of(program: Program, kind: type[BuildEvent]) -> list[BuildEvent]:
    return [record for record in program.records() if isinstance(record, kind)]


def reproduced(program: Program, *arguments: str, path: str = "") -> dict[str, object]:
    """What ``trace repro --json`` says; ``path``: a PATH without compilers."""
    env = {"PATH": path} if path else {}
    done = program.run("trace", "repro", str(program.trace_file), *arguments, "--json", env=env)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.slow
@pytest.mark.needs_memcg
def test_a_phase_too_big_leaves_its_preprocessed_source(program: Program) -> None:
    """900 MiB cannot hold it. Source and headers may go: what was kept compiles alone, with nothing but the compiler,
    and takes what it took in the build; making the folder needs no compiler."""
    source = program.folder / "project"
    shutil.copytree(EXAMPLE / "src", source / "src")
    shutil.copytree(EXAMPLE / "include", source / "include")
    compile_it = [
        "/usr/bin/g++",
        "-std=c++17",
        "-O2",
        "-I",
        str(source / "include"),
        "-c",
        str(source / "src/planner.cpp"),
    ]
    with memory_cgroup(900 * MIB) as group:
        done = group.run(program.supervised(*compile_it), env=program.env, cwd=program.folder)
        assert done.returncode != 0
    assert program.summary()["verdict"] == "too-big"
    (kept,) = of(program, InputsKept)
    assert isinstance(kept, InputsKept)
    assert (kept.preprocessed, [file.name for file in kept.files]) == (True, ["planner.ii"])
    shutil.rmtree(source)
    folder = program.folder / "sent"
    said = reproduced(program, "-o", str(folder), path="/nonexistent")
    assert (said["input"], said["files"], said["notes"]) == ("kept", ["README.txt", "planner.ii", "repro.sh"], [])
    with memory_cgroup(900 * MIB) as group:
        again = group.run(["sh", str(folder / "repro.sh")], env={"PATH": "/usr/bin:/bin"})
        assert group.kernel_kills == 1
    assert again.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL)
    assert str(source) not in (folder / "repro.sh").read_text()


@pytest.mark.needs_memcg
def test_a_runaway_leaves_its_input(program: Program) -> None:
    """Ended by builddoctor: its source is there, and the folder says that it takes all the memory there is."""
    toolkit = fake_toolkit(program.folder / "cuda", GROWS)
    (program.folder / "endless.cu").write_text("// no end")
    with memory_cgroup(3000 * MIB) as group:
        command = program.with_rules(SHORT, "nvcc", "-c", "endless.cu", toolkit=str(toolkit))
        done = group.run(command, env=program.env, cwd=program.folder)
    assert program.summary()["verdict"] == "runaway", done.stderr
    (kept,) = of(program, InputsKept)
    assert isinstance(kept, InputsKept)
    assert [file.name for file in kept.files] == ["endless.cu"]
    folder = program.folder / "sent"
    reproduced(program, "-o", str(folder))
    assert (folder / "endless.cu").read_text() == "// no end"
    readme = (folder / "README.txt").read_text()
    assert "(runaway)" in readme
    assert "LIMIT_MIB=8000 sh repro.sh" in readme


def test_a_crash_leaves_its_input_and_crashes_again(program: Program) -> None:
    """SIGSEGV of a compiler: the build ends with nvcc's own code, and ``--run`` in the folder ends with the signal."""
    toolkit = fake_toolkit(program.folder / "cuda", CRASH)
    (program.folder / "bad.cu").write_text("// bad")
    (program.folder / "other.cu").write_text("// good")
    build = ["sh", "-c", "nvcc -c other.cu; nvcc -c bad.cu"]
    done = subprocess.run(
        program.supervised(*build, options=["--toolkit", str(toolkit), "--no-doctor"]),
        env=program.env,
        cwd=program.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 128 + signal.SIGSEGV
    (kept,) = of(program, InputsKept)
    assert isinstance(kept, InputsKept)
    assert [file.name for file in kept.files] == ["bad.cu"]
    assert os.path.samefile(kept.tool, toolkit / "bin" / "cudafe++")
    assert len(of(program, UnitCommand)) == 2
    (program.folder / "bad.cu").unlink()
    # Without a word about which phase: the one that died.
    said = reproduced(program, "-o", str(program.folder / "sent"), "--run", path=f"{toolkit}/bin:/usr/bin:/bin")
    assert said["run"]["signal"] == signal.SIGSEGV  # type: ignore[index]
    assert said["phase"] == "cudafe++ of bad.cu"


def test_nowhere_to_keep_it_changes_nothing_for_the_build(program: Program) -> None:
    """A file lies where the folder should be: a line in the trace, and the build ends as it would have."""
    toolkit = fake_toolkit(program.folder / "cuda", CRASH)
    (program.folder / "bad.cu").write_text("// bad")
    (program.folder / "trace.repro").touch()
    done = subprocess.run(
        program.supervised("nvcc", "-c", "bad.cu", options=["--toolkit", str(toolkit), "--no-doctor"]),
        env=program.env,
        cwd=program.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 128 + signal.SIGSEGV
    assert of(program, InputsKept) == []
    assert "could not keep the input of cudafe++ of bad.cu" in done.stderr


def test_an_error_in_the_source_keeps_nothing(program: Program) -> None:
    """Exit code 1: the source is where it was, and its command is in the trace."""
    stand_in(program, "exit 1")
    (program.folder / "a.cpp").write_text("int;")
    done = program.run("run", "--trace", str(program.trace_file), "--", "g++", "-c", "a.cpp", "-o", "/nonexistent/a.o")
    assert done.returncode == 1
    assert of(program, InputsKept) == []
    assert not (program.folder / "trace.repro").exists()


def test_without_input_and_command_it_is_said(program: Program) -> None:
    """A trace of a build that compiled nothing, a phase that is not there, a folder that is not empty."""
    assert program.run("run", "--trace", str(program.trace_file), "--", "true").returncode == 0
    for arguments, word in (([], "no phase of this build died"), (["a.cu:cicc"], "no phase 'a.cu:cicc'")):
        done = program.run("trace", "repro", str(program.trace_file), *arguments)
        assert done.returncode == 64
        assert word in done.stderr
