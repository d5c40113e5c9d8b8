"""A phase's command: its step among its driver's, and the command beside copies of what it reads."""

from __future__ import annotations

import pytest

from builddoctor.toolchain.nvcc import parse_dryrun
from builddoctor.toolchain.phase_commands import (
    bare_arguments,
    beside,
    find_step,
    input_paths,
    parse_inner_steps,
    preprocessing,
    short_name,
    source_path,
    steps_before,
)

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
    read = parse_dryrun(DRYRUN)
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
    steps = parse_dryrun(DRYRUN).steps
    assert find_step(steps, tool=tool, kind=kind, arch=arch) == place
    assert steps_before(steps, place) == before


def test_a_step_that_is_not_there_is_none() -> None:
    """Another architecture, another program."""
    steps = parse_dryrun(DRYRUN).steps
    assert find_step(steps, tool="cicc", kind="cicc", arch="sm_75") is None
    assert find_step(steps, tool="nvlink", kind="nvlink", arch="") is None
    assert find_step((), tool="cicc", kind="cicc", arch="") is None


def test_gcc_programs_are_the_lines_behind_a_blank() -> None:
    """With their quoting undone."""
    steps = parse_inner_steps(GCC)
    assert [step.name for step in steps] == ["cc1plus", "as"]
    assert steps[0].words[1:4] == ("-quiet", "-I", "foo bar")
    assert parse_inner_steps('gcc: error: no\n /x "unbalanced\n') == ()


def test_a_bare_command_writes_nothing_of_the_build() -> None:
    """No dependency file, no object, no kept or timed files: making a repro must leave the build folder as it is."""
    argv = [
        *("-O3", "-MD", "-MT", "a.o", "-MF", "a.d", "--threads", "4", "-t8", "--keep", "-o", "a.o", "-c", "a.cu"),
        *("--dependency-output=a.d", "-t=2", "-fdevice-time-trace", "x", "--generate-dependencies-with-compile"),
    ]
    assert bare_arguments(argv, output="/t/out.o") == ["-O3", "-c", "a.cu", "-o", "/t/out.o"]


MARK = "/tmp/tmpxft_00005389_00000000"
CUDAFE = [
    *("--c++17", "--orig_src_file_name", "a.cu", "--orig_src_path_name", "/build/src/a.cu", "--gen_c_file_name"),
    *(f"{MARK}-6_a.cudafe1.cpp", "--stub_file_name", "tmpxft_00005389_00000000-6_a.cudafe1.stub.c"),
    *("--gen_module_id_file", "--module_id_file_name", f"{MARK}-4_a.module_id", f"{MARK}-5_a.cpp4.ii"),
]
CICC = [
    *("-arch", "compute_90", "--orig_src_path_name", "/build/src/a.cu"),
    *("--module_id_file_name", f"{MARK}-4_a.module_id", "--gen_c_file_name", f"{MARK}-6_a.cudafe1.c"),
    *(f"{MARK}-9_a.compute_90.cpp1.ii", "-o", f"{MARK}-6_a.compute_90.ptx"),
]
PTXAS = ["-arch=sm_90", "-m64", f"{MARK}-6_a.compute_90.ptx", "-o", f"{MARK}-10_a.compute_90.cubin"]
FATBINARY = [f"--image3=kind=elf,sm=90,file={MARK}-10_a.cubin", f"--embedded-fatbin={MARK}-3_a.fatbin.c"]
HOST = [
    *("-quiet", "-I", "/build/include", "-imultiarch", "x86_64-linux-gnu", "-D_GNU_SOURCE", "-D", "X=1", "-isystem"),
    *("/cuda/include", "/build/src/a.cpp", "-quiet", "-dumpbase", "a.cpp", "-MD", "a.d", "-MQ", "a.o", "-O2"),
    "-version",
    *("-std=c++17", "-include", "first.h", "-o", "/tmp/ccX.s"),
]


def test_nvcc_temporary_names_become_short() -> None:
    """What nvcc puts before a name says nothing to anybody else."""
    assert short_name(f"{MARK}-5_a.cpp4.ii") == "a.cpp4.ii"
    assert short_name("/build/src/a.cpp") == "a.cpp"
    assert short_name("/build/") == "input"


@pytest.mark.parametrize(
    ("name", "argv", "expected"),
    [
        ("cudafe++", CUDAFE, [f"{MARK}-5_a.cpp4.ii"]),
        ("cicc", CICC, [f"{MARK}-4_a.module_id", f"{MARK}-9_a.compute_90.cpp1.ii"]),
        ("ptxas", PTXAS, [f"{MARK}-6_a.compute_90.ptx"]),
        ("fatbinary", FATBINARY, [f"{MARK}-10_a.cubin"]),
        ("collect2", ["-o", "lib.so", "a.o", "b.o"], []),
    ],
)
def test_what_a_program_reads_is_told_from_what_it_writes(name: str, argv: list[str], expected: list[str]) -> None:
    """All files that the command names are there, from the run before: only inputs are copied, and no objects."""
    assert input_paths(name, argv, lambda path: "." in path) == expected


def test_a_gcc_source_is_its_one_plain_word() -> None:
    """Values of options are none, though such files are there too."""
    assert source_path("cc1plus", HOST, lambda _: True) == "/build/src/a.cpp"
    assert source_path("cc1plus", ["-quiet", "a.cpp", "b.cpp"], lambda _: True) == ""
    assert source_path("cicc", CICC, lambda _: True) == ""


def test_the_command_beside_its_copies_names_nothing_else() -> None:
    """No path of the machine that it came from is left, and what it writes goes into the folder."""
    cudafe = beside(CUDAFE, {f"{MARK}-5_a.cpp4.ii": "a.cpp4.ii"})
    assert cudafe[-1] == "a.cpp4.ii"
    assert cudafe[cudafe.index("--orig_src_path_name") + 1] == "a.cu"
    assert cudafe[cudafe.index("--module_id_file_name") + 1] == "a.module_id"
    cicc = beside(CICC, {f"{MARK}-4_a.module_id": "a.module_id", f"{MARK}-9_a.compute_90.cpp1.ii": "a.cpp1.ii"})
    assert cicc[-3:] == ["a.cpp1.ii", "-o", "a.compute_90.ptx"]
    fatbinary = beside(FATBINARY, {f"{MARK}-10_a.cubin": "a.cubin"})
    assert fatbinary == ["--image3=kind=elf,sm=90,file=a.cubin", "--embedded-fatbin=a.fatbin.c"]
    assert not [word for word in [*cudafe, *cicc, *fatbinary] if "/" in word]


def test_a_preprocessed_source_needs_no_folders() -> None:
    """Of a cc1plus only what says how it compiles is left; its output is called alike each time."""
    argv = beside(HOST, {"/build/src/a.cpp": "a.ii"}, preprocessed=True)
    assert argv == ["-fpreprocessed", "-quiet", "a.ii", "-quiet", "-O2", "-std=c++17", "-o", "out.s"]


def test_preprocessing_writes_nothing_but_its_output() -> None:
    """No dependency file of the build is touched; what decides over the text is all there."""
    argv = preprocessing(HOST, "/kept/a.ii")
    assert argv[0] == "-E"
    assert argv[-2:] == ["-o", "/kept/a.ii"]
    assert not {"-MD", "a.d", "-MQ", "a.o", "/tmp/ccX.s"} & set(argv)
    assert {"-I", "/build/include", "-D", "X=1", "-include", "first.h", "-std=c++17"} <= set(argv)


def test_an_output_never_takes_an_input_place() -> None:
    """Two files of one name, from two folders: the input stays what it is."""
    argv = beside(["-o", "/out/a.ii", "/in/a.ii"], {"/in/a.ii": "a.ii"})
    assert argv == ["-o", "out-a.ii", "a.ii"]


def test_what_a_linker_needs_is_named_by_its_whole_path() -> None:
    """Objects are not copied: from another folder they are still found."""
    argv = beside(["-L../lib", "-o", "../bin/x", "a.o", "-lm", "/usr/lib/crt1.o"], {}, elsewhere="/build/build")
    assert argv == ["-L/build/lib", "-o", "x", "/build/build/a.o", "-lm", "/usr/lib/crt1.o"]
