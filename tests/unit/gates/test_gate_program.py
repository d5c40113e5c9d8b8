"""What a gate knows of the command in its place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from builddoctor.gates.gate_program import can_run_again, torn_output


@pytest.mark.parametrize(
    ("name", "args", "again"),
    [
        ("cc1plus", ["a.cpp", "-o", "a.s"], True),
        ("cc1plus", ["-E", "a.cpp"], False),
        ("cc1plus", ["a.cpp", "-o", "-"], False),
        ("cicc", ["a.ii"], True),
        ("clang++", ["-c", "a.cpp"], True),
        ("clang++", ["-E", "a.cpp", "-o", "a.ii"], True),
        ("clang++", ["-E", "a.cpp"], False),
        ("clang-18", ["-MM", "a.cpp"], False),
    ],
)
def test_what_writes_to_its_output_is_not_run_again(name: str, args: list[str], again: bool) -> None:
    """What a pipe has taken cannot be taken back."""
    assert can_run_again(name, args) is again


def cubin(*, sections_at: int, sections: int, programs_at: int = 0, programs: int = 0) -> bytes:
    """The head of one, 64 bytes as in elf(5), with its tables."""
    tables = programs_at.to_bytes(8, "little") + sections_at.to_bytes(8, "little")
    counts = b"".join(each.to_bytes(2, "little") for each in (64, 56, programs, 64, sections, 1))
    return b"\x7fELF\2\1\1" + bytes(25) + tables + bytes(4) + counts


EXECUTABLE = cubin(sections_at=1000, sections=2, programs_at=1128, programs=5) + bytes(1128 + 5 * 56 - 64)
RELOCATABLE = cubin(sections_at=1000, sections=2) + bytes(1000 + 2 * 64 - 64)


@pytest.mark.parametrize("whole", [EXECUTABLE, RELOCATABLE])
def test_a_cubin_without_its_end_is_torn(tmp_path: Path, whole: bytes) -> None:
    """Whatever is missing: the last byte, the tables, the head, or all of it."""
    file = tmp_path / "a.cubin"
    args = ["-arch=sm_90", "a.ptx", "-o", str(file)]
    file.write_bytes(whole)
    assert not torn_output("ptxas", args)
    for size in (len(whole) - 1, 1000, 64, 20, 0):
        file.write_bytes(whole[:size])
        assert torn_output("ptxas", args) == str(file)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("ptxas", ["a.ptx", "-o", "/dev/null"]),
        ("ptxas", ["a.ptx", "-o", "not/there"]),
        ("ptxas", ["a.ptx", "-o"]),
        ("ptxas", ["a.ptx", "-o", "text"]),
        ("cicc", ["a.ii", "-o", "half"]),
    ],
)
def test_nothing_else_is_called_torn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, args: list[str]
) -> None:
    """What is no file, no ELF file, or another tool's, which says itself that it could not write."""
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("a stand-in's")
    Path("half").write_bytes(EXECUTABLE[:64])
    assert not torn_output(name, args)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert not torn_output("ptxas", ["a.ptx", "-o", str(tmp_path / "pipe")])
