"""A phase packed for its way, and its answer unpacked at its place.

Covers: reading inputs and writing outputs, compression, digests of both; an output appears whole or not at all.
Does *not* cover: which phases can be sent (``toolchain.travelling``), or how they get there (``cluster.client``).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import zstandard

from builddoctor.core.cluster import Answer, PackedFile, Parcel
from builddoctor.core.errors import ClusterError
from builddoctor.toolchain.travelling import TEXTS, FileOfPhase, Travelling, as_if_in, is_plain_name

LEVEL = 3
"""Of zstd: the preprocessed example becomes a tenth at 200 MB/s; level 9 makes a twelfth of it, at 40."""

MOST_BYTES = 4 * 2**30
"""Of one file: more is no compiler's, and would fill the reader's memory."""


def pack(phase: Travelling, cwd: str, program: str) -> Parcel:
    """``program``: its digest (``program_digest``). Raises OSError where a file cannot be read."""
    return Parcel(
        parcel_id=uuid.uuid4().hex,
        tool=phase.tool,
        program=program,
        words=phase.words,
        inputs=tuple(pack_file(file.name, Path(cwd, file.path).read_bytes()) for file in phase.inputs),
        outputs=tuple(file.name for file in phase.outputs),
    )


def pack_file(name: str, content: bytes) -> PackedFile:
    """One file with its digest."""
    packed = zstandard.ZstdCompressor(level=LEVEL).compress(content)
    digest = hashlib.sha256(content).hexdigest()
    return PackedFile(name=name, packed=packed, sha256=digest, size_bytes=len(content))


def program_digest(path: str) -> str:
    """sha256 of a program's file. cudafe++, cicc and ptxas are one each beside the C library (nvcc 13.0); gcc's differ
    where their packages do."""
    digest = hashlib.sha256()
    with Path(path).open("rb") as file:
        while chunk := file.read(2**20):
            digest.update(chunk)
    return digest.hexdigest()


def digests_of(paths: Iterable[str]) -> dict[str, str]:
    """Paths by the digests of their programs, of those that can be read: a package may be removed meanwhile."""
    found = {}
    for path in paths:
        with contextlib.suppress(OSError):
            found[program_digest(path)] = path
    return found


class ProgramDigests:
    """Of programs by their paths, each read once."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def of(self, path: str) -> str:
        """Raises OSError."""
        if path not in self._known:
            self._known[path] = program_digest(path)
        return self._known[path]


def content_of(file: PackedFile) -> bytes:
    """What it held when it was packed. Raises ClusterError where it is not that."""
    if not is_plain_name(file.name) or not 0 <= file.size_bytes <= MOST_BYTES:
        raise ClusterError(f"a file that is not the phase's: {file.name!r}")
    try:
        # The size in the frame is the sender's word: never more is unpacked than was said outside of it.
        unpacker = zstandard.ZstdDecompressor().decompressobj()
        content = (
            unpacker.decompress(file.packed) if zstandard.frame_content_size(file.packed) == file.size_bytes else b""
        )
    except zstandard.ZstdError:
        content = b""
    if len(content) != file.size_bytes or hashlib.sha256(content).hexdigest() != file.sha256:
        raise ClusterError(f"{file.name} was damaged on its way")
    return content


def unpack(answer: Answer, phase: Travelling, cwd: str) -> None:
    """Write what a phase wrote elsewhere to where it would have written it.

    Raises ClusterError where the answer is not that of this phase, OSError where it cannot be written; then nothing
    appears.
    """
    paths = {file.name: Path(cwd, file.path) for file in phase.outputs}
    contents = {file.name: content_of(file) for file in answer.outputs}
    if not contents.keys() <= paths.keys() or phase.needed not in contents:
        raise ClusterError(f"the answer is not that of {phase.tool}: {', '.join(sorted(contents)) or 'nothing'}")
    files = [*phase.inputs, *phase.outputs]
    place({paths[name]: _as_here(name, content, answer.folder, files) for name, content in contents.items()})


def place(contents: Mapping[Path, bytes]) -> None:
    """Write files: all of them appear, whole, or none does. Raises OSError."""
    written: list[tuple[Path, Path]] = []
    try:
        for path, content in contents.items():
            beside = path.with_name(f".{path.name[:100]}.{os.getpid()}.new")
            written.append((beside, path))
            beside.write_bytes(content)
        for beside, path in written:
            os.replace(beside, path)
    finally:
        for beside, _ in written:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)


def _as_here(name: str, content: bytes, folder: str, files: Sequence[FileOfPhase]) -> bytes:
    """Raises ClusterError for what names the other machine's folder and is no text."""
    if not folder or os.fsencode(folder) not in content:
        return content
    changed = as_if_in(content, folder, files) if name.endswith(TEXTS) else content
    if os.fsencode(folder) in changed:
        raise ClusterError(f"{name} names a folder of the machine that it was made on")
    return changed
