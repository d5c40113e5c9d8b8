"""A toolkit that the build's own script chooses, as `module load` does: as in a plain build, and gated.

The second toolkit is the first by other paths: the headers that a compile has read say which one it was.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from builddoctor.core.events import PhaseAsked
from builddoctor.core.phase import PhaseKind
from builddoctor.trace.analysis import read_build
from support import layouts
from support.program import Program

pytestmark = [pytest.mark.needs_nvcc]

SOURCE = "__global__ void scale(float *x) { x[threadIdx.x] *= 2; }\n"
PHASES = ["cudafe++", "cicc", "ptxas", "host"]
CMAKE = "project(one CUDA)\ncmake_minimum_required(VERSION 3.18)\nadd_library(one STATIC scale.cu)\n"
MODULE = 'export CUDA_HOME="{home}" PATH="{home}/bin:$PATH"\n'
TORCH = """\
cat > build.ninja <<END
rule cu
  command = $PYTORCH_NVCC -arch=sm_90 -MD -MF \\$out.d -c \\$in -o \\$out
build scale.o: cu scale.cu
END
ninja
"""
NINJA = "ninja -C b -d keepdepfile\n"
OBJECT = "b/CMakeFiles/one.dir/scale.cu.o"
CHOSEN = "from here on the build takes CUDA"


class Later:
    """Builds in which a toolkit at ``home`` is loaded."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.folder = program.folder
        self.home = layouts.conda(self.folder / "module").parent.parent
        # Its python is not one, as in conda's folder; a module has none.
        (self.home / "bin" / "python3").unlink()
        (self.folder / "scale.cu").write_text(SOURCE)
        (self.folder / "CMakeLists.txt").write_text(CMAKE)

    def run(self, script: str, *, options: tuple[str, ...] = ()) -> str:
        """What builddoctor said; the script must succeed."""
        files = ("--trace", str(self._program.trace_file))
        done = self._program.run("run", *files, *options, "--", "sh", "-ec", script)
        assert done.returncode == 0, done.stderr
        return done.stderr

    def kinds(self) -> list[PhaseKind]:
        """Of the phases of our one source; all gcc's preprocessors are left out."""
        asked = [each.phase for each in self._program.records() if isinstance(each, PhaseAsked)]
        return [
            each.kind for each in asked if each.source.endswith("scale.cu") and each.kind is not PhaseKind.PREPROCESS
        ]

    def toolkit(self) -> str:
        """What the trace says that the build was made with."""
        return read_build(self._program.trace_file).header.toolkit

    def was_read(self, dependencies: str) -> bool:
        """The compile that wrote this file read the headers of the toolkit that was loaded."""
        return str(self.home) in (self.folder / dependencies).read_text()


@pytest.fixture
def later(program: Program) -> Later:
    return Later(program)


@pytest.fixture
def other_programs(tmp_path: Path, program: Program) -> str:
    """A folder with a cmake and a ninja of its own, as a module or a conda environment has it."""
    folder = tmp_path / "others"
    folder.mkdir()
    for name in ("cmake", "ninja"):
        found = shutil.which(name, path=program.env["PATH"])
        assert found
        (folder / name).write_text(f'#!/bin/sh\nexec {found} "$@"\n')
        (folder / name).chmod(0o755)
    return str(folder)


@pytest.mark.needs_cmake
def test_cmake_takes_the_toolkit_that_was_loaded(later: Later) -> None:
    said = later.run(
        MODULE.format(home=later.home) + "cmake -G Ninja -S . -B b -DCMAKE_CUDA_ARCHITECTURES=90 >/dev/null\n" + NINJA
    )
    assert said.count(CHOSEN) == 1
    cache = (later.folder / "b" / "CMakeCache.txt").read_text()
    gate = next(line for line in cache.splitlines() if line.startswith("CMAKE_CUDA_COMPILER:")).partition("=")[2]
    assert str(later.home) in Path(gate).read_text()
    assert later.was_read(f"{OBJECT}.d")
    assert later.kinds() == PHASES
    assert later.toolkit() == str(later.home)


@pytest.mark.needs_cmake
def test_a_cmake_of_the_module_takes_it_too(later: Later, other_programs: str) -> None:
    """No front is asked then: nvcc's gate is called by the variable that names it."""
    load = MODULE.format(home=later.home) + f'export PATH="{other_programs}:$PATH"\n'
    said = later.run(f"{load}cmake -G Ninja -S . -B b -DCMAKE_CUDA_ARCHITECTURES=90 >/dev/null\n{NINJA}")
    assert "without builddoctor its folder is built with that" in said
    assert str(later.home) in next(later.folder.glob("b/CMakeFiles/*/CMakeCUDACompiler.cmake")).read_text()
    assert later.was_read(f"{OBJECT}.d")
    assert later.kinds() == PHASES


@pytest.mark.needs_cmake
def test_a_folder_that_was_configured_before_keeps_its_toolkit(later: Later) -> None:
    """As in a plain build: what is loaded afterwards changes nothing."""
    later.run("cmake -G Ninja -S . -B b -DCMAKE_CUDA_ARCHITECTURES=90")
    assert CHOSEN not in later.run(MODULE.format(home=later.home) + NINJA)
    assert not later.was_read(f"{OBJECT}.d")
    assert later.kinds() == PHASES
    assert later.toolkit() == str(layouts.real_home())


def test_torch_takes_the_toolkit_that_cuda_home_names(later: Later, other_programs: str) -> None:
    """By torch's ninja file; also with a ninja that is no gate."""
    load = f'export CUDA_HOME="{later.home}"\n'
    assert CHOSEN in later.run(load + TORCH)
    assert later.was_read("scale.o.d")
    assert later.kinds() == PHASES
    (later.folder / "scale.o").unlink()
    assert CHOSEN in later.run(load + f'export PATH="{other_programs}:$PATH"\n' + TORCH)
    assert later.was_read("scale.o.d")


def test_a_toolkit_on_path_alone_is_not_mixed_with_ours(later: Later) -> None:
    """CUDA_HOME is ours there, and has given torch the folders of the headers: that is said."""
    said = later.run(f'export PATH="{later.home}/bin:$PATH"\n' + TORCH)
    assert CHOSEN not in said
    assert "let it set CUDA_HOME as well" in said
    assert not later.was_read("scale.o.d")
    assert later.kinds() == PHASES


@pytest.mark.parametrize("nvcc", ["nvcc", "$(CUDA_HOME)/bin/nvcc"])
def test_make_takes_the_toolkit_that_was_loaded(later: Later, nvcc: str) -> None:
    (later.folder / "Makefile").write_text(f"scale.o: scale.cu\n\t{nvcc} -arch=sm_90 -MD -MF $@.d -c $< -o $@\n")
    said = later.run(MODULE.format(home=later.home) + "make")
    assert said.count(CHOSEN) == 1
    assert later.was_read("scale.o.d")
    assert later.kinds() == PHASES
    assert later.toolkit() == str(later.home)


def test_a_toolkit_that_the_user_named_stays(later: Later) -> None:
    """`--toolkit` is said to us, and to nobody else."""
    named = str(layouts.real_home())
    assert CHOSEN not in later.run(MODULE.format(home=later.home) + TORCH, options=("--toolkit", named))
    assert not later.was_read("scale.o.d")


def test_a_module_that_is_loaded_in_an_activated_shell(later: Later, program: Program) -> None:
    """Activation named the toolkit of its own moment. The build is `sh`: its build.ninja is of the build's own time."""
    words = shlex.join(program.argv("activate", "--shell", "sh"))
    script = f'eval "$({words})"\n{MODULE.format(home=later.home)}sh -ec {shlex.quote(TORCH)}'
    subprocess.run(["sh", "-ec", script], cwd=later.folder, env=program.env, check=True, capture_output=True)
    assert later.was_read("scale.o.d")


def test_a_script_that_calls_the_loaded_nvcc_by_its_name_is_told_what_helps(later: Later, program: Program) -> None:
    """No gate is asked on the way; what the sentence says is then done."""
    compile_it = "nvcc -arch=sm_90 -MD -MF scale.o.d -c scale.cu -o scale.o\n"
    said = later.run(MODULE.format(home=later.home) + compile_it)
    assert 'say behind them in the script: eval "$(builddoctor activate)"' in said
    assert later.kinds() == ["host"]
    activate = f'eval "$({shlex.join(program.argv("activate", "--shell", "sh"))})"\n'
    said = later.run(MODULE.format(home=later.home) + activate + compile_it)
    assert "unasked" not in said
    assert later.was_read("scale.o.d")
    assert later.kinds() == PHASES
