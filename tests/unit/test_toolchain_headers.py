"""What CUDA's headers, library files and nvcc's answers say."""

from __future__ import annotations

import pytest

from builddoctor.model.toolchain import HostLimits
from builddoctor.sensors.cuda_headers import (
    agree,
    bare_functions,
    host_limits,
    library_files,
    library_version,
    predefined,
)
from builddoctor.sensors.nvcc_answers import parse_archs, parse_host_driver
from unit.toolchains import HOST_CONFIG, math_functions

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
    assert parse_host_driver(DRYRUN.format(driver=driver)) == spelled


@pytest.mark.parametrize(
    "text", ["", "nvcc fatal   : Failed to preprocess host compiler properties.\n", '#$ "gcc -E -x c++ a\n']
)
def test_no_step_names_no_host_compiler(text: str) -> None:
    """Also when what nvcc prints cannot be split into words."""
    assert parse_host_driver(text) == ""
