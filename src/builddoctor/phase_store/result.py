"""What is kept of a phase, as bytes that tell whether they are whole; and what any store of them does.

The bytes are the digest of the rest, and then the result: what was torn, altered or is another phase's is no result.
Does *not* cover: where they are (``phase_store.folder``, ``phase_store.remote``).
"""

from __future__ import annotations

import hashlib
from typing import Protocol

import msgspec

from builddoctor.core.cluster import Amount, PackedFile, decoded
from builddoctor.core.errors import ClusterError

_DIGEST_BYTES = hashlib.sha256().digest_size


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What a phase wrote, and what it took."""

    key: str
    outputs: tuple[PackedFile | None, ...]
    """by their places; None for one that it did not write"""
    printed: bytes
    peak_mib: Amount
    cpu_s: Amount


class Store(Protocol):
    """A store as a build uses it. Its methods may be called from several threads."""

    refused: int
    """what it gave that was no result"""
    problem: str
    """why the last question that had no answer had none; empty where each had one"""
    unanswered: int
    """so many had none, but for whether it is there at all"""

    @property
    def resting(self) -> bool:
        """It has failed, and is not asked for now: nothing is to be prepared for it."""

    def find(self, key: str) -> Result | None:
        """The result of that key; None where there is none, or it cannot be had."""

    def refuse(self, key: str) -> None:
        """It is no result of that phase."""

    def put(self, result: Result) -> None:
        """Keep it. Raises OSError where it cannot be kept."""

    def close(self) -> None:
        """The build is over."""


def packed(result: Result) -> bytes:
    """As it is kept, and goes over the wire. Its files are compressed already."""
    body = msgspec.msgpack.encode(result)
    return hashlib.sha256(body).digest() + body


def unpacked(body: bytes | bytearray | memoryview, key: str) -> Result | None:
    """None for what was torn or altered, or has another key."""
    # A slice of the bytes themselves would be a copy.
    whole = memoryview(body)
    digest, rest = whole[:_DIGEST_BYTES], whole[_DIGEST_BYTES:]
    if hashlib.sha256(rest).digest() != digest:
        return None
    try:
        result = decoded(rest, Result)
    except ClusterError:
        return None
    return result if result.key == key else None
