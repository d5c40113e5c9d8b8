"""A build cut into runs that each have to end in time, with real nvcc."""

from __future__ import annotations

import json
import subprocess
from itertools import pairwise
from pathlib import Path

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


def test_four_machines_do_what_one_does(tmp_path: Path, program: Program) -> None:
    """Each with a folder, a HOME and a state of its own, by ``save`` and ``restore``; nothing is compiled twice.

    nvcc puts a hash of the folder into names: an object is that of a plain build in the folder where it was compiled.
    """
    archive = tmp_path / "build.tar.gz"
    examples = [Example(tmp_path / f"machine-{number}") for number in range(4)]
    compiled: list[set[str]] = []
    ended_with = 75
    for example in examples:
        home = str(example.source.parent)
        env = program.env | {"HOME": home, "BUILDDOCTOR_STATE_DIR": "", "BUILDDOCTOR_CACHE_DIR": ""}
        if compiled:
            restored = run(program.argv("restore", str(archive)), example, env)
            assert restored.returncode == 0, restored.stderr
        else:
            example.configure_plainly()
        before = _logged(example)
        # The last has as much time as it needs.
        until = ["--until", "20s"] if example is not examples[-1] else []
        done = run(program.supervised("ninja", "-C", str(example.build), "-j8", options=until), example, env)
        ended_with = done.returncode
        assert ended_with in (0, 75), done.stderr
        compiled.append({each for each in _logged(example) - before if each.endswith(".o")})
        assert run(program.argv("save", str(archive)), example, env).returncode == 0
    assert ended_with == 0
    assert len([each for each in compiled if each]) > 1
    names = [each for one in compiled for each in one]
    assert len(names) == len(set(names)) >= 14
    ended = objects_of(examples[-1].build)
    for example, theirs in zip(examples, compiled, strict=True):
        example.configure_plainly()
        subprocess.run(["ninja", *sorted(theirs)], cwd=example.build, env=example.env, check=True, capture_output=True)
        plain = objects_of(example.build)
        assert {each: ended[each] for each in theirs} == {each: plain[each] for each in theirs}


def run(argv: list[str], example: Example, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, cwd=example.source, env=env, capture_output=True, text=True, check=False)
