"""One phase of a real build in a folder of its own: away from its sources, it takes and ends as it did in the build."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from builddoctor.core.events import InputsKept
from builddoctor.gates.subprocesses import MeasuredRun, run_measured
from builddoctor.trace.analysis import read_build
from builddoctor.trace.report import choose_phase
from support.capabilities import find_nvcc
from support.program import Program
from support.runaway_source import runaway_source

pytestmark = pytest.mark.needs_nvcc

SOURCE = """\
#include "gelu.h"
#include <cuda_fp16.h>
#include <vector>
template <int N> __global__ void scale(float *x) { x[threadIdx.x] = gelu(x[threadIdx.x]) * N; }
void go(float *x) { scale<3><<<1, 32>>>(x); scale<5><<<1, 64>>>(x); }
"""
HEADER = "__device__ inline float gelu(float x) { return 0.5f * x * (1 + tanhf(x)); }\n"
COMPILE = ["nvcc", "-std=c++17", "-O3", "-Iinclude", "-gencode", "arch=compute_90,code=sm_90"]
MOST_MIB = 4096.0


class Project:
    """Two files that are built once, under builddoctor, then asked for."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.source = program.folder / "project"
        (self.source / "include").mkdir(parents=True)
        (self.source / "src").mkdir()
        (self.source / "src" / "gelu.cu").write_text(SOURCE)
        (self.source / "include" / "gelu.h").write_text(HEADER)

    def build(self, *command: str) -> subprocess.CompletedProcess[str]:
        argv = self.program.supervised(*command, options=["--no-doctor"])
        return subprocess.run(argv, cwd=self.source, env=self.program.env, capture_output=True, text=True, check=False)

    def repro(self, phase: str, *options: str) -> tuple[Path, dict[str, Any]]:
        """The folder, moved away from where it was made, and what was said of it."""
        made, moved = self.program.folder / f"made-{phase}", self.program.folder / f"moved-{phase}"
        done = self.program.run(
            "trace", "repro", str(self.program.trace_file), phase, "-o", made.name, "--json", *options
        )
        assert done.returncode == 0, done.stderr
        return made.rename(moved), json.loads(done.stdout)


def run_it(folder: Path, *, memory_mib: float = MOST_MIB, limit_mib: int = 0, script: str = "repro.sh") -> MeasuredRun:
    """The script in an environment that is empty but for where nvcc and gcc are."""
    env = {"PATH": f"{os.path.dirname(os.path.realpath(find_nvcc() or ''))}:/usr/bin:/bin"}
    if limit_mib:
        env["LIMIT_MIB"] = str(limit_mib)
    return run_measured(["sh", str(folder / script)], cwd="/", env=env, memory_mib=memory_mib, timeout_s=60)


def test_each_phase_of_a_unit_runs_alone_and_takes_what_it_took(program: Program) -> None:
    """cudafe++, cicc, ptxas and cc1plus, made again from the unit's command: sources gone, another folder, an empty
    environment; exit code 0, and the peak within a tenth (and 4 MiB, for ptxas has 26). The build folder stays as it
    was."""
    project = Project(program)
    done = project.build(*COMPILE, "-MD", "-MF", "gelu.d", "-c", "src/gelu.cu", "-o", "gelu.o")
    assert done.returncode == 0, done.stderr
    report = read_build(program.trace_file)
    before = {path: path.stat().st_mtime_ns for path in project.source.rglob("*")}
    made = {name: project.repro(f"gelu.cu:{name}") for name in ("cudafe++", "cicc:sm_90", "ptxas", "host")}
    assert {path: path.stat().st_mtime_ns for path in project.source.rglob("*")} == before
    shutil.rmtree(project.source)
    for name, (folder, said) in made.items():
        assert (said["input"], said["notes"]) == ("made", [])
        assert str(project.source) not in (folder / "repro.sh").read_text()
        ran = run_it(folder)
        assert ran.exit_code == 0, (name, ran)
        seen_mib = choose_phase(report, f"gelu.cu:{name}").peak_mib
        assert abs(ran.peak_mib - seen_mib) <= 0.1 * seen_mib + 4, (name, ran.peak_mib, seen_mib)


def test_a_front_end_that_ran_out_of_memory_does_so_again_from_what_was_kept(program: Program) -> None:
    """cudafe++ under a limit that is too low for it: nvcc has deleted its files by then, the kept one still says the
    same, with the same exit code, and compiles where the limit is gone."""
    project = Project(program)
    limited = f"ulimit -v {150 * 1024}; exec {' '.join(COMPILE)} -c src/gelu.cu -o gelu.o"
    done = project.build("sh", "-c", limited)
    assert "out of memory" in done.stderr
    (kept,) = [record for record in program.records() if isinstance(record, InputsKept)]
    assert kept.tool.endswith("/cudafe++")
    assert not Path(kept.files[0].path).exists()
    shutil.rmtree(project.source)
    folder, said = project.repro("gelu.cu", "--run", "--memory", "4GiB")
    assert said["input"] == "kept"
    assert said["run"]["exit_code"] == 0
    again = run_it(folder, limit_mib=150)
    assert again.exit_code == done.returncode == 4
    assert "out of memory" in again.output


@pytest.mark.needs_cvise
def test_a_front_end_that_runs_away_does_so_on_a_few_lines(program: Program) -> None:
    """cudafe++ in 700 MB of address space: of what was kept, 34,000 lines with CUDA's headers, the recursion is left.
    It ends as the whole does, away from everything else."""
    project = Project(program)
    (project.source / "plans.cu").write_text(runaway_source(cuda=True))
    done = project.build("sh", "-c", "ulimit -v 700000; exec nvcc -std=c++17 -c plans.cu -o plans.o")
    assert "out of memory" in done.stderr
    shutil.rmtree(project.source)
    options = ("--reduce", "--beyond", "300MiB", "--memory", "2GiB", "--time", "3m")
    folder, said = project.repro("plans.cu", *options)
    small = said["reduced"]
    assert (said["input"], small["notes"]) == ("kept", [])
    assert small["grows_on"]
    assert small["before_lines"] > 20_000
    assert 100 * small["after_bytes"] < small["before_bytes"]
    alone = program.folder / "alone"
    alone.mkdir()
    for name in (small["file"], small["script"]):
        shutil.copy(folder / name, alone)
    again = run_it(alone, limit_mib=680, script=small["script"])
    assert again.exit_code == done.returncode == 4
    assert "1 catastrophic error detected" in again.output
    assert again.peak_mib > 600


def test_a_source_that_is_gone_is_said_and_leaves_no_folder(program: Program) -> None:
    """Nothing was kept of a phase that went well, and its source is not there any more."""
    project = Project(program)
    assert project.build(*COMPILE, "-c", "src/gelu.cu", "-o", "gelu.o").returncode == 0
    shutil.rmtree(project.source)
    folder = program.folder / "none"
    done = program.run("trace", "repro", str(program.trace_file), "gelu.cu:cicc", "-o", str(folder))
    assert done.returncode == 87
    assert "the source is not there any more" in done.stderr
    assert not folder.exists()


def test_another_compiler_than_the_build_had_is_no_crash(program: Program) -> None:
    """No nvcc at all where the trace is looked at: a sentence, and no folder."""
    project = Project(program)
    assert project.build(*COMPILE, "-c", "src/gelu.cu", "-o", "gelu.o").returncode == 0
    text = program.trace_file.read_text()
    header, _, rest = text.partition("\n")
    fields = json.loads(header) | {"toolkit": "/nonexistent/cuda"}
    program.trace_file.write_text(json.dumps(fields) + "\n" + rest)
    done = program.run(
        *("trace", "repro", str(program.trace_file), "gelu.cu:cicc", "-o", str(program.folder / "none")),
        env={"PATH": "/nonexistent"},
    )
    assert done.returncode == 87
    assert "no nvcc here" in done.stderr
    assert not (program.folder / "none").exists()
