"""What a build and the nodes of a cluster say to each other: a phase on its way, and what became of it.

Covers: the shapes, bytes of another machine read as one of them, and the shape of nodes which a user wants started.
Does *not* cover: which phases can be sent (``toolchain.travelling``), where they go (``scheduler.nodes``), or the
transport (``cluster``).
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

import msgspec

from builddoctor.core.errors import ClusterError

NODE_PROGRAM = "builddoctor.cluster.node_program"
"""The module that a node runs."""

FOLDER = "@folder@"
"""In the words of a command: the folder in which it runs."""


Amount = Annotated[float, msgspec.Meta(ge=0, le=2**40)]
"""Of what another machine says: a number, and one that can be."""


ParcelId = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]

Shape = TypeVar("Shape")


def decoded(said: bytes | memoryview, kind: type[Shape]) -> Shape:
    """What another machine says, as what it has to be. Raises ClusterError with the reason where it is not that."""
    try:
        return msgspec.msgpack.decode(said, type=kind)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        # Text that is no UTF-8 and values that are nested too deeply have no error of msgspec's own.
        raise ClusterError(str(error) or type(error).__name__) from error


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that a build starts itself, and ends with itself: what ``--cluster`` says but for an address."""

    kind: Literal["local", "ssh", "slurm"]
    nodes: int
    memory_mib: float | None = None
    """of each node, at most; None: what it has (of this machine: a share)"""
    cores: int | None = None
    """of each node; None: as memory"""
    host: str = ""
    """address of this machine at which they meet; empty: any"""
    hosts: tuple[tuple[str, ...], ...] = ()
    """of ssh: a host each, and further words for its worker"""
    job: tuple[tuple[str, str], ...] = ()
    """of Slurm: further options of sbatch, such as ("partition", "gpu")"""


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a node says of itself."""

    host: str
    builddoctor: str
    """its version: both sides must have the same"""
    machine: str
    """such as ``x86_64``"""
    programs: tuple[tuple[str, str], ...]
    """(name, sha256) of those that it runs: cudafe++, cicc, ptxas, and gcc's cc1 and cc1plus. The same file writes the
    same bytes."""
    cores: Annotated[int, msgspec.Meta(ge=1, le=2**20)]
    budget_mib: Amount
    """what phases may hold there, when nothing else runs"""


class ClusterNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node as ``cluster status`` shows it."""

    host: str
    address: str
    cores: int
    budget_mib: float
    machine: str
    builddoctor: str


class PackedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file by its name alone, compressed (zstd)."""

    name: str
    packed: bytes
    sha256: str
    """of its content"""
    size_bytes: int
    """of its content"""


class Parcel(msgspec.Struct, frozen=True, kw_only=True):
    """One phase, as it is sent: in MessagePack, so that whoever gets it sees what it is before it is used."""

    parcel_id: ParcelId
    """Of this one alone: a node takes it once, and the answer has it again."""
    tool: str
    program: str
    """sha256 of the program itself"""
    words: tuple[str, ...]
    """its arguments; ``FOLDER`` stands for the folder of its files"""
    inputs: tuple[PackedFile, ...]
    outputs: tuple[str, ...]
    """names of the files to be sent back: those of them that it writes"""

    @property
    def packed_mib(self) -> float:
        """What goes over the wire, but for the command."""
        return sum(len(each.packed) for each in self.inputs) / 2**20


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """How a phase ended on a node."""

    parcel_id: ParcelId
    """of what it answers"""
    status: Annotated[int, msgspec.Meta(ge=0, le=0xFFFF)]
    """wait status; of one whose memory ran out there, SIGKILL's"""
    printed: bytes = b""
    """on stdout and stderr, in the order in which it came"""
    outputs: tuple[PackedFile, ...] = ()
    """only of one that ended well"""
    folder: str = ""
    """in which it ran: texts that it wrote may name it"""
    peak_mib: Amount = 0.0
    cpu_s: Amount = 0.0
    wall_s: Amount = 0.0

    @property
    def packed_mib(self) -> float:
        """What comes over the wire."""
        return sum(len(each.packed) for each in self.outputs) / 2**20
