"""CUDA's headers and libraries: copies, versions, host compilers that are accepted."""

from __future__ import annotations

from pathlib import Path

import pytest

from builddoctor.core.toolchain import HostLimits, LibraryCopy
from builddoctor.toolchain.cuda_libraries import (
    agree,
    bare_functions,
    host_limits,
    library_copies,
    library_files,
    library_version,
    toolkit_facts,
    wheels_without_nvcc,
)
from builddoctor.toolchain.host_compiler import predefined
from builddoctor.toolchain.nvcc import parse_archs, parse_dryrun
from unit.toolchains import HOST_CONFIG, math_functions, toolkit
from unit.trees import plant

CUDA = "/usr/local/cuda"
RUNTIME = {f"{CUDA}/bin/nvcc": "", f"{CUDA}/lib64/libcudadevrt.a": "", f"{CUDA}/lib64/libcudart_static.a": ""}


def cudnn(version: str) -> str:
    return "".join(
        f"#define CUDNN_{part} {number}\n"
        for part, number in zip(("MAJOR", "MINOR", "PATCHLEVEL"), version.split("."), strict=True)
    )


def found(tmp_path: Path, files: dict[str, str], env: dict[str, str] | None = None) -> tuple[LibraryCopy, ...]:
    return library_copies(
        plant(tmp_path, files), env or {}, toolkit=toolkit(), site_folders=[Path("/site")], machine="x86_64"
    )


def test_every_copy_of_a_library_is_found_where_people_put_it(tmp_path: Path) -> None:
    """The variable's, Debian's in its triplet folder, conda's and the python package's; in the order of a search."""
    files = {
        "/opt/cudnn/include/cudnn_version.h": cudnn("9.5.1"),
        "/opt/cudnn/lib/libcudnn.so.9": "",
        "/usr/include/x86_64-linux-gnu/cudnn_version.h": cudnn("8.9.7"),
        "/usr/lib/x86_64-linux-gnu/libcudnn.so.8": "",
        "/usr/include/aarch64-linux-gnu/nccl.h": "#define NCCL_MAJOR 2\n",
        "/conda/include/cudnn_version.h": cudnn("9.10.2"),
        "/site/nvidia/cudnn/include/cudnn_version.h": cudnn("9.13.0"),
        "/site/nvidia/cudnn/lib/libcudnn.so.9": "",
    }
    copies = found(tmp_path, files, {"CUDNN_PATH": "/opt/cudnn", "CONDA_PREFIX": "/conda"})
    assert [(copy.kind, copy.header_version, copy.library_version) for copy in copies] == [
        ("variable", "9.5.1", "9"),
        ("conda", "9.10.2", ""),
        ("system", "8.9.7", "8"),
        ("python", "9.13.0", "9"),
    ]


def test_the_toolkit_s_own_library_is_found_by_nvcc_s_flags(tmp_path: Path) -> None:
    """Spelled with ``..`` as nvcc spells them; a copy reached by two ways counts once."""
    files = {
        f"{CUDA}/include/cuda_runtime_api.h": "#define CUDART_VERSION 13000\n",
        f"{CUDA}/lib64/libcudart.so.13.0.96": "",
        f"{CUDA}/lib64/libcudart.so": "",
    }
    copies = found(tmp_path, files, {"CMAKE_PREFIX_PATH": CUDA, "CPATH": f"{CUDA}/include"})
    assert len(copies) == 1
    assert (copies[0].kind, copies[0].header_version, copies[0].library_version) == ("toolkit", "13.0", "13.0.96")
    assert copies[0].linkable


def test_headers_of_tools_are_found(tmp_path: Path) -> None:
    """NVTX and the profiler's: TransformerEngine includes both. In the toolkit, and in packages of CUDA 12."""
    files = {
        f"{CUDA}/include/nvtx3/nvToolsExt.h": "",
        "/site/nvidia/cuda_profiler_api/include/cuda_profiler_api.h": "",
    }
    assert [(copy.name, copy.kind) for copy in found(tmp_path, files)] == [("nvtx", "toolkit"), ("profiler", "python")]


def test_a_link_says_the_version_of_what_it_leads_to(tmp_path: Path) -> None:
    """``libnccl.so.2`` alone says 2; its target says more."""
    plant(tmp_path, {"/usr/include/nccl.h": "#define NCCL_MAJOR 2\n", "/usr/share/libnccl.so.2.27.7": ""})
    (tmp_path / "usr/lib/x86_64-linux-gnu").mkdir(parents=True)
    (tmp_path / "usr/lib/x86_64-linux-gnu/libnccl.so.2").symlink_to(tmp_path / "usr/share/libnccl.so.2.27.7")
    copies = found(tmp_path, {})
    assert [(copy.library_version, copy.linkable) for copy in copies] == [("2.27.7", False)]


def test_odd_folders_and_files_are_no_copies(tmp_path: Path) -> None:
    """A relative variable, a header that is a folder, a file in the place of a folder."""
    files = {"/usr/include/nccl.h/x": "", "/usr/lib64": "a file", "/usr/include/cudnn_version.h": "\x00\xfe"}
    copies = found(tmp_path, files, {"CUDNN_PATH": "relative", "CONDA_PREFIX": ".", "LIBRARY_PATH": "::x:/none"})
    assert [(copy.name, copy.header_version) for copy in copies] == [("cudnn", "")]


def test_a_toolkit_s_headers_say_what_it_accepts(tmp_path: Path) -> None:
    """Limits, bare functions, and a runtime where nvcc links from."""
    files = {
        f"{CUDA}/include/crt/host_config.h": HOST_CONFIG.format(gnu=14, clang=20),
        f"{CUDA}/include/crt/math_functions.h": math_functions(cospi="", sinpi="", rsqrt=""),
        **RUNTIME,
    }
    facts = toolkit_facts(plant(tmp_path, files), {}, toolkit=toolkit("12.8.93"), machine="x86_64")
    assert (facts.limits.gnu_newest, facts.limits.clang_newest) == (14, 19)
    assert facts.bare_functions == ("cospi", "sinpi", "rsqrt")
    assert facts.links is True


def test_a_toolkit_of_python_packages_does_not_link(tmp_path: Path) -> None:
    """Its libraries are in ``lib``, and nvcc looks in ``lib64``; what is not there says nothing of limits."""
    files = {f"{CUDA}/lib/libcudadevrt.a": "", f"{CUDA}/lib/libcudart_static.a": ""}
    facts = toolkit_facts(plant(tmp_path, files), {}, toolkit=toolkit(), machine="x86_64")
    assert (facts.links, facts.library_folder) == (False, f"{CUDA}/lib")
    assert facts.limits.gnu_newest is None
    assert facts.bare_functions is None


def test_a_split_toolkit_links_from_the_system_s_folder(tmp_path: Path) -> None:
    """Debian: nvcc's own folders are empty, its libraries and headers are the system's."""
    files = {
        "/usr/lib/x86_64-linux-gnu/libcudadevrt.a": "",
        "/usr/lib/x86_64-linux-gnu/libcudart_static.a": "",
        "/usr/include/crt/host_config.h": HOST_CONFIG.format(gnu=11, clang=15),
    }
    facts = toolkit_facts(plant(tmp_path, files), {}, toolkit=toolkit(), machine="x86_64")
    assert facts.links is True
    assert facts.limits.gnu_newest == 11


def test_cuda_12_s_python_packages_are_told_from_a_toolkit(tmp_path: Path) -> None:
    """They have ptxas and no nvcc."""
    root = plant(tmp_path, {"/site/nvidia/cuda_nvcc/bin/ptxas": "", "/other/nvidia/cu13/bin/nvcc": ""})
    assert wheels_without_nvcc(root, [Path("/other"), Path("/site")]) == "/site/nvidia/cuda_nvcc"
    plant(tmp_path, {"/site/nvidia/cuda_nvcc/bin/nvcc": ""})
    assert wheels_without_nvcc(root, [Path("/site")]) == ""


DRYRUN = """#$ _HERE_=/usr/local/cuda/bin
#$ TOP=/usr/local/cuda/bin/..
#$ {driver} -D__CUDA_ARCH_LIST__=750 -E -x c++ -D__CUDACC__ -include "cuda_runtime.h" -m64 "a.cu" -o "/tmp/a.ii"
#$ cudafe++ --c++17 --gnu_version=120200 --orig_src_file_name "a.cu" "/tmp/a.ii"
#$ gcc-99 -D__CUDA_ARCH__=750 -E -x c++ "a.cu" -o "/tmp/b.ii"
"""


@pytest.mark.parametrize(("gnu", "clang"), [(14, 20), (15, 21), (8, 9)])
def test_the_newest_compilers_that_a_toolkit_accepts_are_read(gnu: int, clang: int) -> None:
    """gcc up to the number itself, clang below it; the limit for Grace's clang is another one's."""
    text = HOST_CONFIG.format(gnu=gnu, clang=clang)
    assert host_limits(text) == HostLimits(gnu_newest=gnu, clang_newest=clang - 1, clang_oldest=3)


@pytest.mark.parametrize("text", ["", "\0\xff", "#error -- unsupported GNU version!", "#if 1\n#error -- unsupported"])
def test_a_host_config_that_says_nothing_sets_no_limits(text: str) -> None:
    """Not known is not the same as zero."""
    assert host_limits(text) == HostLimits()


@pytest.mark.parametrize(
    ("how", "bare"),
    [
        ({"cospi": "", "sinpi": "", "rsqrt": ""}, ("cospi", "sinpi", "rsqrt")),
        ({"cospi": " __NV_IEC_60559_FUNCS_EXCEPTION_SPECIFIER", "sinpi": " __THROW", "rsqrt": ""}, ("rsqrt",)),
        ({"cospi": " noexcept(true)", "sinpi": " noexcept(true)", "rsqrt": " _NV_RSQRT_SPECIFIER"}, ()),
    ],
)
def test_functions_that_clash_are_read_from_their_declarations(how: dict[str, str], bare: tuple[str, ...]) -> None:
    """As in 12.8, 13.0 and 13.2, and as people patch them: only a bare one clashes with a glibc that has it."""
    assert bare_functions(math_functions(**how)) == bare


def test_a_math_header_without_these_functions_is_unknown() -> None:
    """A forwarding header (include/math_functions.h) declares none: that is no all-clear."""
    assert bare_functions('#include "crt/math_functions.h"\n') is None


@pytest.mark.parametrize(
    ("name", "text", "version"),
    [
        ("cudart", "#define CUDART_VERSION  12080\n", "12.8"),
        ("cudart", "#define CUDART_VERSION  13000\n", "13.0"),
        ("cudnn", "#define CUDNN_MAJOR 9\n#define CUDNN_MINOR 13\n#define CUDNN_PATCHLEVEL 0\n", "9.13.0"),
        ("nccl", "  # define NCCL_MAJOR 2\n#define NCCL_MINOR 27\n#define NCCL_PATCH 7\n", "2.27.7"),
        ("cublas", "#define CUBLAS_VER_MAJOR 12\n#define CUBLAS_VER_MINOR 8\n#define CUBLAS_VER_PATCH 4\n", "12.8.4"),
        ("cudnn", "#define CUDNN_VERSION (CUDNN_MAJOR * 10000)\n", ""),
        ("cudnn", "// CUDNN_MAJOR 9\n", ""),
        ("nvrtc", "#define NVRTC 1\n", ""),
        ("nccl", "#define NCCL_MAJOR 99999999999999999999\n", ""),
        ("nccl", "", ""),
    ],
)
def test_versions_are_read_from_headers(name: str, text: str, version: str) -> None:
    """Each library's own macros; nothing when they are not there or are no numbers."""
    assert library_version(name, text) == version


def test_a_library_file_says_its_version_by_its_name() -> None:
    """The name with the most numbers wins; an unversioned or static one makes it linkable."""
    found = library_files("cudnn", ["libcudnn.so.9", "libcudnn.so.9.13.0", "libcudnn_ops.so.9", "libcudnn.so"])
    assert found is not None
    assert (found.file, found.version, found.linkable) == ("libcudnn.so.9.13.0", "9.13.0", True)
    bare = library_files("nccl", ["libnccl.so.2", "libnccl-net.so"])
    assert bare is not None
    assert (bare.file, bare.linkable) == ("libnccl.so.2", False)
    static = library_files("cudart", ["libcudart_static.a"])
    assert static is not None
    assert static.linkable
    assert library_files("cudart", ["libcudart.so.bak", "xlibcudart.so"]) is None


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("9", "9.13.0", True),
        ("9.5.1", "9.13.0", False),
        ("", "9", True),
        ("12.8", "12.8.93", True),
        ("12.8", "13", False),
    ],
)
def test_versions_agree_as_far_as_both_say_anything(one: str, other: str, same: bool) -> None:
    """A soname gives the major version only."""
    assert agree(one, other) is same


def test_a_compiler_is_known_by_what_it_defines() -> None:
    """clang claims to be gcc 4.2 as well; the C library's version stands in features.h."""
    gnu = "#define __GNUC__ 12\n#define __GNUC_MINOR__ 2\n#define __GNUC_PATCHLEVEL__ 0\n"
    libc = "#define __GLIBC_USE(F) 1\n#define __GLIBC__ 2\n#define __GLIBC_MINOR__ 41\n"
    clang = "#define __clang_major__ 18\n#define __clang_minor__ 1\n#define __clang_patchlevel__ 3\n"
    said = predefined(gnu + libc)
    assert (said.kind, said.version, said.glibc) == ("gnu", "12.2.0", "2.41")
    assert (predefined(gnu + clang).kind, predefined(gnu + clang).version) == ("clang", "18.1.3")
    assert (predefined("").kind, predefined("").version, predefined("").glibc) == ("", "", "")


def test_architectures_come_from_both_answers_of_nvcc() -> None:
    """13.0 lists no ``a`` and ``f`` variants, and names them in its help; the order is that of the numbers."""
    listed = "sm_75\nsm_90\nsm_100\nsm_90\n"
    usage = "Allowed values for this option:  'all','compute_100a',\n  'sm_100a','sm_90a','sm_100f','lto_75'.\n"
    assert parse_archs(listed, usage) == ("sm_75", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_100f")
    assert parse_archs("nvcc fatal   : Unknown option '--list-gpu-code'\n", "") == ()


@pytest.mark.parametrize(
    ("driver", "spelled"),
    [("gcc", "gcc"), ('"/usr/bin"/g++-12', "/usr/bin/g++-12"), ('"/a b"/clang++', "/a b/clang++")],
)
def test_the_host_compiler_is_the_program_of_the_first_step(driver: str, spelled: str) -> None:
    """As 13.0 prints it for gcc from PATH, and for ``-ccbin`` with a folder."""
    assert parse_dryrun(DRYRUN.format(driver=driver)).host_driver == spelled


@pytest.mark.parametrize(
    "text", ["", "nvcc fatal   : Failed to preprocess host compiler properties.\n", '#$ "gcc -E -x c++ a\n']
)
def test_no_step_names_no_host_compiler(text: str) -> None:
    """Also when what nvcc prints cannot be split into words."""
    assert parse_dryrun(text).host_driver == ""
