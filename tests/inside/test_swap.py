"""Real swap, on a disk and in compressed memory: it counts as nothing, and is said."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from support.memcg import MIB, memory_cgroup
from support.program import Program
from support.reading import asking, reading_of
from support.truth import HOG, holding

pytestmark = [pytest.mark.machines("swap", "zram"), pytest.mark.trap(41)]


def test_what_is_swapped_out_makes_no_room_that_is_promised() -> None:
    """1.5 GiB, of which a process holds 1.2 and had most of it swapped out: what is said to be free can be had."""
    with memory_cgroup(1536 * MIB) as group, holding(group, "private", "1200"):
        # What the kernel swaps out of it now, as it does by itself when memory is short.
        subprocess.run(["sh", "-c", f"echo 800M > {group.folder}/memory.reclaim"], check=False)
        swapped_mib = int((group.folder / "memory.swap.current").read_text()) / MIB
        assert swapped_mib > 500
        said_mib = reading_of(group.run(asking()).stdout).tightest.headroom_mib
        assert said_mib > 336 + 400
        took = group.run([sys.executable, "-c", HOG, str(int(said_mib) - 30)])
        assert took.returncode == 0, "the kernel killed what builddoctor would have let run"


def test_swap_is_said_and_counts_as_nothing(program: Program) -> None:
    """The doctor names its size; headroom is that of memory alone."""
    report = json.loads(program.run("doctor", "--json").stdout)
    (swap,) = [check for check in report["checks"] if check["name"] == "memory-swap"]
    assert "counts as nothing" in swap["text"]
    assert report["headroom_mib"] <= report["limit_mib"]
