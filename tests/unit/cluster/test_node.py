"""What a node refuses, before anything is started: it says so on its own screen, and the sender hears why."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from builddoctor.cluster.node import Node
from builddoctor.cluster.parcels import pack_file
from builddoctor.core.cluster import NodeFacts, Parcel
from builddoctor.core.errors import ClusterError

FACTS = NodeFacts(
    host="node1", builddoctor="1", machine="x86_64", programs=(("ptxas", "d1"),), cores=2, budget_mib=1024.0
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
    node = Node(FACTS, {"d1": "/nowhere/bin/ptxas"}, {}, tmp_path, said.append)
    files = tuple(pack_file(name, b"x") for name in inputs)
    parcel = Parcel(tool=tool, program=program, words=words, inputs=files, outputs=outputs)
    with pytest.raises(ClusterError, match="node1 refuses this phase"):
        node.run(parcel, lambda: True)
    assert len(said) == 1
    assert said[0].startswith("refused: ")
    assert os.listdir(tmp_path) == []


def test_a_node_without_room_says_so(tmp_path: Path) -> None:
    """Its folder cannot be written, as on a full disk: the build hears it in one line."""
    said: list[str] = []
    node = Node(FACTS, {"d1": "/nowhere/bin/ptxas"}, {}, tmp_path / "missing", said.append)
    parcel = Parcel(
        tool="ptxas", program="d1", words=("@folder@/a.ptx",), inputs=(pack_file("a.ptx", b"x"),), outputs=("a.cubin",)
    )
    with pytest.raises(ClusterError, match="node1 cannot run it"):
        node.run(parcel, lambda: True)
    assert said[0].startswith("cannot run ptxas")
