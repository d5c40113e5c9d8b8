"""The hashes of ninja's log, against what the original C code gives for the same bytes."""

from __future__ import annotations

import pytest

from builddoctor.carry.command_hash import hash_of, murmur, rapid

PART = 1 << 64


def some_bytes(size: int) -> bytes:
    """Knuth's generator, highest bytes."""
    state, made = 1, bytearray()
    for _ in range(size):
        state = (state * 6364136223846793005 + 1442695040888963407) % PART
        made.append(state >> 56)
    return bytes(made)


@pytest.mark.parametrize(
    ("size", "by_rapid", "by_murmur"),
    [
        (0, 0x5A6EF77074EBC84B, 0x87C2BC0BEAF1D91D),
        (4, 0xF3B9BC91FFF766BB, 0xF8AE8A609192F46E),
        (17, 0x89C148E8036074E2, 0x6BE7F5FD66514A6E),
        (49, 0xC4FB66020ADFB81F, 0x379FE32FD0292358),
        (97, 0xF4BF4AF279F691DA, 0xF1511FB2558E8D07),
        (299, 0x76F77E5F90876FAF, 0xECCFB57C0E2009E7),
    ],
)
def test_the_hash_is_that_of_the_original(size: int, by_rapid: int, by_murmur: int) -> None:
    """rapidhash.h of ninja 1.13 and MurmurHash64A of 1.12, compiled; sizes from each branch of both."""
    assert rapid(some_bytes(size)) == by_rapid
    assert murmur(some_bytes(size)) == by_murmur


def test_a_log_of_another_version_is_not_guessed_at() -> None:
    assert [hash_of(version) for version in (4, 5, 6, 7, 8)] == [None, murmur, murmur, rapid, None]
