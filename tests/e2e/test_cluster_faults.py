"""Each fault of a cluster once or twice, at a random moment of a real build: as ``scripts/faults`` does it 20 times."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from support.cluster_faults import FAULTS, Site, site_in

pytestmark = [
    pytest.mark.needs_nvcc,
    pytest.mark.needs_memcg,
    pytest.mark.needs_unshare,
    pytest.mark.alone,
    pytest.mark.nightly,
]

RUNS = 2


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site_in(tmp_path_factory.mktemp("site")) as made:
        yield made


@pytest.mark.parametrize("name", FAULTS)
def test_a_build_completes_or_says_why_not(site: Site, name: str) -> None:
    """The row that fails has the seed with which ``scripts/faults`` repeats it."""
    seed = random.randrange(1 << 16)
    for number in range(RUNS):
        row = site.build(FAULTS[name], number=number, seed=seed)
        assert row.good, row
