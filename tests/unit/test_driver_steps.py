"""Steps as nvcc and gcc print them: which is a phase's, and which make its input."""

from __future__ import annotations

import pytest

from builddoctor.intercept.driver_steps import bare_arguments, find_step, read_dryrun, read_inner, steps_before

T = "/t/tmpxft_1_0"
DRYRUN = f"""\
#$ _SPACE_=
#$ TOP=/cuda/bin/..
#$ CICC_PATH=/cuda/bin/../nvvm/bin
#$ PATH=/cuda/nvvm/bin:/cuda/bin:/usr/bin
#$ LIBRARIES=  "-L/cuda/lib/stubs"
nvcc warning : incompatible redefinition for option 'threads', the last value of this option was used
#$ gcc -D__CUDA_ARCH__=900 -E -x c++ -D__NVCC__ "a b.cu" -o "{T}-8_a.compute_90.cpp1.ii"
#$ gcc -D__CUDA_ARCH__=1000 -E -x c++ -D__NVCC__ "a b.cu" -o "{T}-9_a.compute_100.cpp1.ii"
#$ gcc -E -x c++ -D__NVCC__ "a b.cu" -o "{T}-5_a.cpp4.ii"
#$ -- Filter Dependencies -- > a.d
#$ cudafe++ --gen_c_file_name "{T}-6_a.cudafe1.cpp" --module_id_file_name "{T}-4_a.module_id" "{T}-5_a.cpp4.ii"
#$ "$CICC_PATH/cicc" -arch compute_90 --module_id_file_name "{T}-4_a.module_id" "{T}-8_a.compute_90.cpp1.ii" \
-o "{T}-7_a.compute_90.ptx" > {T}_stdout 2>{T}_stderr
#$ ptxas -arch=sm_90 "{T}-7_a.compute_90.ptx" -o "{T}-10_a.compute_90.cubin"
#$ "$CICC_PATH/cicc" -arch compute_100 --module_id_file_name "{T}-4_a.module_id" "{T}-9_a.compute_100.cpp1.ii" \
-o "{T}-6_a.compute_100.ptx"
#$ ptxas -arch=sm_100 "{T}-6_a.compute_100.ptx" -o "{T}-11_a.compute_100.cubin"
#$ fatbinary "--image3=kind=elf,sm=90,file={T}-10_a.compute_90.cubin" --embedded-fatbin="{T}-3_a.fatbin.c"
#$ rm {T}-3_a.fatbin
#$ gcc -D__CUDA_ARCH__=1000 -c -x c++ -O3 "{T}-6_a.cudafe1.cpp" -o "a.o"
"""
GCC = """\
Using built-in specs.
COLLECT_GCC=gcc
gcc version 12.2.0 (Debian 12.2.0-14+deb12u1)
 /usr/lib/gcc/12/cc1plus -quiet -I "foo bar" a.cpp -quiet -dumpbase a.cpp "-std=c++17" -o /tmp/ccX.s
 as -I "foo bar" --64 -o a.o /tmp/ccX.s
"""


def test_a_dryrun_is_read_without_what_is_not_run() -> None:
    """Settings, comments, warnings and removals are no steps; redirections are dropped, $CICC_PATH is put in."""
    read = read_dryrun(DRYRUN)
    names = [step.name for step in read.steps]
    assert names == ["gcc"] * 3 + ["cudafe++", "cicc", "ptxas", "cicc", "ptxas", "fatbinary", "gcc"]
    assert read.steps[0].words[-3] == "a b.cu"
    assert read.steps[4].words[0] == "/cuda/bin/../nvvm/bin/cicc"
    assert "stdout" not in read.steps[4].line
    assert read.settings["PATH"] == "/cuda/nvvm/bin:/cuda/bin:/usr/bin"


@pytest.mark.parametrize(
    ("tool", "kind", "arch", "place", "before"),
    [
        ("cudafe++", "cudafe++", "", 3, [2]),
        ("cicc", "cicc", "sm_90", 4, [0, 2, 3]),
        ("cicc", "cicc", "sm_100", 6, [1, 2, 3]),
        ("ptxas", "ptxas", "sm_100", 7, [1, 2, 3, 6]),
        ("fatbinary", "fatbinary", "", 8, [0, 2, 3, 4, 5]),
        ("cc1plus", "preprocess", "", 2, []),
        ("cc1plus", "preprocess", "sm_90", 0, []),
        ("cc1plus", "host", "", 9, [0, 1, 2, 3, 4, 5, 6, 7, 8]),
    ],
)
def test_a_phase_step_and_those_before_it(tool: str, kind: str, arch: str, place: int, before: list[int]) -> None:
    """Nothing is compiled for another architecture; the host's part includes what all steps made."""
    steps = read_dryrun(DRYRUN).steps
    assert find_step(steps, tool=tool, kind=kind, arch=arch) == place
    assert steps_before(steps, place) == before


def test_a_step_that_is_not_there_is_none() -> None:
    """Another architecture, another program."""
    steps = read_dryrun(DRYRUN).steps
    assert find_step(steps, tool="cicc", kind="cicc", arch="sm_75") is None
    assert find_step(steps, tool="nvlink", kind="nvlink", arch="") is None
    assert find_step((), tool="cicc", kind="cicc", arch="") is None


def test_gcc_programs_are_the_lines_behind_a_blank() -> None:
    """With their quoting undone."""
    steps = read_inner(GCC).steps
    assert [step.name for step in steps] == ["cc1plus", "as"]
    assert steps[0].words[1:4] == ("-quiet", "-I", "foo bar")
    assert read_inner('gcc: error: no\n /x "unbalanced\n').steps == ()


def test_a_bare_command_writes_nothing_of_the_build() -> None:
    """No dependency file, no object, no kept or timed files: making a repro must leave the build folder as it is."""
    argv = [
        *("-O3", "-MD", "-MT", "a.o", "-MF", "a.d", "--threads", "4", "-t8", "--keep", "-o", "a.o", "-c", "a.cu"),
        *("--dependency-output=a.d", "-t=2", "-fdevice-time-trace", "x", "--generate-dependencies-with-compile"),
    ]
    assert bare_arguments(argv, output="/t/out.o") == ["-O3", "-c", "a.cu", "-o", "/t/out.o"]
