"""A build that ends at its first failure, with a real ninja: as soon as it would without us, and not before."""

from __future__ import annotations

import pytest

from builddoctor.core.events import PhaseAsked, StopNinja, UnitBegan
from support.fake_toolkit import fake_toolkit
from support.program import Program

pytestmark = [pytest.mark.slow, pytest.mark.machines("v2", "next")]

UNITS = 20

FIRST_FAILS = """
import sys
if not any(word.endswith("u0.cu") for word in sys.argv):
    open(sys.argv[-1], "w").close()
    sys.exit(0)
sys.exit("u0.cu(3): error: what breaks it")
"""


def built(program: Program, *options: str, command: str = "nvcc -c $in -o $out") -> tuple[int, str]:
    """Exit code and what was printed. One unit fails; the others were started beside it."""
    edges = "".join(f"build u{n}.o: cu u{n}.cu\n" for n in range(UNITS))
    (program.folder / "build.ninja").write_text(f"rule cu\n  command = {command}\n{edges}")
    for n in range(UNITS):
        (program.folder / f"u{n}.cu").write_text("")
    toolkit = fake_toolkit(program.folder / "cuda", FIRST_FAILS)
    supervised = program.supervised("ninja", *options, options=["--cores", "2", "--toolkit", str(toolkit)])
    build = program.start(supervised)
    printed, _ = build.communicate()
    return build.returncode, printed


def begun(program: Program) -> int:
    return len({record.phase.unit_id for record in program.records() if isinstance(record, PhaseAsked)})


def objects(program: Program) -> int:
    return len(list(program.folder.glob("u*.o")))


def test_ninja_is_ended_in_order(program: Program) -> None:
    """With its own exit code, after it has said what failed; what was built by then stays."""
    code, printed = built(program)
    assert code == 1
    assert "a unit failed: the build ends after what runs" in printed
    assert printed.index("FAILED: ") < printed.index("what breaks it") < printed.index("ninja: build stopped")
    (stop,) = [record for record in program.records() if isinstance(record, StopNinja)]
    assert begun(program) < UNITS
    assert objects(program) + len(stop.units) + 1 == sum(isinstance(each, UnitBegan) for each in program.records())
    assert program.summary()["verdict"] != "interrupted"
    (program.folder / "build.ninja").write_text((program.folder / "build.ninja").read_text().replace("u0.cu", "u1.cu"))
    again = program.run("run", "--trace", str(program.folder / "second.jsonl"), "--toolkit", "cuda", "--", "ninja")
    assert again.returncode == 0, again.stderr
    assert objects(program) == UNITS


@pytest.mark.parametrize("command", ["nvcc -c $in -o $out || touch $out", "nvcc -c $in -o $out"])
def test_a_build_that_goes_on_goes_on(program: Program, command: str) -> None:
    """Its command may make up for the failure, or ninja was told to go on."""
    code, _ = built(program, *(() if "||" in command else ("-k", "0")), command=command)
    assert code == (0 if "||" in command else 1)
    assert begun(program) == UNITS
    assert not any(isinstance(record, StopNinja) for record in program.records())
