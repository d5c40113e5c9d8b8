"""What a node refuses, before anything is started: it says so on its own screen, and the sender hears why."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from builddoctor.cluster import node as node_module
from builddoctor.cluster.node import Node, NodeProgram, check_disk, file_state
from builddoctor.cluster.parcels import pack_file
from builddoctor.core.cluster import NodeFacts, Parcel
from builddoctor.core.errors import ClusterError
from support.messages import no_text, too_deep

FACTS = NodeFacts(
    host="node1", builddoctor="1", machine="x86_64", programs=(("ptxas", "d1"),), cores=2, budget_mib=1024.0
)


def _parcel(
    tool: str = "ptxas",
    program: str = "d1",
    words: Sequence[str] = ("@folder@/a.ptx",),
    inputs: Sequence[str] = ("a.ptx",),
    outputs: Sequence[str] = ("a.cubin",),
) -> Parcel:
    files = tuple(pack_file(name, b"x") for name in inputs)
    return Parcel(parcel_id="p1", tool=tool, program=program, words=tuple(words), inputs=files, outputs=tuple(outputs))


def _node(folder: Path, said: list[str], path: str = "/nowhere/bin/ptxas") -> Node:
    return Node(
        FACTS, {"d1": NodeProgram(gate=path, path=path, state_at_start=file_state(path))}, {}, folder, said.append
    )


@pytest.mark.parametrize(
    ("tool", "program", "words", "inputs", "outputs"),
    [
        ("ptxas", "d2", ("@folder@/a.ptx",), ("a.ptx",), ("a.cubin",)),
        ("sh", "d1", ("-c", "true"), (), ()),
        ("cicc", "d1", ("@folder@/a.ptx",), ("a.ptx",), ("a.cubin",)),
        ("ptxas", "d1", ("/etc/shadow", "-o", "@folder@/a.cubin"), ("a.ptx",), ("a.cubin",)),
        ("ptxas", "d1", ("@folder@/../a.ptx",), ("a.ptx",), ("a.cubin",)),
        ("ptxas", "d1", ("@folder@/a.ptx",), ("../a.ptx",), ("a.cubin",)),
        ("ptxas", "d1", ("@folder@/a.ptx",), ("/tmp/a.ptx",), ("a.cubin",)),
        ("ptxas", "d1", ("@folder@/a.ptx",), ("a.ptx",), ("../../etc/passwd",)),
        ("ptxas", "d1", ("@folder@/a.ptx",), ("a.ptx",), ("",)),
        ("ptxas", "d1", ("@/etc/passwd",), ("a.ptx",), ("a.cubin",)),
    ],
)
def test_what_no_build_sends_is_refused(
    tmp_path: Path,
    tool: str,
    program: str,
    words: tuple[str, ...],
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
) -> None:
    said: list[str] = []
    node = _node(tmp_path, said)
    parcel = _parcel(tool, program, words, inputs, outputs)
    with pytest.raises(ClusterError, match="node1 refuses this phase"):
        node.run(parcel, lambda: True)
    assert len(said) == 1
    assert said[0].startswith("refused: ")
    assert os.listdir(tmp_path) == []


def test_a_node_without_room_says_so(tmp_path: Path) -> None:
    """Its folder cannot be written, as on a full disk: the build hears it in one line."""
    said: list[str] = []
    node = _node(tmp_path / "missing", said)
    with pytest.raises(ClusterError, match="node1 cannot run it"):
        node.run(_parcel(), lambda: True)
    assert said[0].startswith("cannot run ptxas")


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\xc1garbage",
        msgspec.msgpack.encode("well"),
        msgspec.msgpack.encode({"tool": "ptxas"}),
        msgspec.msgpack.encode({**msgspec.to_builtins(_parcel()), "inputs": [1]}),
        no_text(msgspec.to_builtins(_parcel())),
        too_deep(msgspec.to_builtins(_parcel())),
    ],
)
def test_what_is_no_phase_at_all_is_refused(tmp_path: Path, sent: bytes) -> None:
    said: list[str] = []
    with pytest.raises(ClusterError, match="node1 refuses this phase"):
        _node(tmp_path, said).read(sent)
    assert said[0].startswith("refused: something that is no phase")


def test_a_phase_comes_as_it_was_sent(tmp_path: Path) -> None:
    assert _node(tmp_path, []).read(msgspec.msgpack.encode(_parcel())) == _parcel()


def test_the_same_message_a_second_time_is_refused(tmp_path: Path) -> None:
    """Whatever became of the first."""
    said: list[str] = []
    node = _node(tmp_path / "missing", said)
    for words in ("cannot run it", "refuses this phase: it was sent before: p1"):
        with pytest.raises(ClusterError, match=words):
            node.run(_parcel(), lambda: True)
    assert said[1] == "refused: it was sent before: p1"


def test_a_full_disk_is_told_from_one_with_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_module, "LEAST_FREE_MIB", 0)
    check_disk(tmp_path)
    monkeypatch.setattr(node_module, "LEAST_FREE_MIB", 1 << 40)
    with pytest.raises(OSError, match="its disk is full"):
        check_disk(tmp_path)


def test_a_program_is_another_once_its_file_is(tmp_path: Path) -> None:
    path = tmp_path / "ptxas"
    path.write_text("one")
    program = NodeProgram(gate=str(path), path=str(path), state_at_start=file_state(str(path)))
    assert not program.is_another
    (tmp_path / "new").write_text("two")
    (tmp_path / "new").replace(path)
    assert program.is_another
    path.unlink()
    assert program.is_another
