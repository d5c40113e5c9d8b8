"""Whatever is done to a build on a real cgroup v2, it completes or says why, and leaves nothing."""

from __future__ import annotations

import contextlib
import random
import signal
import time

import pytest

from builddoctor.core.events import PhaseStarted
from support.memcg import MIB, MemoryCgroup, memory_cgroup
from support.program import Program
from support.stand_ins import HOG, stand_in
from support.truth import holding

pytestmark = [pytest.mark.machines("v2"), pytest.mark.nightly, pytest.mark.trap(33), pytest.mark.trap(39)]

LIMIT_MIB = 900
UNITS = 6


def units(program: Program, chance: random.Random) -> None:
    """Compilers that take 40 to 250 MiB and end, and a ninja that starts all of them at once."""
    (program.folder / "done").touch()
    sizes = {f"u{number}": chance.randrange(40, 250) for number in range(UNITS)}
    cases = "".join(f"*{name}.cpp) exec {HOG} {size} 100 done;; " for name, size in sizes.items())
    stand_in(program, f'case "$*" in {cases}esac')
    rule = "rule cc\n  command = clang++ -c $in && touch $out\n"
    (program.folder / "build.ninja").write_text(rule + "".join(f"build {name}.o: cc {name}.cpp\n" for name in sizes))
    for name in sizes:
        (program.folder / f"{name}.cpp").touch()


@pytest.mark.parametrize("seed", range(20))
def test_a_build_completes_or_says_why(program: Program, seed: int) -> None:
    """A limit lowered in the middle, a neighbour that takes half of it, the supervisor killed, or two of these."""
    chance = random.Random(seed)
    units(program, chance)
    faults = chance.sample(["lower", "neighbour", "kill"], chance.choice([1, 1, 2]))
    with (
        memory_cgroup(LIMIT_MIB * MIB) as parent,
        memory_cgroup(2**62, parent=parent.folder) as ours,
        memory_cgroup(2**62, parent=parent.folder) as beside,
        contextlib.ExitStack() as stack,
    ):
        command = program.supervised("ninja", options=["--no-doctor", "--cores", str(UNITS)])
        process = program.start(ours.wrapped(command))
        program.await_record(PhaseStarted, process, phase_id=chance.randrange(1, 4))
        for fault in faults:
            harm(fault, chance, parent, beside, stack)
        if "kill" in faults:
            process.kill()
        output, _ = process.communicate()
        stack.close()
        wait_until_empty(ours)
        made = len(list(program.folder.glob("u*.o")))
    if "kill" in faults:
        assert process.returncode == -signal.SIGKILL
    elif process.returncode == 0:
        assert made == UNITS
        assert program.summary()["result"] == "ok"
    else:
        summary = program.summary()
        assert summary["verdict"] not in (None, "unknown"), output
        assert "  why " in output


def wait_until_empty(group: MemoryCgroup) -> None:
    """The guardian of a build whose supervisor was killed ends it in order, and that takes a while."""
    deadline = time.monotonic() + 60
    while group.members():
        assert time.monotonic() < deadline, f"left: {group.members()}"
        time.sleep(0.05)


def harm(
    fault: str, chance: random.Random, parent: MemoryCgroup, beside: MemoryCgroup, stack: contextlib.ExitStack
) -> None:
    if fault == "lower":
        with contextlib.suppress(OSError):
            parent.limit(chance.randrange(450, 800) * MIB)
    elif fault == "neighbour":
        with contextlib.suppress(AssertionError):
            # The kernel may take the neighbour instead.
            stack.enter_context(holding(beside, "private", str(chance.randrange(200, 450))))
