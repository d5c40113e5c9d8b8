"""Which phases another machine can run, and that nothing of them reaches out of its folder."""

from __future__ import annotations

import pytest

from builddoctor.core.cluster import FOLDER
from builddoctor.toolchain.travelling import (
    FileOfPhase,
    as_if_in,
    keeps_to_folder,
    travelling,
    travelling_source,
)

T = "/tmp/tmpxft_00000e68_00000000-"
CICC = (
    *(
        "--c++17",
        "--orig_src_file_name",
        "a.cu",
        "--orig_src_path_name",
        "/home/me/a.cu",
        "-arch",
        "compute_90",
        "-m64",
    ),
    *("--include_file_name", "tmpxft_00000e68_00000000-3_a.fatbin.c", "-tused"),
    *("--module_id_file_name", f"{T}4_a.module_id", "--gen_c_file_name", f"{T}6_a.cudafe1.c"),
    *("--stub_file_name", f"{T}6_a.cudafe1.stub.c", "--gen_device_file_name", f"{T}6_a.cudafe1.gpu"),
    *(f"{T}7_a.cpp1.ii", "-o", f"{T}6_a.ptx"),
)
"""As nvcc 13.0 calls it."""

CUDAFE = (
    *("--c++17", "--orig_src_path_name", "/home/me/a.cu", "--gen_c_file_name", f"{T}6_a.cudafe1.cpp"),
    *("--stub_file_name", "tmpxft_00000e68_00000000-6_a.cudafe1.stub.c", "--gen_module_id_file"),
    *("--module_id_file_name", f"{T}4_a.module_id", f"{T}5_a.cpp4.ii"),
)
PTXAS = ("-arch=sm_90", "-m64", f"{T}6_a.ptx", "-o", f"{T}8_a.sm_90.cubin")
HOST = (
    *("-quiet", "-I", "/usr/include/x", "-imultiarch", "x86_64-linux-gnu", "-MD", "x.d", "-MF", "x.d", "-MT", "x.o"),
    *(
        "-D",
        "N=1",
        "/tmp/a.cudafe1.cpp",
        "-quiet",
        "-dumpdir",
        "/home/me/",
        "-dumpbase",
        "a.cpp",
        "-dumpbase-ext",
        ".cpp",
    ),
    *("-m64", "-mtune=generic", "-O2", "-Wno-psabi", "-std=c++17", "--param", "l1-cache-size=32", "-o", "/tmp/ccX.s"),
)
FILES = {f"{T}4_a.module_id", f"{T}7_a.cpp1.ii", f"{T}5_a.cpp4.ii", f"{T}6_a.ptx", "/tmp/a.cudafe1.cpp"}
# Before the phase runs, what it writes is not there.
THERE = {"cicc": FILES - {f"{T}6_a.ptx"}, "cudafe++": FILES - {f"{T}4_a.module_id"}, "ptxas": FILES}


@pytest.mark.parametrize(
    ("tool", "argv", "read", "written", "needed"),
    [
        ("cudafe++", CUDAFE, ["5_a.cpp4.ii"], ["6_a.cudafe1.cpp", "4_a.module_id"], "6_a.cudafe1.cpp"),
        ("cicc", CICC, ["4_a.module_id", "7_a.cpp1.ii"], ["6_a.cudafe1.c", "6_a.cudafe1.stub.c", "6_a.ptx"], "6_a.ptx"),
        ("ptxas", PTXAS, ["6_a.ptx"], ["8_a.sm_90.cubin"], "8_a.sm_90.cubin"),
    ],
)
def test_what_a_phase_reads_and_writes(
    tool: str, argv: tuple[str, ...], read: list[str], written: list[str], needed: str
) -> None:
    """cicc's .gpu stays there: no later step reads it."""
    phase = travelling(tool, argv, THERE[tool].__contains__)
    assert [file.name.partition("-")[2] for file in phase.inputs] == read
    assert [file.name.partition("-")[2] for file in phase.outputs] == written
    assert phase.needed.partition("-")[2] == needed
    assert not any(word.startswith("/tmp") for word in phase.words)
    assert keeps_to_folder(tool, phase.words)


@pytest.mark.parametrize("word", ["-g", "-G", "--debug_mode", "-I/usr/include", "@/tmp/options", "--plugin=/tmp/x.so"])
def test_what_has_to_stay(word: str) -> None:
    """Debug information names the folder; the others name files that are not the phase's."""
    assert travelling("cicc", (*CICC, word), THERE["cicc"].__contains__) is None
    assert travelling("cicc", CICC, THERE["cicc"].__contains__) is not None


def test_nothing_is_sent_without_its_input() -> None:
    assert travelling("ptxas", PTXAS, lambda _: False) is None
    assert travelling("nvlink", PTXAS, FILES.__contains__) is None


def test_two_files_of_one_name_stay() -> None:
    argv = ("-arch=sm_90", "/a/x.ptx", "-o", "/b/x.ptx")
    assert travelling("ptxas", argv, "/a/x.ptx".__eq__) is None


def test_a_source_is_preprocessed_here_and_compiled_there() -> None:
    """What names its headers is written here, where they are; macros go along (``-fdirectives-only``)."""
    source = travelling_source("cc1plus", HOST, FILES.__contains__, preprocessed="/tmp/.x.ii")
    assert source.before[:2] == ("-E", "-fdirectives-only")
    assert source.before[-2:] == ("-o", "/tmp/.x.ii")
    assert {"-MD", "-MF", "-I", "-D"} <= set(source.before)
    words = source.phase.words
    assert words[:2] == ("-fpreprocessed", "-fdirectives-only")
    assert f"{FOLDER}/.x.ii" in words
    assert words[-2:] == ("-o", f"{FOLDER}/ccX.s")
    assert not {"-I", "-D", "-MD", "-dumpdir", "-imultiarch", "/home/me/"} & set(words)
    assert {"-O2", "-dumpbase", "--param", "l1-cache-size=32"} <= set(words)


@pytest.mark.parametrize(
    "word",
    [
        *("-g", "-ggdb3", "-gsplit-dwarf", "-fplugin=x.so", "-fplugin=/tmp/x.so", "-flto", "-fprofile-arcs"),
        *("-fdump-tree-all", "-ftest-coverage", "-fstack-usage", "-specs=x", "@x", "-Wa,-I/x", "-Wp,-MD,x"),
    ],
)
def test_sources_that_have_to_stay(word: str) -> None:
    assert travelling_source("cc1plus", (*HOST, word), FILES.__contains__, preprocessed="/tmp/.x.ii") is None


@pytest.mark.parametrize(
    "word",
    [
        *(
            "/etc/passwd",
            "../x",
            "@options",
            f"{FOLDER}/../x",
            f"{FOLDER}//etc/passwd",
            f"{FOLDER}/a/b",
            "-I/usr/include",
        ),
        *("--x=/etc/passwd", f"{FOLDER}/", f"{FOLDER}/..", "a\0b", f"x{FOLDER}/y"),
    ],
)
def test_a_command_that_reaches_out_is_told(word: str) -> None:
    """Of a stranger who has the keys: asked again on the node."""
    assert not keeps_to_folder("cicc", ("-m64", word))
    assert keeps_to_folder("cicc", ("-m64", f"{FOLDER}/x.ii", "--orig_src_path_name", "/home/me/a.cu"))


@pytest.mark.parametrize("tool", ["sh", "/bin/sh", "python3", "nvcc", ""])
def test_other_programs_are_refused(tool: str) -> None:
    assert not keeps_to_folder(tool, ())


def test_texts_name_this_machines_folder() -> None:
    """A name that is the beginning of another is not taken for it."""
    files = [FileOfPhase(name="a.c", path="/tmp/a.c"), FileOfPhase(name="a.cpp", path="b/a.cpp")]
    assert as_if_in(b'# 1 "/node/7/a.cpp"\n"/node/7/a.c"', "/node/7", files) == b'# 1 "b/a.cpp"\n"/tmp/a.c"'
    assert as_if_in(b"nothing", "/node/7", files) == b"nothing"
