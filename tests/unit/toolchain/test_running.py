"""Compilers by their names."""

from __future__ import annotations

import pytest

from builddoctor.toolchain.running import is_driver, is_phase, whole_name


@pytest.mark.parametrize(
    "name", ["nvcc", "gcc", "g++-12", "x86_64-linux-gnu-gcc-12", "x86_64-conda-linux-gnu-c++", "clang++-18", "c++"]
)
def test_a_driver_makes_a_unit(name: str) -> None:
    assert is_driver(name)
    assert not is_phase(name)


@pytest.mark.parametrize("name", ["cc1plus", "cicc", "cudafe++", "ptxas", "ld.bfd", "x86_64-linux-gnu-ld", "rustc"])
def test_a_program_inside_takes_the_memory(name: str) -> None:
    assert is_phase(name)
    assert not is_driver(name)


@pytest.mark.parametrize("name", ["ninja", "python3.11", "bash", "emacs", "gccgo-helper", "cc1plus-wrapper", "sh", ""])
def test_others_are_none(name: str) -> None:
    assert not is_driver(name)
    assert not is_phase(name)


@pytest.mark.parametrize(
    ("name", "argv", "whole"),
    [
        ("x86_64-conda-li", ("/opt/conda/bin/x86_64-conda-linux-gnu-c++", "-c"), "x86_64-conda-linux-gnu-c++"),
        ("gcc", ("/usr/bin/gcc-12",), "gcc"),
        ("a-15-bytes-name", ("something else",), "a-15-bytes-name"),
        ("a-15-bytes-name", (), "a-15-bytes-name"),
    ],
)
def test_a_name_that_the_kernel_has_cut_is_read_from_the_command_line(
    name: str, argv: tuple[str, ...], whole: str
) -> None:
    """And no other: a script's command line begins with its interpreter, a gate's with what it stands for."""
    assert whole_name(name, argv) == whole
