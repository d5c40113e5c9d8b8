"""Which ninja ends with the unit that failed, by the processes above its compiler driver."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from builddoctor.core.events import NinjaFailed
from builddoctor.runtime.first_failure import FailedNinjas
from builddoctor.runtime.units import Units
from builddoctor.system.process import Processes
from unit.trees import TextRoot

NINJA = 2


def tree(above: Mapping[int, tuple[int, str]]) -> TextRoot:
    """Processes: number to parent and command line."""
    files: dict[str, str | None] = {}
    for pid, (parent, words) in above.items():
        files[f"/proc/{pid}/stat"] = f"{pid} (x) S {parent} " + " ".join(["0"] * 20)
        files[f"/proc/{pid}/cmdline"] = words
    return TextRoot(files)


def seen(above: Mapping[int, tuple[int, str]], *drivers: int) -> NinjaFailed | None:
    """What the failure of the first driver's unit means."""

    async def run() -> NinjaFailed | None:
        processes = Processes(tree(above))
        units = Units(processes, began=lambda *_: None, ended=lambda _: None)
        for number, pid in enumerate(drivers, 1):
            units.pids[f"u{number}"] = pid
        return FailedNinjas(units, processes).of("u1", 5.0)

    return asyncio.run(run())


ABOVE = {NINJA: (1, "ninja\0-v"), 3: (NINJA, "/bin/sh\0-c\0nvcc -c a.cu"), 4: (3, "nvcc\0-c\0a.cu")}


def test_units_of_the_ninja_that_the_failed_one_is_of() -> None:
    others = {5: (NINJA, "nvcc"), 6: (1, "ninja"), 7: (6, "nvcc")}
    assert seen({**ABOVE, **others}, 4, 5, 7) == NinjaFailed(at_s=5.0, pid=NINJA, unit_id="u1", units=("u1", "u2"))


@pytest.mark.parametrize(
    "command",
    [
        "cd /b && nvcc -c a.cu 2>&1 && :",
        "ccache nvcc -c a.cu",
    ],
)
def test_a_shell_that_fails_with_its_compiler(command: str) -> None:
    assert seen({**ABOVE, 3: (NINJA, f"/bin/sh\0-c\0{command}")}, 4) is not None


@pytest.mark.parametrize(
    "command",
    ["nvcc -c a.cu || true", "nvcc -c a.cu; true", "nvcc -c a.cu | tee log", "! nvcc -c a.cu", "nvcc -c a.cu & wait"],
)
def test_a_shell_that_may_go_well_all_the_same(command: str) -> None:
    """The build would then go on, and must."""
    assert seen({**ABOVE, 3: (NINJA, f"/bin/sh\0-c\0{command}")}, 4) is None


@pytest.mark.parametrize(
    ("pid", "parent", "words"),
    [
        (NINJA, 1, "ninja\0-k\x000"),
        (NINJA, 1, "make"),
        (3, NINJA, "python3\0try_it.py"),
        (3, NINJA, "/bin/sh\0-e\0script.sh"),
    ],
)
def test_no_ninja_that_is_sure_to_end(pid: int, parent: int, words: str) -> None:
    assert seen({**ABOVE, pid: (parent, words)}, 4) is None


def test_ccache_between_them_fails_with_its_compiler() -> None:
    assert seen({**ABOVE, 3: (NINJA, "/usr/bin/ccache\0nvcc\0-c\0a.cu")}, 4) is not None
