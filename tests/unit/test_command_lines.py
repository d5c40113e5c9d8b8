"""Command lines of phases, as nvcc 13.0 and gcc 12 really call their tools."""

from __future__ import annotations

import pytest

from builddoctor.intercept.command_lines import PhaseFacts, parse_sizes, phase_facts
from builddoctor.model.phase import PhaseKind
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
