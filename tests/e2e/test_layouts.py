"""Toolkits of every layout: gated in every phase, with the object that the toolkit makes without us."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from builddoctor.core.events import PhaseAsked, UnitBegan
from builddoctor.core.phase import PhaseKind
from support import layouts
from support.objects import files_naming, objects_of
from support.program import Program, clean_environment

pytestmark = [pytest.mark.needs_nvcc]

SOURCE = "#include <vector>\n__global__ void scale(float *x) { x[threadIdx.x] *= 2; }\nstd::vector<int> three(3);\n"
PHASES = ["preprocess", "preprocess", "cudafe++", "preprocess", "cicc", "ptxas", "host"]


@pytest.mark.parametrize("layout", [layouts.conda, layouts.debian, layouts.pip_wheels, layouts.usr_local])
def test_every_phase_of_every_layout_is_gated(layout: Callable[[Path], Path], program: Program) -> None:
    """Through the overlay of this toolkit all phases ask, and the object is the plain one."""
    tree = program.folder / "tree"
    tree.mkdir()
    nvcc = layout(tree)
    (program.folder / "scale.cu").write_text(SOURCE)
    compile_it = ["-arch=sm_90", "-MD", "-MF", "scale.d", "-c", "scale.cu", "-o", "scale.o"]
    subprocess.run([str(nvcc), *compile_it], cwd=program.folder, env=clean_environment(), check=True)
    plain = objects_of(program.folder)["scale.o"]

    toolkit = ["--toolkit", str(nvcc)]
    done = subprocess.run(
        program.supervised("nvcc", *compile_it, options=toolkit),
        cwd=program.folder,
        env=program.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    records = program.records()
    asked = [record.phase.kind for record in records if isinstance(record, PhaseAsked)]
    assert [kind for kind in asked if kind != "preprocess"] == ["cudafe++", "cicc", "ptxas", "host"]
    assert asked.count(PhaseKind.PREPROCESS) == 3
    assert [record.unit.source for record in records if isinstance(record, UnitBegan)] == ["scale.cu"]
    assert objects_of(program.folder)["scale.o"] == plain
    assert files_naming(program.folder, "overlays/") == []


@pytest.mark.parametrize("ninja", ["ninja", shutil.which("ninja", path=clean_environment()["PATH"])])
def test_an_nvcc_called_by_its_own_path_under_ninja_is_caught(program: Program, ninja: str) -> None:
    """A hand-written build.ninja that names the real nvcc: every phase asks all the same, nothing is built twice."""
    nvcc = layouts.real_home() / "bin" / "nvcc"
    (program.folder / "scale.cu").write_text(SOURCE)
    (program.folder / "build.ninja").write_text(
        f"nvcc = {nvcc}\nrule cu\n  command = $nvcc -arch=sm_90 -c $in -o $out\nbuild scale.o: cu scale.cu\n"
    )
    done = subprocess.run(
        program.supervised(ninja), cwd=program.folder, env=program.env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    asked = [record for record in program.records() if isinstance(record, PhaseAsked)]
    assert [record.phase.kind for record in asked] == PHASES
    assert {record.phase.source for record in asked} == {"scale.cu"}
    plain = subprocess.run(
        [ninja, "-n"], cwd=program.folder, env=clean_environment(), capture_output=True, text=True, check=True
    )
    assert "no work to do" in plain.stdout


MAKEFILE = """\
CUDA_HOME ?= /usr/local/cuda
NVCC = $(CUDA_HOME)/bin/nvcc
scale.o: scale.cu
\t$(NVCC) -arch=sm_90 -c $< -o $@
configured/scale.o: scale.cu
\tcmake -S . -B configured -G "Unix Makefiles" -DCMAKE_CUDA_ARCHITECTURES=90
\tcmake --build configured
"""
LISTS = """\
cmake_minimum_required(VERSION 3.18)
project(scale LANGUAGES CUDA)
add_library(scale OBJECT scale.cu)
"""


SETUP = """\
import os, subprocess
nvcc = os.path.join(os.environ["CUDA_HOME"], "bin", "nvcc")
subprocess.run([nvcc, "-arch=sm_90", "-c", "scale.cu", "-o", "scale.o"], check=True)
"""


def supervised(program: Program, *command: str) -> subprocess.CompletedProcess[str]:
    argv = program.supervised(*command)
    return subprocess.run(argv, cwd=program.folder, env=program.env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("argument", ["CUDA_HOME={home}", "NVCC={home}/bin/nvcc", ""])
@pytest.mark.parametrize("inside", ["", "sh"])
def test_an_nvcc_called_by_its_own_path_by_a_makefile_is_caught(program: Program, argument: str, inside: str) -> None:
    """As NCCL's Makefile and most that were written by hand call it, from a script too: every phase asks."""
    home = layouts.real_home()
    (program.folder / "scale.cu").write_text(SOURCE)
    (program.folder / "Makefile").write_text(MAKEFILE)
    words = ["make", *filter(None, [argument.format(home=home)])]
    done = supervised(program, *(["sh", "-c", " ".join(words)] if inside else words))
    assert done.returncode == 0, done.stderr
    assert f"{home}/bin/nvcc -arch=sm_90" in done.stdout
    assert "by its own path" not in done.stderr
    assert [record.phase.kind for record in program.records() if isinstance(record, PhaseAsked)] == PHASES
    plain = subprocess.run(["make", "-q"], cwd=program.folder, env=clean_environment(), check=False)
    assert plain.returncode == 0


@pytest.mark.needs_cmake
def test_flags_of_a_script_s_own_outlive_the_net_of_a_make(program: Program) -> None:
    """A cmake below the make and a ninja after it see what the script said, and no more of the net than they need."""
    nvcc = layouts.real_home() / "bin" / "nvcc"
    (program.folder / "scale.cu").write_text("int wanted = OWN;\n")
    (program.folder / "Makefile").write_text(
        f"scale.o: scale.cu\n\tcmake -E environment > below\n\t{nvcc} -arch=sm_90 -c $< -o $@\n"
    )
    (program.folder / "build.ninja").write_text("rule say\n  command = env > after\nbuild after: say\n")
    script = "export NVCC_APPEND_FLAGS=-DOWN=3; make && ninja"
    done = supervised(program, "sh", "-c", script)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("below", "after"):
        said = [line for line in (program.folder / name).read_text().splitlines() if line.startswith("NVCC_")]
        assert "NVCC_APPEND_FLAGS=-DOWN=3" in said
        assert not any(line.startswith("NVCC_PREPEND_FLAGS") for line in said)
    asked = [record.phase.kind for record in program.records() if isinstance(record, PhaseAsked)]
    assert PhaseKind.CICC in asked


def test_an_nvcc_called_by_its_own_path_by_a_setup_py_is_caught(program: Program) -> None:
    """As distutils calls it, in a project of older days: under ``run`` as under ``build``."""
    (program.folder / "scale.cu").write_text(SOURCE)
    (program.folder / "setup.py").write_text(SETUP)
    done = supervised(program, sys.executable, "setup.py", "build_ext")
    assert done.returncode == 0, done.stderr
    assert "by its own path" not in done.stderr
    assert [record.phase.kind for record in program.records() if isinstance(record, PhaseAsked)] == PHASES


FIND_CUDA = """\
cmake_minimum_required(VERSION 3.18)
project(scale LANGUAGES CXX)
find_package(CUDA REQUIRED)
set(CUDA_NVCC_FLAGS -arch=sm_90)
cuda_add_library(scale STATIC scale.cu)
"""


@pytest.mark.needs_cmake
@pytest.mark.parametrize("generator", ["Ninja", "Unix Makefiles"])
def test_the_nvcc_of_cmake_s_old_module_is_caught(program: Program, generator: str) -> None:
    """FindCUDA calls it from scripts of its own, by a path that it has in the cache under a name of its own."""
    (program.folder / "scale.cu").write_text(SOURCE)
    (program.folder / "CMakeLists.txt").write_text(FIND_CUDA)
    configure = ["cmake", "-Wno-dev", "-S", ".", "-B", "b", "-G", generator]
    configured = subprocess.run(
        configure, cwd=program.folder, env=clean_environment(), capture_output=True, text=True, check=False
    )
    assert configured.returncode == 0, configured.stderr
    done = supervised(program, "cmake", "--build", "b")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "by its own path" not in done.stderr
    kinds = [record.phase.kind for record in program.records() if isinstance(record, PhaseAsked)]
    assert [kind for kind in kinds if kind != "preprocess"] == ["cudafe++", "cicc", "ptxas", "host"]


@pytest.mark.needs_cmake
def test_a_cmake_below_such_a_makefile_configures_as_ever(program: Program) -> None:
    """It asks nvcc for what is in its profile; its own nvcc is caught then."""
    (program.folder / "scale.cu").write_text(SOURCE)
    (program.folder / "Makefile").write_text(MAKEFILE)
    (program.folder / "CMakeLists.txt").write_text(LISTS)
    done = supervised(program, "make", "scale.o", "configured/scale.o")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "by its own path" not in done.stderr
    kinds = [record.phase.kind for record in program.records() if isinstance(record, PhaseAsked)]
    assert kinds.count(PhaseKind.CICC) == kinds.count(PhaseKind.PTXAS) >= 2
    compiler = program.folder / "configured" / "CMakeFiles"
    found = next(compiler.glob("*/CMakeCUDACompiler.cmake")).read_text()
    assert 'set(CMAKE_CUDA_HOST_IMPLICIT_LINK_DIRECTORIES "")' not in found
    assert "/include" in found


def test_an_nvcc_that_is_not_caught_is_said(program: Program) -> None:
    """nvcc by its own path from a script: the host compiler is gated, and the user is told about the rest, once."""
    nvcc = layouts.real_home() / "bin" / "nvcc"
    (program.folder / "scale.cu").write_text(SOURCE)
    script = f"{nvcc} -arch=sm_90 -c scale.cu && {nvcc} -arch=sm_90 -c scale.cu"
    done = program.run("run", "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(f"{nvcc} is called by its own path") == 1
