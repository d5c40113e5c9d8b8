"""Answers that are none: damaged, of another phase, or with a name that leads elsewhere. Nothing of them appears."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from builddoctor.cluster.parcels import content_of, digests_of, pack, pack_file, program_digest, unpack
from builddoctor.core.cluster import Answer
from builddoctor.core.errors import ClusterError
from builddoctor.toolchain.travelling import FileOfPhase, Travelling

PHASE = Travelling(
    tool="ptxas",
    words=("-o", "@folder@/a.cubin", "@folder@/a.ptx"),
    inputs=(FileOfPhase(name="a.ptx", path="a.ptx"),),
    outputs=(FileOfPhase(name="a.cubin", path="out/a.cubin"), FileOfPhase(name="a.c", path="out/a.c")),
    needed="a.cubin",
)


def answer_of(*files: object, folder: str = "/node/1") -> Answer:
    return Answer(parcel_id="p1", status=0, outputs=files, folder=folder)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    (tmp_path / "a.ptx").write_bytes(b".version 9\n" * 1000)
    return tmp_path


def nothing_appeared(here: Path) -> bool:
    return not list((here / "out").iterdir()) and sorted(os.listdir(here)) == ["a.ptx", "out"]


def test_there_and_back(here: Path) -> None:
    parcel = pack(PHASE, str(here), "digest")
    assert content_of(parcel.inputs[0]) == (here / "a.ptx").read_bytes()
    assert parcel.packed_mib < 0.001
    unpack(answer_of(pack_file("a.cubin", b"\x7fELF"), pack_file("a.c", b'"/node/1/a.c"')), PHASE, str(here))
    assert (here / "out" / "a.cubin").read_bytes() == b"\x7fELF"
    assert (here / "out" / "a.c").read_text() == '"out/a.c"'
    assert sorted(os.listdir(here / "out")) == ["a.c", "a.cubin"]


def test_a_program_that_was_removed_has_no_digest(here: Path) -> None:
    paths = [str(here / "gone"), str(here / "a.ptx")]
    assert digests_of(paths) == {program_digest(paths[1]): paths[1]}


@pytest.mark.parametrize(
    "files",
    [
        (),
        (pack_file("a.c", b"x"),),
        (pack_file("a.cubin", b"x"), pack_file("other", b"x")),
        (pack_file("a.cubin", b"x"), pack_file("../a.ptx", b"x")),
        (pack_file("a.cubin", b"x"), pack_file("/etc/passwd", b"x")),
        (msgspec.structs.replace(pack_file("a.cubin", b"x"), sha256="0" * 64),),
        (msgspec.structs.replace(pack_file("a.cubin", b"x"), packed=b"garbage"),),
        (
            msgspec.structs.replace(
                pack_file("a.cubin", b"x" * 100), packed=pack_file("a.cubin", b"x" * 100).packed[:-3]
            ),
        ),
        # A bomb: a frame that holds more than was said.
        (msgspec.structs.replace(pack_file("a.cubin", bytes(10**7)), size_bytes=10),),
        (msgspec.structs.replace(pack_file("a.cubin", b"x"), size_bytes=2**60),),
        # A folder of the other machine in what is no text.
        (pack_file("a.cubin", b"\x7fELF /node/1/a.cubin"),),
    ],
)
def test_what_is_no_answer_leaves_nothing(here: Path, files: tuple[object, ...]) -> None:
    with pytest.raises(ClusterError):
        unpack(answer_of(*files), PHASE, str(here))
    assert nothing_appeared(here)


def test_what_cannot_be_written_leaves_nothing(here: Path) -> None:
    phase = msgspec.structs.replace(PHASE, outputs=(*PHASE.outputs, FileOfPhase(name="z", path="missing/z")))
    with pytest.raises(OSError, match="missing"):
        unpack(answer_of(pack_file("a.cubin", b"x"), pack_file("z", b"x")), phase, str(here))
    assert nothing_appeared(here)


def test_a_program_is_its_file(tmp_path: Path) -> None:
    one, other = tmp_path / "ptxas", tmp_path / "copy"
    one.write_bytes(b"x" * 3_000_000)
    other.write_bytes(b"x" * 3_000_000)
    assert program_digest(str(one)) == program_digest(str(other))
    other.write_bytes(b"x" * 2_999_999 + b"y")
    assert program_digest(str(one)) != program_digest(str(other))
