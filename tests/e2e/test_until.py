"""A build cut into runs that each have to end in time, with real nvcc."""

from __future__ import annotations

import json
import subprocess
from itertools import pairwise

import pytest

from support.example import Example
from support.objects import objects_of
from support.program import Program

pytestmark = [pytest.mark.needs_nvcc, pytest.mark.needs_cmake, pytest.mark.nightly]

MOST_RUNS = 12


def test_runs_of_twenty_seconds_end_with_the_same_objects(
    example: Example, plain_objects: dict[str, bytes], program: Program
) -> None:
    """Each goes on with what the one before has finished; what is finished is never compiled again."""
    example.configure_plainly()
    finished: list[set[str]] = []
    while not finished or len(finished) < MOST_RUNS:
        command = program.supervised("ninja", "-C", str(example.build), "-j8", options=["--until", "20s"])
        done = subprocess.run(command, env=program.env, capture_output=True, text=True, check=False)
        finished.append(_logged(example))
        if done.returncode == 0:
            break
        assert done.returncode == 75, done.stderr
        assert json.loads(program.summary_file.read_text())["result"] == "interrupted"
    assert len(finished) > 1
    assert all(before <= after for before, after in pairwise(finished))
    assert objects_of(example.build) == plain_objects
    log = (example.build / ".ninja_log").read_text().splitlines()[1:]
    outputs = [line.split("\t")[3] for line in log if line.split("\t")[3].endswith(".o")]
    assert len(outputs) == len(set(outputs))


def _logged(example: Example) -> set[str]:
    log = example.build / ".ninja_log"
    return {line.split("\t")[3] for line in log.read_text().splitlines()[1:]} if log.exists() else set()
