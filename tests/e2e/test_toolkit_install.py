"""From a machine without CUDA: a toolkit of NVIDIA's own packages, and the example built with it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from builddoctor.core.events import Header
from support.example import EXAMPLE
from support.program import Program

SOURCE = """
#include <cuda.h>
#include <cuda_runtime_api.h>
int main() { int version = 0; return cudaRuntimeGetVersion(&version) == cudaSuccess && version >= 13000 ? 0 : 1; }
int driver() { return cuInit(0); }
"""


@pytest.mark.nightly
@pytest.mark.needs_cuda_packages
@pytest.mark.needs_cmake
def test_the_example_builds_with_a_toolkit_that_was_installed_just_now(program: Program) -> None:
    """No nvcc on PATH, caches empty: installed by name, found by ``--toolkit 13.0``, every unit compiled and linked.

    A plain compiler takes it for a CUDA_HOME too: headers, ``-lcudart``, and ``-lcuda`` without a driver.
    """
    program.env["PATH"] = ":".join(
        folder for folder in program.env["PATH"].split(":") if not os.path.exists(f"{folder}/nvcc")
    )
    for name in ("CUDA_HOME", "CUDA_PATH", "CUDACXX"):
        program.env.pop(name, None)
    done = program.run("toolkit", "install", "13.0")
    assert done.returncode == 0, done.stderr
    home = Path(done.stdout.strip())
    source = program.folder / "attention_kernels"
    shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns("build", "dist", "*.egg-info"))
    shown = program.run("build", str(source), "--toolkit", "13.0", "--dry-run")
    assert f"CUDA_HOME={home} CUDACXX={home}/bin/nvcc " in shown.stdout
    refused = program.run("build", str(source), "--toolkit", "99.0", "--dry-run")
    assert "no CUDA toolkit 99.0" in refused.stderr
    files = ["--trace", str(program.trace_file), "--summary", str(program.summary_file)]
    built = program.run("build", str(source), "--arch", "sm_90", "--toolkit", "13.0", *files)
    assert built.returncode == 0, built.stderr
    assert program.summary()["units"] == 16
    header = next(record for record in program.records() if isinstance(record, Header))
    assert header.toolkit == str(home)
    assert list(source.glob("dist/*.whl"))
    plain = program.folder / "plain.cpp"
    plain.write_text(SOURCE)
    flags = [f"-I{home}/include", f"-L{home}/lib64", f"-L{home}/lib64/stubs", "-lcudart", "-lcuda"]
    subprocess.run(["g++", str(plain), "-o", f"{plain}.out", *flags], env=program.env, check=True)
    needed = subprocess.run(["readelf", "-d", f"{plain}.out"], capture_output=True, text=True, check=True).stdout
    assert "[libcudart.so.13]" in needed
    assert "[libcuda.so.1]" in needed
