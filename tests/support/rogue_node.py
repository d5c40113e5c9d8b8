"""A node with the cluster's keys that answers wrongly, once it is told to.

``rogue(KIND, SIGN)`` is what starts a worker as one (``support.nodes.Meeting.worker``). It is the real program, with
another ``run_parcel``: from when the file SIGN is there each answer is what KIND says.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from builddoctor.cluster import node, node_program
from builddoctor.cluster.parcels import pack_file
from builddoctor.core.cluster import Answer
from support.bridge import Bridge
from support.messages import no_text, too_deep

KIND, SIGN = "BD_ROGUE_KIND", "BD_ROGUE_SIGN"


def rogue(kind: str, sign: Path) -> list[str]:
    """The first words of a worker's command."""
    tests = str(Path(__file__).resolve().parents[1])
    found_in = os.pathsep.join(filter(None, (tests, os.environ.get("PYTHONPATH"))))
    return ["env", f"PYTHONPATH={found_in}", sys.executable, "-m", "support.rogue_node", kind, str(sign)]


def _flipped(answer: Answer) -> Answer:
    """Each file with one byte that is another, and the digest that it had."""
    files = []
    for file in answer.outputs:
        packed = bytearray(file.packed)
        packed[len(packed) // 2] ^= 0xFF
        files.append(msgspec.structs.replace(file, packed=bytes(packed)))
    return msgspec.structs.replace(answer, outputs=tuple(files))


def _named(answer: Answer, name: str) -> Answer:
    return msgspec.structs.replace(answer, outputs=(*answer.outputs, pack_file(name, b"not asked for")))


def _huge(answer: Answer) -> Answer:
    files = tuple(msgspec.structs.replace(file, size_bytes=1 << 40) for file in answer.outputs)
    return msgspec.structs.replace(answer, outputs=files)


def _fields(answer: Answer) -> Mapping[str, object]:
    fields: Mapping[str, object] = msgspec.to_builtins(answer, builtin_types=(bytes,))
    return fields


def _raises(answer: Answer) -> Answer:
    raise RuntimeError("a worker of another kind")


WRONG: Mapping[str, Callable[[Answer], object]] = {
    "a byte of each file is another": _flipped,
    "a file more, outside the folder": lambda answer: _named(answer, "../../outside"),
    "a file more, that was not asked for": lambda answer: _named(answer, "another.o"),
    "no file": lambda answer: msgspec.structs.replace(answer, outputs=()),
    "files of a tebibyte": _huge,
    "a text": lambda answer: "well done",
    "random bytes": lambda answer: os.urandom(4096),
    "an answer whose status is a text": lambda answer: msgspec.structs.replace(answer, status="well"),
    "an answer whose sizes are no numbers": lambda answer: msgspec.structs.replace(answer, peak_mib=float("nan")),
    "an answer whose text is no UTF-8": lambda answer: no_text(_fields(answer)),
    "an answer that is nested too deeply": lambda answer: too_deep(_fields(answer)),
    "an answer whose files are none": lambda answer: msgspec.structs.replace(answer, outputs=(b"x",)),
    "an object that nobody else knows": lambda answer: Bridge.__new__(Bridge),
    "an error of its own": _raises,
}
BEFORE = "the answer of the phase before"
REAL = node.run_parcel


def _run_parcel(sent: bytes) -> object:
    """It runs phases as a real one does, and answers otherwise."""
    answer = msgspec.msgpack.decode(REAL(sent), type=Answer)
    before = _last[0] if _last else answer
    _last[:] = [answer]
    if os.path.exists(os.environ[SIGN]):
        kind = os.environ[KIND]
        wrong = before if kind == BEFORE else WRONG[kind](answer)
        return msgspec.msgpack.encode(wrong) if isinstance(wrong, Answer) else wrong
    return msgspec.msgpack.encode(answer)


_last: list[Answer] = []


def main(argv: list[str]) -> int:
    """The node's own program, or the one that starts it."""
    if argv[1] in (*WRONG, BEFORE):
        os.environ[KIND], os.environ[SIGN] = argv[1:3]
        from builddoctor.cli import app, worker

        worker.NODE_PROGRAM = "support.rogue_node"  # type: ignore[attr-defined]
        return app.main(argv[argv.index("worker") :])
    node.run_parcel = _run_parcel  # type: ignore[assignment]
    return node_program.main(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
