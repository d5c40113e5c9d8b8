"""``scripts/side_by_side`` with the real kernel: builddoctor is near what was measured, others are not."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.capabilities import CGROUP_V1
from support.program import clean_environment

pytestmark = [pytest.mark.slow, pytest.mark.needs_memcg]

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "side_by_side"
STEP_MIB = 8
GIB = 1024


def groups_of(process: subprocess.Popen[str]) -> list[Path]:
    return list(CGROUP_V1.glob(f"bd-side-{process.pid}-*"))


def start(*arguments: str) -> subprocess.Popen[str]:
    argv = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.Popen(argv, env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.trap(1)
@pytest.mark.trap(4)
def test_what_the_kernel_gives_is_what_builddoctor_says() -> None:
    """A parent's limit and a private namespace: within a tenth of what was measured; the leaf's own file is far off."""
    with start("--only", "2,6", "--json") as process:
        output, errors = process.communicate()
    assert process.returncode == 0, errors
    rows = json.loads(output)
    assert [(row["case"], row["skipped"], row["measured"]) for row in rows] == [(2, "", True), (6, "", True)]
    for row in rows:
        truth_mib, said_mib = row["truth_mib"], row["answers_mib"]
        assert 0.9 * 512 < truth_mib <= 512
        assert 0.9 * truth_mib <= said_mib["builddoctor"] <= truth_mib + STEP_MIB
        assert said_mib["leaf only"] > 4 * truth_mib
        assert "builddoctor" not in row["verdict"]
        assert "leaf only" in row["verdict"]
    assert groups_of(process) == []


@pytest.mark.trap(12)
def test_a_gb200_tray_as_its_files_show_it_to_every_tool() -> None:
    """Files laid over /proc and /sys: free and psutil count the GPUs' memory, the real command of ours does not."""
    with start("--only", "8", "--json") as process:
        output, errors = process.communicate()
    assert process.returncode == 0, errors
    (row,) = json.loads(output)
    assert row["answers_mib"]["free"] == row["answers_mib"]["psutil"] == (2 * 478 + 4 * 184.5) * GIB
    assert row["answers_mib"]["builddoctor"] == row["truth_mib"] == 2 * 478 * GIB


def test_an_interrupt_leaves_no_group_and_no_process() -> None:
    """Ctrl-C while a case stands, with a process that holds memory in a sibling group: all of it is removed."""
    with start("--only", "3") as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "case 3: made, asking\n"
        assert groups_of(process) != []
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert process.returncode == 128 + signal.SIGINT
    assert groups_of(process) == []


def test_a_page_says_what_was_left_out(tmp_path: Path) -> None:
    """A Python without dask: its column says so, and the table is whole."""
    page = tmp_path / "page.md"
    with start("--only", "2", "--dask", str(tmp_path / "none"), "-o", str(page)) as process:
        output, errors = process.communicate()
    assert (process.returncode, output) == (0, ""), errors
    table = [line.strip("|").split("|") for line in page.read_text().splitlines() if line.startswith("|")]
    assert [len(cells) for cells in table] == [8, 8, 8]
    assert table[2][5].strip() == "not installed"
    assert "parent/memory.limit_in_bytes" in table[2][2]
