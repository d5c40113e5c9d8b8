"""The embedded example, built once plainly: what every supervised build of it is compared with."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support.example import Example
from support.objects import objects_of
from support.program import Program


@pytest.fixture(scope="session")
def example(tmp_path_factory: pytest.TempPathFactory) -> Example:
    return Example(tmp_path_factory.mktemp("example"))


@pytest.fixture(scope="session")
def plain_objects(example: Example) -> dict[str, bytes]:
    """The objects of a plain build with unlimited memory."""
    example.configure_plainly()
    subprocess.run(["ninja", "-C", str(example.build), "-j2"], env=example.env, check=True, capture_output=True)
    objects = objects_of(example.build)
    assert len(objects) >= 14
    return objects


@pytest.fixture(scope="session")
def recipe(example: Example, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of one gated build of the example, with all the memory there is."""
    program = Program(tmp_path_factory.mktemp("measured"))
    example.configure_plainly()
    done = subprocess.run(
        program.supervised("ninja", "-C", str(example.build)),
        cwd=example.source,
        env=program.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    path = program.folder / "example.toml"
    made = program.run("recipe", "from-trace", str(program.trace_file), "-o", str(path))
    assert made.returncode == 0, made.stderr
    return path
