"""What a log names of versions and of its system, and the words of advice that follow."""

from __future__ import annotations

import re

import msgspec
import pytest

from builddoctor.diagnose.case_facts import Case, CaseTable, System
from builddoctor.diagnose.case_words import case_values
from builddoctor.diagnose.catalogue import load_catalogue
from builddoctor.diagnose.system_packages import Installer, load_packages, package_of


def case_of(text: str) -> Case:
    table = CaseTable()
    table.feed(text.encode() + b"\n")
    return table.found()


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("Cuda compilation tools, release 9.2, V9.2.148", "nvcc", "9.2"),
        ("-- The CUDA compiler identification is NVIDIA 12.4.131", "nvcc", "12.4"),
        ('-- Found CUDAToolkit: /usr/include (found version "12.1.105")', "nvcc", "12.1"),
        ("/usr/local/cuda-11.0/bin/nvcc -c x.cu", "nvcc", "11.0"),
        (r"C:\Program Files\NVIDIA GPU Computing Toolkit\CUDA\v12.9\bin\nvcc.exe x.cu", "nvcc", "12.9"),
        ("/usr/bin/nvcc -c x.cu", "nvcc_at", "/usr/bin/nvcc"),
        ("/usr/include/c++/11/bits/std_function.h:435:145: error", "gcc", "11"),
        ("-- The CXX compiler identification is GNU 12.2.0", "gcc", "12.2.0"),
        ("torch.__version__  = 1.4.0+cu92", "torch", "1.4.0"),
        ("torch.__version__  = 1.4.0+cu92", "torch_cuda", "9.2"),
        ("Collecting torch==2.4.1+cu121", "torch_cuda", "12.1"),
        ("PyTorch (11.8). Please make sure to use the same CUDA versions.", "torch_cuda", "11.8"),
        ("/venv/lib/python3.11/site-packages/torch/include", "python", "3.11"),
        ("gcc -I/usr/include/python2.6 -c _crack.c", "python_2", "2.6"),
        ("/usr/lib/python3/x.py -I/usr/include/python3.8/ -I/usr/include/python2.7", "python_2", ""),
        ("  - cudatoolkit=12.1*", "cudatoolkit", "12.1"),
        ("$ sudo sh build.sh", "sudo", True),
        ("$ sudo apt-get install g++", "sudo", False),
        ("  - cudatoolkit=11.3", "cudatoolkit", ""),
        ("clang -arch arm64 -I/Users/u/x -o build/temp.macosx-12-arm64-cpython-310/x.o", "system", System.MACOS),
        (r"C:\Users\u\x.cu(3): error C2059: syntax error", "system", System.WINDOWS),
        ("x86_64-redhat-linux-gcc -c /home/u/x.c", "installer", Installer.DNF),
        ("nvcc -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90a,code=sm_90a", "archs", ("80", "90a")),
        (
            "No CUDA runtime is found, using CUDA_HOME=':/opt/cuda-9:/opt/cuda-8'",
            "cuda_home_list",
            ":/opt/cuda-9:/opt/cuda-8",
        ),
        ("No CUDA runtime is found, using CUDA_HOME='/usr/local/cuda'", "cuda_home_list", ""),
        (r"No CUDA runtime is found, using CUDA_HOME='C:\CUDA\v12.8'", "cuda_home_list", ""),
        ("gcc -c -I/usr/local/cuda-10.2:/include x.cpp", "cuda_home_list", "/usr/local/cuda-10.2:"),
        ("g++ x.o -L:/usr/local/cuda-9.0/lib64 -lcudart", "cuda_home_list", ":/usr/local/cuda-9.0"),
        ("cl /c -IC:/CUDA/v12.8/include x.cpp", "cuda_home_list", ""),
    ],
)
def test_what_a_line_names(line: str, name: str, value: object) -> None:
    """In the words of each tool."""
    assert getattr(case_of(line), name) == value


def test_the_surest_line_counts_wherever_it_stands() -> None:
    """A path may be a link to something else; nvcc's own word goes before it."""
    assert (
        case_of("/usr/local/cuda-12.0/bin/nvcc -c x.cu\nCuda compilation tools, release 12.4, V12.4.131").nvcc == "12.4"
    )


@pytest.mark.parametrize(
    ("symbol", "option"),
    [
        ("nvrtcCreateProgram", "-lnvrtc"),
        ("cublasLtMatmul", "-lcublasLt"),
        ("cublasSgemm_v2", "-lcublas"),
        ("cudaMalloc", "-lcudart"),
        ("__cudaRegisterFunction", "-lcudart"),
        ("__cudaRegisterLinkedBinary_x", ""),
        ("cuMemMap", "-lcuda"),
        ("main", ""),
    ],
)
def test_the_library_of_a_symbol(symbol: str, option: str) -> None:
    """By the prefixes of CUDA's libraries; device code that is linked on its own is no library's."""
    assert case_values(Case(), [("symbol", symbol)])["cuda_library"] == option


@pytest.mark.parametrize(
    ("nvcc", "arch", "when", "setting"),
    [
        ("11.0", "compute_86", ": CUDA 11.1 is the first that does", "export TORCH_CUDA_ARCH_LIST=8.0+PTX"),
        ("9.2", "compute_75", ": CUDA 10.0 is the first that does", "export TORCH_CUDA_ARCH_LIST=7.0+PTX"),
        ("12.4", "sm_100f", ": CUDA 12.9 is the first that does", "export TORCH_CUDA_ARCH_LIST=9.0+PTX"),
        ("13.0", "compute_70", ": CUDA 13.0 dropped it", ""),
        ("", "compute_90", ": CUDA 11.8 is the first that does", ""),
        ("", "compute_70", ": CUDA 9.0 is the first that does, and 12.x the last", ""),
        ("12.4", "compute_", "", ""),
    ],
)
def test_an_architecture_is_too_new_or_dropped(nvcc: str, arch: str, when: str, setting: str) -> None:
    """By the table of toolkits, and what the same nvcc can do instead."""
    values = case_values(Case(nvcc=nvcc, torch_builds=True), [("arch", arch)])
    assert values["arch_when"] == when
    assert values.get("arch_before_setting", "") == setting


def test_what_is_left_of_the_architectures_is_spelt_as_the_build_reads_it() -> None:
    """CMake's form where only CMake builds."""
    case = Case(nvcc="13.0", cmake_builds=True, archs=("70", "80", "90a"))
    values = case_values(case, [("arch", "compute_70")])
    assert values["archs_left_setting"] == "rm -rf build && cmake -B build '-DCMAKE_CUDA_ARCHITECTURES=80;90a'"
    wheel = case_values(msgspec.structs.replace(case, wheel_built=True), [("arch", "compute_70")])
    assert wheel["archs_left_setting"] == "export CMAKE_ARGS='-DCMAKE_CUDA_ARCHITECTURES=80;90a'"


@pytest.mark.parametrize(
    ("nvcc", "index", "gcc"), [("12.2", "cu121", "12"), ("12.8", "cu128", "14"), ("10.2", "", "8"), ("", "", "")]
)
def test_what_fits_a_toolkit(nvcc: str, index: str, gcc: str) -> None:
    """torch's wheels of the same major version, and the newest gcc."""
    values = case_values(Case(nvcc=nvcc))
    assert (values["torch_index"], values["gcc_that_fits"]) == (index, gcc)


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ({"file": "infiniband/verbs.h"}, "InfiniBand verbs"),
        ({"library": "-libverbs"}, "InfiniBand verbs"),
        ({"library": "libGL.so.1"}, "OpenGL"),
        ({"library": "-lopenblas"}, "OpenBLAS"),
        ({"package": "MPI"}, "MPI"),
        ({"file": "my/own.h"}, None),
    ],
)
def test_the_package_that_holds_it(said: dict[str, str], name: str | None) -> None:
    """By a header, a library in any form, or CMake's name."""
    found = package_of(said)
    assert (found.name if found is not None else None) == name


def test_a_package_is_named_as_the_system_names_it() -> None:
    """A package of one CUDA only where that is known; nothing to install with under Windows."""
    said = [("file", "mpi.h")]
    assert case_values(Case(), said)["library_install"] == "apt-get install libopenmpi-dev"
    assert case_values(Case(installer=Installer.DNF), said)["library_install"] == "dnf install openmpi-devel"
    assert "library_install" not in case_values(Case(system=System.WINDOWS), said)
    cudnn = [("file", "cudnn.h")]
    assert case_values(Case(nvcc="12.4"), cudnn)["library_pip"] == "pip install nvidia-cudnn-cu12"
    assert case_values(Case(), cudnn)["library_pip"] == ""


def test_debians_folder_of_headers_is_named_where_the_compiler_does_not_look() -> None:
    """Not of a library that the linker misses, nor for another distribution."""
    said = [("file", "Eigen/Sparse")]
    installed = "apt-get install libeigen3-dev && export CPATH=/usr/include/eigen3:$CPATH"
    assert case_values(Case(), said)["library_install"] == installed
    assert case_values(Case(installer=Installer.DNF), said)["library_install"] == "dnf install eigen3-devel"
    assert case_values(Case(), [("package", "Eigen3")])["library_install"] == "apt-get install libeigen3-dev"


@pytest.mark.parametrize(
    ("said", "name", "value"),
    [
        (("arch", "compute_N"), "arch_no_number", "compute_N"),
        (("std", "c++17"), "gcc_of_std", "8"),
        (("std", "gnu++2a"), "gcc_of_std", "11"),
        (("std", "CUDA20"), "nvcc_knows_std", "12.4"),
        (("std", "CUDA23"), "nvcc_knows_std", ""),
        (("tool", "node-waf"), "node_waf", "node-waf"),
        (("what", "invalid conversion from 'int' to 'x' [-fpermissive]"), "permissive", "-fpermissive"),
        (("what", 'identifier "__asm__" is undefined'), "gnu_only", "__asm__"),
        (("of_torch", "RuntimeError: CUDA error"), "torch_named", "torch"),
        (("library", "python313t.lib"), "free_threaded_library", "python313t.lib"),
        (("library", "python313.lib"), "free_threaded_library", ""),
        (("symbol", "_dgemm_"), "blas_symbol", "_dgemm_"),
        (("symbol", "_dgemm_of_mine"), "blas_symbol", ""),
        (("what", "expected expression before '<<' token"), "empty_before", "<<"),
        (("what", "expected expression before '>' token"), "empty_before", ""),
        (("gcc_part", "cc1"), "in_bazel", ""),
        (("library", "-lgfortran"), "r_gfortran", ""),
    ],
)
def test_what_follows_from_what_a_line_says(said: tuple[str, str], name: str, value: str) -> None:
    """With nvcc 12.4, on Windows."""
    assert case_values(Case(nvcc="12.4", system=System.WINDOWS), [said])[name] == value


def test_who_starts_the_compiler_is_told_from_other_lines() -> None:
    """Bazel gives it no environment, R for macOS has a folder of its own for gfortran."""
    bazel = case_of("ERROR: gcc failed: gcc x.c -o bazel-out/k8-fastbuild/bin/x.o")
    assert case_values(bazel, [("gcc_part", "cc1")])["in_bazel"] == "Bazel"
    r = case_of("clang++ -o x.so x.o -lgfortran -F/Library/Frameworks/R.framework/.. -framework R")
    assert case_values(r, [("library", "-lgfortran")])["r_gfortran"]
    assert not case_values(r, [("library", "-lfoo")])["r_gfortran"]


@pytest.mark.parametrize(
    ("line", "first"),
    [
        ("gcc -O2 -lfoo -lbar -o tool main.o", "-lfoo"),
        ("g++ -L/usr/local/lib -lfoo main.o x.o", "-lfoo"),
        ("gcc -o tool main.o -lfoo", ""),
        ("gcc -lfoo -c main.c", ""),
        ("gcc -o tool main.o -lfoo x.a", ""),
    ],
)
def test_libraries_that_stand_before_the_objects(line: str, first: str) -> None:
    """The linker takes nothing of them."""
    assert case_of(line).library_first == first


def test_an_architecture_with_a_name_is_not_one_without_a_number() -> None:
    """An old nvcc does not know `native`."""
    assert "arch_no_number" not in case_values(Case(), [("arch", "compute_native")])


def test_the_package_of_a_program_has_another_name() -> None:
    """As a shell or configure names the program."""
    assert case_values(Case(), [("tool", "yacc")])["library_install"] == "apt-get install bison"
    assert case_values(Case(), [("package", "gdal-config")])["library_install"] == "apt-get install libgdal-dev"
    assert case_values(Case(), [("package", "libFoo_bar")])["package_plain"] == "foo-bar"


@pytest.mark.parametrize(
    ("line", "system"),
    [
        ("CMake Error at C:/Program Files/CMake/share/x.cmake:137 (message):", System.WINDOWS),
        ("make: *** [C:/PROGRA~1/R/R-43~1.1/etc/x64/Makeconf:277: x.o] Error 127", System.WINDOWS),
        ("CMake Error at D:/tools/CMake/share/cmake-3.9/Modules/FindZLIB.cmake:112", System.WINDOWS),
        ('Can\'t exec "aclocal" at /usr/local/Cellar/autoconf/2.69/share/x.pm line 326.', System.MACOS),
        ("gave /Applications/Xcode_15.2.app/Contents/Developer", System.MACOS),
        ("export SRC:/usr/include; see https://example.org/a", System.LINUX),
        ("/usr/bin/go build -o dist/lint_darwin_amd64_v1/lint", System.LINUX),
        ("creating build/temp.win-amd64-3.8", System.WINDOWS),
        ("tests solver-1.2-cp310-cp310-win_amd64.whl against a tag", System.WINDOWS),
        ("solver-1.2-cp310-cp310-linux_x86_64.whl, solver-1.2-cp310-cp310-win_amd64.whl", System.LINUX),
        (r"make failed with output:\n/usr/bin/make[1]: Entering", System.LINUX),
        (r"F:\Comfy\python_embeded>python -m pip install", System.WINDOWS),
        (r"cl -IE:\conda\include -c x.cpp", System.WINDOWS),
        ("C:/Users/ada/src/x.c:3:1: error: y", System.WINDOWS),
        ("hint: compatible with Linux (`linux_x86_64`), but you're on Windows (`win_amd64`)", System.WINDOWS),
    ],
)
def test_the_system_is_told_by_its_paths(line: str, system: System) -> None:
    """Windows writes them with either slash."""
    assert case_of(line).system is system


@pytest.mark.parametrize(
    ("nvcc", "gcc", "older"),
    [("11.5", "11", "10"), ("11.2", "11.4.0", "10"), ("12.4", "11", "10"), ("10.2", "9", "8"), ("", "11", "")],
)
def test_a_gcc_whose_headers_were_not_understood_is_not_the_one_to_take(nvcc: str, gcc: str, older: str) -> None:
    """Though nvcc takes it by its number."""
    assert case_values(Case(nvcc=nvcc, gcc=gcc))["older_gcc"] == older


def test_an_architecture_from_before_the_table_was_dropped() -> None:
    """No toolkit of today has it: what names it is to be changed."""
    values = case_values(Case(), [("arch", "compute_20")])
    assert (values["arch_of_old"], values["arch_of_old_last"], values["arch_unclear"]) == ("compute_20", "8.0", "")


def test_every_package_can_be_asked_for() -> None:
    """Its patterns are patterns, and each known header has a package."""
    for each in load_packages():
        assert each.name
        assert each.apt or each.conda
        assert all(re.compile(pattern) for pattern in (each.headers, each.libraries, each.cmake, each.programs))
    entry = next(entry for entry in load_catalogue() if entry.name == "system-header-missing")
    for line in (entry.example, *entry.also):
        found = re.search(entry.pattern, line)
        assert found is not None
        assert package_of({"file": found["file"] or found["file_2"]}) is not None, line
