"""Unchanged builds in an activated shell of a container, in 3 GiB: real nvcc, a root like docker's."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from support.container import NOBODY, Container, Volume
from support.example import Example
from support.memcg import memory_cgroup
from support.objects import objects_of, only_objects
from support.program import clean_environment
from support.real_programs import path_of_real_programs

pytestmark = [pytest.mark.needs_nvcc, pytest.mark.needs_cmake, pytest.mark.needs_memcg, pytest.mark.needs_unshare]

GIB = 1024**3
CONFIGURE = "cmake -S {source} -B {source}/build -DCMAKE_CUDA_ARCHITECTURES=90 -G"
PROGRAM = f"{sys.executable} -m builddoctor"
UV = Path(sys.executable).with_name("uv")


@pytest.mark.parametrize(
    "commands",
    [
        f"{CONFIGURE} 'Unix Makefiles'; make -C {{source}}/build -j8",
        f"{sys.executable} -m pip wheel --no-deps -w /tmp/wheels {{source}}",
        pytest.param(f"{CONFIGURE} Ninja; cmake --build {{source}}/build", marks=pytest.mark.nightly),
        pytest.param(f"{UV} build --wheel -o /tmp/wheels {{source}}", marks=pytest.mark.nightly),
    ],
    ids=["make", "pip", "cmake", "uv"],
)
def test_it_makes_what_a_plain_build_does(
    commands: str, example: Example, plain_objects: dict[str, bytes], tmp_path: Path
) -> None:
    """By a user without name, home and privileges, pip and uv in an environment of their own; the kernel kills none."""
    source = tmp_path / "source"
    shutil.copytree(example.source, source, ignore=shutil.ignore_patterns("build", "*.egg-info"))
    for each in (source, *source.rglob("*")):
        os.chown(each, NOBODY, NOBODY)
    # At the place that objects of a plain build name.
    container = Container(tmp_path / "container", volumes=(Volume(source, example.source, "rw"),))
    # Where pip and uv find packages is this machine's business.
    env = {**clean_environment(), "PATH": path_of_real_programs(), "HOME": "/root"}
    env |= {"AK_CUDA_ARCHS": "90", "UV_CACHE_DIR": "/tmp/uv"}
    script = f"""
        set -e
        eval "$({PROGRAM} activate --shell sh)"
        {{ {commands.format(source=example.source)}; }} >&2
        while {PROGRAM} status --json | grep -q title; do :; done
        {PROGRAM} trace list --json
    """
    with memory_cgroup(3 * GIB) as group:
        done = container.run(["bash", "-c", script], group, env)
        assert done.returncode == 0, done.stderr
        assert group.kernel_kills == 0
    (trace,) = json.loads(done.stdout)
    assert (trace["result"], trace["limit_mib"]) == ("ok", 3072)
    assert only_objects(objects_of(source / "build")) == only_objects(plain_objects)
