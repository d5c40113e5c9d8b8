"""Commands of units in a trace: small, whole, and never half of one."""

from __future__ import annotations

import msgspec
import pytest

from builddoctor.core.events import UnitCommand
from builddoctor.trace.commands import MOST_BYTES, Command, CommandWriter, command_of

INCLUDES = [f"-I/home/me/TransformerEngine/3rdparty/include/folder{number}" for number in range(60)]
DEFINES = [f"-DNVTE_FEATURE_NUMBER_{number}=1" for number in range(40)]
ARCHS = [word for arch in (75, 80, 89, 90, 100, 120) for word in ("-gencode", f"arch=compute_{arch},code=sm_{arch}")]
FLAGS = [*DEFINES, *INCLUDES, *ARCHS, "-O3", "-std=c++17", "--expt-relaxed-constexpr", "-Xcompiler=-fPIC"]


def cmake_unit(number: int) -> list[str]:
    """As CMake writes it: 5 KB, of which the last words differ."""
    made = f"CMakeFiles/te.dir/source{number}.cu.o"
    return [*FLAGS, "-MD", "-MT", made, "-MF", f"{made}.d", "-x", "cu", "-c", f"/home/me/source{number}.cu", "-o", made]


def setuptools_unit(number: int) -> list[str]:
    """As torch writes it: what differs stands in the middle."""
    made = f"/home/me/build/temp/source{number}.o"
    middle = ["-c", "-c", f"/home/me/source{number}.cu", "-o", made]
    return ["--generate-dependencies-with-compile", "--dependency-output", f"{made}.d", *INCLUDES, *middle, *FLAGS]


def written(commands: list[list[str]], cwd: str = "/home/me/build") -> dict[str, UnitCommand]:
    writer = CommandWriter()
    found = {}
    for number, argv in enumerate(commands):
        record = writer.record(1.0, f"u{number}", Command(tool="nvcc", cwd=cwd, argv=tuple(argv)))
        assert record is not None
        found[record.unit_id] = record
    return found


def size_of(records: dict[str, UnitCommand]) -> int:
    return sum(len(msgspec.json.encode(record)) + 1 for record in records.values())


@pytest.mark.parametrize("unit", [cmake_unit, setuptools_unit])
def test_every_command_comes_back_word_by_word(unit: object) -> None:
    """Whole or as a change of an earlier one: the same words in the same order."""
    assert callable(unit)
    commands = [unit(number) for number in range(20)]
    commands.insert(7, ["-c", "odd.cu", "-o", "odd.o"])
    records = written(commands)
    for number, argv in enumerate(commands):
        assert command_of(records, f"u{number}") == Command(tool="nvcc", cwd="/home/me/build", argv=tuple(argv))


@pytest.mark.parametrize("unit", [cmake_unit, setuptools_unit])
def test_66_units_take_what_a_few_would_take_alone(unit: object) -> None:
    """66 command lines of 5 KB: some 25 KB in the trace, not 300."""
    assert callable(unit)
    commands = [unit(number) for number in range(66)]
    plain = sum(len(" ".join(argv)) for argv in commands)
    assert plain > 300_000
    assert size_of(written(commands)) < 30_000


def test_10000_units_take_3_mb() -> None:
    """A build of ten thousand units has a trace of tens of megabytes; its commands are few of them."""
    assert size_of(written([cmake_unit(number) for number in range(10_000)])) < 3_500_000


def test_units_in_folders_of_their_own_are_written_whole() -> None:
    """make runs in each folder: another folder is never left out."""
    writer = CommandWriter()
    first = writer.record(0.0, "u1", Command(tool="nvcc", cwd="/a", argv=("-c", "a.cu")))
    second = writer.record(0.0, "u2", Command(tool="nvcc", cwd="/b", argv=("-c", "a.cu")))
    assert first is not None
    assert second is not None
    assert (second.like, second.cwd) == ("", "/b")


def test_a_command_beyond_64_kb_is_left_out() -> None:
    """What cannot be whole is not there at all: half a command would be another."""
    argv = ("-c", "a.cu", "-D" + "x" * MOST_BYTES)
    assert CommandWriter().record(0.0, "u1", Command(tool="nvcc", cwd="/", argv=argv)) is None


@pytest.mark.parametrize("damage", ["no base", "a base that is no base", "a place that is not there"])
def test_a_command_whose_other_words_are_lost_is_none(damage: str) -> None:
    """A torn line of a trace costs the commands that were written after it, not the truth."""
    records = written([cmake_unit(number) for number in range(3)])
    assert records["u2"].like == "u0"
    if damage == "no base":
        del records["u0"]
    elif damage == "a base that is no base":
        records["u0"] = msgspec.structs.replace(records["u1"], unit_id="u0")
    else:
        records["u2"] = msgspec.structs.replace(records["u2"], changed=[(10_000, "x"), (-1, "y")])
    assert command_of(records, "u2") is None


def test_a_unit_without_a_command_has_none() -> None:
    """Traces of older versions hold no commands."""
    assert command_of({}, "u1") is None
