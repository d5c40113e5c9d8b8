"""Units: what nvcc and host compiler drivers are called for."""

from __future__ import annotations

import shlex

import pytest

from builddoctor.intercept.command_lines import driver_unit, nvcc_unit

CMAKE = (
    "-forward-unknown-to-host-compiler -Iinc -I /x/y.cpp '--generate-code=arch=compute_90,code=[compute_90,sm_90]' "
    "-O3 --threads 3 -x cu -c src/a.cu -o CMakeFiles/x.dir/src/a.cu.o"
)
TORCH = (
    "-gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_90a,code=sm_90a -c a.cu -o a.o --threads=4 "
    "-DTORCH_API_INCLUDE_EXTENSION_H -Xcompiler -fPIC"
)
TWICE = "-gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 -c a.cu"


def nvcc(text: str, cwd: str = "/src/build") -> object:
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
    assert nvcc(f"{option} a.cu -o a.out").counted


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
    ],
)
def test_links_and_tries_of_the_compiler_are_not_counted(text: str, cwd: str) -> None:
    """The number of units on the screen is the project's own."""
    assert not nvcc(text, cwd).counted


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
