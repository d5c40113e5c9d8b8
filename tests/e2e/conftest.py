"""The embedded example, built once plainly: what every supervised build of it is compared with."""

from __future__ import annotations

import subprocess

import pytest

from support.example import Example
from support.objects import objects_of


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
