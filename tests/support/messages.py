"""Messages that no builddoctor sends, in MessagePack: right but for what msgspec has no error of its own for.

Text that is no UTF-8 is a ValueError, and what is nested too deeply a RecursionError.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec

DEPTH = 100_000
_MARK = "a text of twenty-six bytes"


def no_text(message: Mapping[str, object]) -> bytes:
    """The first text in it is none."""
    name = next(name for name, value in message.items() if isinstance(value, str))
    encoded = msgspec.msgpack.encode({**message, name: _MARK})
    return encoded.replace(_MARK.encode(), b"\xff" * len(_MARK))


def too_deep(message: Mapping[str, object]) -> bytes:
    """With one field more, of lists in lists."""
    encoded = msgspec.msgpack.encode({**message, "more": _MARK})
    return encoded.replace(msgspec.msgpack.encode(_MARK), b"\x91" * DEPTH + b"\xc0")


def whole(body: bytes) -> bytes:
    """As a store keeps it: with the digest that fits."""
    return hashlib.sha256(body).digest() + body
