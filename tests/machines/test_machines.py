"""Each machine of ours is booted, and the tests that are marked for it run in it: ``tests/inside``, and in the nightly
those of ``tests/system`` as well."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.vm.machines import MACHINES

ROOT = Path(__file__).parents[2]
ALWAYS = ("v2", "v2-container")
"""In every tier but the first; the others in the nightly. TCG is slow: a test that takes 1 s here takes 10 there."""

TIMEOUT_S = {"all": 600, "nightly": 7200}


def marked() -> list[str]:
    """Tests of the system that say in which machines they run as well: to import all of them takes 20 s there."""
    files = sorted((ROOT / "tests/system").glob("test_*.py"))
    return [str(each.relative_to(ROOT)) for each in files if "mark.machines(" in each.read_text()]


@pytest.mark.parametrize(
    "machine", [pytest.param(each.name, marks=() if each.name in ALWAYS else pytest.mark.nightly) for each in MACHINES]
)
@pytest.mark.needs_qemu
@pytest.mark.slow
def test_what_is_marked_for_a_machine_passes_in_it(machine: str, pytestconfig: pytest.Config) -> None:
    """pytest's own exit code comes back: 0, and not that of a run without tests."""
    tier = pytestconfig.getoption("--tier")
    limit_s = TIMEOUT_S.get(tier, TIMEOUT_S["all"])
    inside = ["python3", "-m", "pytest", "--machine", machine, "--tier", tier, "-q", "-p", "no:cacheprovider"]
    command = [sys.executable, str(ROOT / "scripts/vm"), machine, "--timeout-s", str(limit_s), "--"]
    done = subprocess.run(
        [*command, *inside, f"--timeout={limit_s}", "tests/inside", *(marked() if tier == "nightly" else ())],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
