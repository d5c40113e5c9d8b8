"""The number by which ninja knows in its log that a command is the one of last time.

Covers: MurmurHash64A (log versions 5 and 6, up to ninja 1.12) and rapidhash (version 7, from 1.13 on).
Sources: ninja's src/build_log.cc; https://github.com/aappleby/smhasher; the first release of
https://github.com/Nicoshev/rapidhash.
"""

from __future__ import annotations

from collections.abc import Callable

_ALL = (1 << 64) - 1
_MURMUR_SEED = 0xDECAFBADDECAFBAD
_MURMUR_TIMES = 0xC6A4A7935BD1E995
_RAPID_SEED = 0xBDD89AA982704029
_RAPID = (0x2D358DCCAA6C78A5, 0x8BB84B93962EACC9, 0x4B33A62ED433D4A3)


def hash_of(log_version: int) -> Callable[[bytes], int] | None:
    """What a log of this version goes by; None for one that is not known."""
    return {5: murmur, 6: murmur, 7: rapid}.get(log_version)


def murmur(text: bytes) -> int:
    """MurmurHash64A with ninja's seed."""
    whole = len(text) & ~7
    value = _MURMUR_SEED ^ (len(text) * _MURMUR_TIMES & _ALL)
    for at in range(0, whole, 8):
        word = int.from_bytes(text[at : at + 8], "little") * _MURMUR_TIMES & _ALL
        word = (word ^ word >> 47) * _MURMUR_TIMES & _ALL
        value = (value ^ word) * _MURMUR_TIMES & _ALL
    if rest := text[whole:]:
        value = (value ^ int.from_bytes(rest, "little")) * _MURMUR_TIMES & _ALL
    value = (value ^ value >> 47) * _MURMUR_TIMES & _ALL
    return value ^ value >> 47


def rapid(text: bytes) -> int:
    """rapidhash with its own seed."""
    size = len(text)
    seed = _RAPID_SEED ^ _mix(_RAPID_SEED ^ _RAPID[0], _RAPID[1]) ^ size
    if size <= 16:
        first, second = _short(text)
    else:
        at = 0
        if size > 48:
            lanes = [seed, seed, seed]
            while size - at >= 48 or at == 0:
                for lane, secret in enumerate(_RAPID):
                    here = at + 16 * lane
                    lanes[lane] = _mix(_word(text, here) ^ secret, _word(text, here + 8) ^ lanes[lane])
                at += 48
            seed = lanes[0] ^ lanes[1] ^ lanes[2]
        left = size - at
        if left > 16:
            seed = _mix(_word(text, at) ^ _RAPID[2], _word(text, at + 8) ^ seed ^ _RAPID[1])
            if left > 32:
                seed = _mix(_word(text, at + 16) ^ _RAPID[2], _word(text, at + 24) ^ seed)
        first, second = _word(text, size - 16), _word(text, size - 8)
    product = (first ^ _RAPID[1]) * (second ^ seed)
    return _mix(product & _ALL ^ _RAPID[0] ^ size, product >> 64 ^ _RAPID[1])


def _short(text: bytes) -> tuple[int, int]:
    """The two words of at most 16 bytes."""
    size = len(text)
    if size >= 4:
        apart = (size & 24) >> (size >> 3)
        last = size - 4
        return _half(text, 0) << 32 | _half(text, last), _half(text, apart) << 32 | _half(text, last - apart)
    return (text[0] << 56 | text[size >> 1] << 32 | text[-1] if size else 0), 0


def _mix(one: int, other: int) -> int:
    product = one * other
    return product >> 64 ^ product & _ALL


def _word(text: bytes, at: int) -> int:
    return int.from_bytes(text[at : at + 8], "little")


def _half(text: bytes, at: int) -> int:
    return int.from_bytes(text[at : at + 4], "little")
