"""What builddoctor says is free, against what a process gets before the kernel kills it (docs/results/truth.md)."""

from __future__ import annotations

import pytest

from support.truth import CASES, TOLERATED, look

pytestmark = [pytest.mark.slow, pytest.mark.needs_memcg]


@pytest.mark.trap(9)
@pytest.mark.trap(10)
@pytest.mark.parametrize("name", [name for name in CASES if name not in TOLERATED])
def test_what_is_said_to_be_free_can_be_had(name: str) -> None:
    """Never more than a process gets, and at most a tenth or 64 MiB less."""
    row = look(name, CASES[name])
    assert not row.too_high, row
    assert not row.too_low, row


@pytest.mark.parametrize("name", TOLERATED)
def test_kernel_memory_of_v1_counts_as_held(name: str) -> None:
    """v1 does not say what of it is reclaimable: less than there is, never more."""
    row = look(name, CASES[name])
    assert not row.too_high, row
