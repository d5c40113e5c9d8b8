"""Command lines: phases as nvcc 13.0 and gcc 12 really call their tools, and units of drivers."""

from __future__ import annotations

import shlex

import pytest

from builddoctor.core.phase import PhaseKind, Unit
from builddoctor.toolchain.command_lines import (
    PhaseFacts,
    driver_unit,
    nvcc_unit,
    options_digest,
    parse_sizes,
    phase_facts,
)
from unit.trees import MIB

TMP = "/tmp/tmpxft_0000076c_00000000"
CUDAFE = (
    "--c++17 --static-host-stub --device-hidden-visibility --gnu_version=120200 --orig_src_file_name a.cu "
    "--orig_src_path_name /tmp/t/a.cu --allow_managed --m64 --parse_templates "
    f"--gen_c_file_name {TMP}-6_a.cudafe1.cpp --stub_file_name tmpxft_0000076c_00000000-6_a.cudafe1.stub.c "
    f"--gen_module_id_file --module_id_file_name {TMP}-4_a.module_id {TMP}-5_a.cpp4.ii"
).split()
CICC = (
    "--c++17 --static-host-stub --orig_src_file_name a.cu --orig_src_path_name /tmp/t/a.cu --allow_managed "
    "-arch compute_90a -m64 --no-version-ident -ftz=0 --include_file_name tmpxft_0000076c_00000000-3_a.fatbin.c "
    f"--gen_device_file_name {TMP}-6_a.cudafe1.gpu {TMP}-7_a.cpp1.ii -o {TMP}-6_a.ptx"
).split()
PREPROCESS = (
    "-E -quiet -I /usr/local/cuda/include -imultiarch x86_64-linux-gnu -D__CUDA_ARCH__=900 -D _GNU_SOURCE "
    f"-include cuda_runtime.h a.cu -o {TMP}-7_a.cpp1.ii -mtune=generic"
).split()
HOST = [
    "-quiet",
    "-imultiarch",
    "x86_64-linux-gnu",
    "-D_GNU_SOURCE",
    "-MD",
    "a.d",
    "-MMD",
    "b.d",
    "-MF",
    "c.d",
    "-MQ",
    "b.o",
    "b.cpp",
    "-quiet",
    "-dumpbase",
    "b.cpp",
    "-dumpbase-ext",
    ".cpp",
    "-mtune=generic",
    "-o",
    "/tmp/ccVDfXxD.s",
]
NVCC_HOST = f"-quiet -D__CUDA_ARCH__=900 {TMP}-6_a.cudafe1.cpp -quiet -dumpbase x.cpp -o /tmp/ccA.s".split()
COLLECT2 = ["--eh-frame-hdr", "-shared", "-o", "lib/x.so", "crti.o", "a.o", "b.o", "-L", "lib/y.a", "-lcudart"]


def facts(name: str, argv: list[str], files: dict[str, float]) -> PhaseFacts:
    """Facts of a command line; ``files``: size in MiB by the end of the argument that names the file."""
    sizes = {
        index: int(size * MIB) for index, word in enumerate(argv) for end, size in files.items() if word.endswith(end)
    }
    return phase_facts(name, argv, sizes)


@pytest.mark.parametrize(
    ("name", "argv", "files", "expected"),
    [
        ("cudafe++", CUDAFE, {"cpp4.ii": 5, "cudafe1.cpp": 9}, (PhaseKind.CUDAFE, "/tmp/t/a.cu", "", 5)),
        ("cicc", CICC, {"cpp1.ii": 7, "a.ptx": 3}, (PhaseKind.CICC, "/tmp/t/a.cu", "sm_90a", 7)),
        ("cc1plus", PREPROCESS, {"a.cu": 0.5, "cpp1.ii": 8}, (PhaseKind.PREPROCESS, "a.cu", "", 0.5)),
        ("cc1plus", HOST, {"b.cpp": 0.25, "b.d": 1}, (PhaseKind.HOST, "b.cpp", "", 0.25)),
        ("cc1plus", NVCC_HOST, {"cudafe1.cpp": 6}, (PhaseKind.HOST, "a", "", 6)),
        ("collect2", COLLECT2, {"a.o": 4, "b.o": 2, "y.a": 1}, (PhaseKind.LINK, "lib/x.so", "", 7)),
        ("lto1", ["-quiet", "-fltrans", "x.o", "-o", "x.s"], {"x.o": 1}, (PhaseKind.LINK, "x.s", "", 1)),
        ("nvlink", ["-arch=sm_90", "a.o", "-o", "d.cubin"], {"a.o": 2}, (PhaseKind.NVLINK, "d.cubin", "sm_90", 2)),
        ("clang", ["-O3", "-c", "x.cpp", "-o", "x.o"], {"x.cpp": 1}, (PhaseKind.HOST, "x.cpp", "", 1)),
        ("clang++", ["-E", "x.cpp"], {"x.cpp": 1}, (PhaseKind.PREPROCESS, "x.cpp", "", 1)),
        ("clang++", ["x.o", "y.o", "-o", "prog"], {"x.o": 1}, (PhaseKind.LINK, "x.o", "", 1)),
        ("cc1", ["-quiet", "-"], {}, (PhaseKind.HOST, "", "", 0)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_command_line_tells_what_a_phase_does(name: str, argv: list[str], files: dict, expected: tuple) -> None:
    """Kind, source, arch and the size of the input that counts, outputs and dependency files left aside."""
    found = facts(name, argv, files)
    assert (found.kind, found.source, found.arch, found.input_mib) == expected


@pytest.mark.parametrize(
    ("ptx", "source"),
    [
        (f"{TMP}-6_a.ptx", "a"),
        (f"{TMP}-6_a.compute_90.ptx", "a"),
        (f"{TMP}-6_a.compute_100a.ptx", "a"),
        (f"{TMP}-6_my.kernel.v2.compute_90.ptx", "my.kernel.v2"),
        ("/tmp/tmpxft_00aB_1-10_a.ptx", "/tmp/tmpxft_00aB_1-10_a.ptx"),
        ("kept/a.ptx", "kept/a.ptx"),
    ],
)
@pytest.mark.parametrize(("arch", "sm"), [("-arch=sm_90", "sm_90"), ("--gpu-name=sm_100a", "sm_100a"), ("-m64", "")])
def test_ptxas_is_told_apart_by_its_temporary_file(ptx: str, source: str, arch: str, sm: str) -> None:
    """nvcc names temporary files after their unit, with the arch in them when there are several."""
    found = facts("ptxas", [arch, "-m64", ptx, "-o", f"{TMP}-8_a.sm_90.cubin"], {".ptx": 12, ".cubin": 50})
    assert found == PhaseFacts(kind=PhaseKind.PTXAS, source=source, arch=sm, input_mib=12)


def test_ptxas_takes_its_arch_as_a_word_of_its_own_too() -> None:
    """``-arch sm_90`` is ``-arch=sm_90``."""
    assert facts("ptxas", ["-arch", "sm_90", "a.ptx"], {".ptx": 1}).arch == "sm_90"


@pytest.mark.parametrize(
    ("temporary", "source"),
    [("-5_a.cpp4.ii", "a"), ("-7_a.compute_90.cpp1.ii", "a"), ("-7_b.c.cpp1.ii", "b.c")],
)
def test_a_front_end_without_a_source_name_is_known_by_its_input(temporary: str, source: str) -> None:
    """The temporary file's stem stands for the source."""
    assert facts("cudafe++", ["--m64", TMP + temporary], {".ii": 2}).source == source


@pytest.mark.parametrize("name", ["cudafe++", "cicc", "ptxas", "nvlink", "collect2", "lto1", "cc1plus", "clang", "x"])
@pytest.mark.parametrize("argv", [[], ["-o"], ["-arch"], ["--orig_src_path_name"], ["-", "", "-E", "-c"]])
def test_short_command_lines_are_no_error(name: str, argv: list[str]) -> None:
    """Nothing to read gives nothing, sizes beyond the arguments included."""
    assert phase_facts(name, argv, {0: 1, 99: 5}).input_mib >= 0


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("", {}),
        ("3=100", {3: 100}),
        ("3=100,17=0", {3: 100, 17: 0}),
        ("3=100,,=,x=1,4=y,-1=5,5=-2,6=7=8,²=1,8=9", {3: 100, 8: 9}),
    ],
)
def test_sizes_are_read_as_gates_send_them(text: str, sizes: dict[int, int]) -> None:
    """Anything else in them is passed over."""
    assert parse_sizes(text) == sizes


CMAKE = (
    "-forward-unknown-to-host-compiler -Iinc -I /x/y.cpp '--generate-code=arch=compute_90,code=[compute_90,sm_90]' "
    "-O3 --threads 3 -x cu -c src/a.cu -o CMakeFiles/x.dir/src/a.cu.o"
)
TORCH = (
    "-gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_90a,code=sm_90a -c a.cu -o a.o --threads=4 "
    "-DTORCH_API_INCLUDE_EXTENSION_H -Xcompiler -fPIC"
)
TWICE = "-gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 -c a.cu"


def nvcc(text: str, cwd: str = "/src/build") -> Unit:
    return nvcc_unit("u1", shlex.split(text), cwd)


@pytest.mark.parametrize(
    ("text", "source", "output", "archs", "threads"),
    [
        (CMAKE, "src/a.cu", "CMakeFiles/x.dir/src/a.cu.o", ("sm_90",), 3),
        (TORCH, "a.cu", "a.o", ("sm_80", "sm_90a"), 4),
        ("-arch=sm_90 -c a.cu", "a.cu", "", ("sm_90",), 1),
        ("-arch sm_90a -c a.cu --output-file b.o", "a.cu", "b.o", ("sm_90a",), 1),
        ("--gpu-architecture=compute_100f -t 8 -dc x.cpp", "x.cpp", "", ("sm_100f",), 8),
        ("-arch=sm_90 -t4 -c a.cu", "a.cu", "", ("sm_90",), 4),
        (TWICE, "a.cu", "", ("sm_80", "sm_90"), 1),
        ("-gencode arch=compute_80,code=[sm_80,sm_86] -c a.cu", "a.cu", "", ("sm_80", "sm_86"), 1),
        ("-arch=native -c a.cu --threads 0", "a.cu", "", (), 0),
        ("-arch=all-major -c a.cu --threads many", "a.cu", "", (), 1),
    ],
)
def test_an_nvcc_call_is_a_unit(text: str, source: str, output: str, archs: tuple, threads: int) -> None:
    """Source, output, archs and threads, as CMake, torch and people write them."""
    unit = nvcc(text)
    assert (unit.source, unit.output, unit.archs, unit.threads) == (source, output, archs, threads)
    assert unit.counted


@pytest.mark.parametrize(
    "text",
    [
        "-arch=sm_90 -c code_sm_70/a.cu",
        "-arch=sm_90 -I/opt/arch_sm_80/include -c a.cu",
        "-arch=sm_90 -c a.cu -o out/code_sm_75/a.o",
    ],
)
def test_the_name_of_a_file_is_no_architecture(text: str) -> None:
    """Folders called after archs are common; only options name the ones that are compiled for."""
    assert nvcc(text).archs == ("sm_90",)


@pytest.mark.parametrize(
    "option",
    ["-c", "--compile", "-dc", "--device-c", "-dw", "-ptx", "--ptx", "-cubin", "--cubin", "-fatbin", "--fatbin"],
)
def test_every_way_to_compile_is_counted(option: str) -> None:
    """Short and long forms alike."""
    assert nvcc(f"{option} a.cu -o a.x").counted


@pytest.mark.parametrize(
    ("text", "counted"),
    [
        ("-O3 -std=c++17 train_gpt2.cu -lcublas -lcublasLt -o train_gpt2cu", True),
        ("-arch=sm_90 a.cu b.o -o prog", True),
        ("-shared -Xcompiler -fPIC a.cu -o liba.so", True),
        ("a.cu b.cu -o prog", False),
        ("-M a.cu -o a.d", False),
        ("-E a.cu -o a.ii", False),
        ("-dlink a.o b.o -o d.o", False),
        ("sanitycheckcuda.cu -o sanitycheckcuda.exe", False),
    ],
)
def test_a_program_of_one_source_is_counted(text: str, counted: bool) -> None:
    """Compiled and linked at once: its past is that of one source. Of several no past says which is which."""
    assert nvcc(text, "/b/meson-private" if "sanity" in text else "/b").counted == counted


@pytest.mark.parametrize(
    ("text", "cwd"),
    [
        ("a.o b.o -o prog", "/b"),
        ("--version", "/b"),
        ("-shared a.o -o x.so", "/b"),
        ("-c", "/b"),
        ("-c CMakeCUDACompilerId.cu", "/b/CMakeFiles/3.25.1/CompilerIdCUDA"),
        ("-c src.cu", "/b/CMakeFiles/CMakeScratch/TryCompile-x1"),
        ("-c /b/CMakeFiles/CMakeTmp/x.cu", "/b"),
        ("-c /usr/share/cmake/Modules/CMakeCUDACompilerABI.cu -o x.o", "/b/CMakeFiles/CMakeScratch/TryCompile-x1"),
        ("-c conftest.cu -o conftest.o", "/b"),
        ("-c /tmp/tmpk3_9x0ab/test.c -o /tmp/tmpk3_9x0ab/test.o", "/home/me/DeepSpeed"),
    ],
)
def test_links_and_tries_of_the_compiler_are_not_counted(text: str, cwd: str) -> None:
    """The number of units on the screen is the project's own."""
    assert not nvcc(text, cwd).counted


def test_a_project_that_lies_in_a_temporary_folder_is_counted() -> None:
    """What is built there is not there to be tried out."""
    assert nvcc("-c /tmp/tmpk3_9x0ab/a.cu -o a.o", "/tmp/tmpk3_9x0ab").counted
    assert nvcc("-c /tmp/tmpk3_9x0ab/src/a.cu -o a.o", "/work").counted


def test_the_sources_of_a_unity_build_are_counted() -> None:
    """CMake generates them below CMakeFiles, but they are the project's."""
    assert nvcc("-c /b/CMakeFiles/x.dir/Unity/unity_0_cu.cu -o CMakeFiles/x.dir/Unity/unity_0_cu.cu.o", "/b").counted


@pytest.mark.parametrize(
    ("text", "source", "output"),
    [
        ("-MMD -MF a.d -MT a.o -c src/a.cpp -o a.o", "src/a.cpp", "a.o"),
        ("-include config.h -isystem /x.c -DX=1 -c b.cc", "b.cc", ""),
        ("-x c++ -c -o b.o b.C", "b.C", "b.o"),
        ("-c odd.c++ -Wl,-rpath,x.c", "odd.c++", ""),
    ],
)
def test_a_host_compiler_call_is_a_unit(text: str, source: str, output: str) -> None:
    """Values of options are no sources, dependency options of drivers included."""
    unit = driver_unit("u2", shlex.split(text), "/b")
    assert (unit.unit_id, unit.source, unit.output, unit.archs, unit.threads) == ("u2", source, output, (), 1)
    assert unit.counted


def test_a_link_has_no_source() -> None:
    """Its output names it."""
    unit = driver_unit("u2", ["a.o", "-o", "prog"], "/b")
    assert (unit.source, unit.output, unit.counted) == ("", "prog", False)


BASE = ["-c", "a.cu", "-o", "a.o", "-O3", "-DNDEBUG", "-std=c++17", "-Xcompiler", "-fPIC,-O3"]


@pytest.mark.parametrize(
    "other",
    [
        ["-c", "/else/a.cu", "-o", "/else/b.o", *BASE[4:]],
        [*BASE, "-I/usr/include", "-isystem", "/opt/x", "-MD", "-MF", "a.d"],
        [*BASE, "-gencode", "arch=compute_90,code=sm_90", "--threads", "4", "-arch=sm_80"],
        [BASE[0], *BASE[4:], *BASE[1:4]],
        [*BASE, "-Wall", "-Xcompiler", "-Wextra", "-ccbin", "/usr/bin/g++"],
        [*BASE, "--options-file", "CMakeFiles/x.rsp", "-lcuda", "-L/usr/lib"],
    ],
)
def test_options_that_do_not_matter_for_memory_leave_the_digest(other: list[str]) -> None:
    """Paths, include folders, dependency files, architectures, threads, warnings, order."""
    assert options_digest(other) == options_digest(BASE)


@pytest.mark.parametrize(
    "other",
    [["-O0"], ["-g"], ["-G"], ["-DBIG=1"], ["-D", "BIG"], ["-lineinfo"], ["-Xptxas", "-O1"], ["--param", "x=1"]],
)
def test_options_that_matter_change_it(other: list[str]) -> None:
    """Optimisation, debug information, macros, what is passed on to the tools."""
    assert options_digest([*BASE, *other]) != options_digest(BASE)


def test_a_macro_with_a_path_is_told_by_its_name_alone() -> None:
    """The path changes with the folder."""
    assert options_digest(["-DROOT=/a/b"]) == options_digest(["-DROOT=/c/d"]) != options_digest(["-DOTHER=/a/b"])
