"""Known projects by name, in miniature, with real nvcc: their variables arrive, their compilers meet gates."""

from __future__ import annotations

from pathlib import Path

import pytest

from builddoctor.core.events import PhaseAsked, PhaseEnded, UnitBegan
from builddoctor.core.phase import PhaseKind
from builddoctor.projects.catalogue import shipped_projects
from support.miniatures import FRONTS, miniature
from support.program import Program

pytestmark = [pytest.mark.needs_nvcc, pytest.mark.needs_cmake]

ARCHS = {
    "transformer_engine": "sm_90",
    "flash_attn": "sm_90",
    "natten": "sm_90",
    "deepspeed": "sm_90",
    "mamba_ssm": "sm_80 sm_90",
    "causal_conv1d": "sm_80 sm_90",
    "sgl_kernel": "sm_90",
    "flashinfer": "",
    "megatron_core": "",
}
"""What is compiled for ``--arch sm_90a``; the others take the letter."""


READ_ONLY = frozenset(
    (
        "cupy",
        "deep_gemm",
        "faiss",
        "flash_attn_4",
        "flash_mla",
        "grouped_gemm",
        "gsplat",
        "lightgbm",
        "mmcv",
        "nccl",
        "nccl_tests",
        "nerfacc",
        "pytorch3d",
        "sageattention",
        "stable_diffusion_cpp_python",
        "tiny_cuda_nn",
        "torch_cluster",
        "torch_scatter",
        "torch_sparse",
        "whisper_cpp",
        "xgboost",
    )
)
"""Entries without a miniature yet: what they say was read in the projects' own sources, and tried as far as the
changelog says. A name goes from here when it gets one."""


def test_every_known_project_has_a_miniature() -> None:
    """A new entry comes with one."""
    assert set(FRONTS) | READ_ONLY == {project.name for project in shipped_projects()}
    assert not READ_ONLY & set(FRONTS)


@pytest.mark.parametrize("name", sorted(FRONTS))
def test_a_project_is_built_by_its_name(name: str, program: Program, tmp_path: Path) -> None:
    """Its own variables are set, nvcc's tools ask before they run, the architectures arrive, the wheel is there."""
    folder = tmp_path / "checkout"
    top = miniature(name, folder)
    wheels = tmp_path / "wheels"
    options = ["--arch", "sm_90a", "--no-doctor", "--cache", "none", "--wheel-dir", str(wheels)]
    files = ["--trace", str(program.trace_file), "--summary", str(program.summary_file)]
    done = program.run("build", name, "--source", str(folder), *options, *files)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(list(wheels.glob("*.whl"))) == 1
    records = program.records()
    wanted = ARCHS.get(name, "sm_90a").split()
    compiled = [
        each
        for each in records
        if isinstance(each, UnitBegan) and each.unit.counted and each.unit.source.endswith(".cu")
    ]
    assert [sorted(each.unit.archs) for each in compiled if "kernel.cu" in each.unit.source] == (
        [wanted] if wanted else []
    )
    asked = {each.phase.phase_id: each.phase.kind for each in records if isinstance(each, PhaseAsked)}
    ended = [asked[each.phase_id] for each in records if isinstance(each, PhaseEnded)]
    assert ended.count(PhaseKind.CICC) >= len(wanted)
    assert PhaseKind.HOST in ended or name == "flashinfer"
    if name == "flashinfer":
        assert (top / "archs.txt").read_text() == "9.0a"


def test_what_was_compiled_is_not_compiled_again(program: Program, tmp_path: Path) -> None:
    """The folder stays, also where the project's own would be a temporary one."""
    folder = tmp_path / "checkout"
    miniature("transformer_engine", folder)
    for expected in (1, 0):
        options = ["--arch", "sm_90", "--no-doctor", "--cache", "none", "--trace", str(program.trace_file)]
        done = program.run("build", "te", "--source", str(folder), *options, "--wheel-dir", str(tmp_path / "wheels"))
        assert done.returncode == 0, done.stdout + done.stderr
        compiled = [each for each in program.records() if isinstance(each, UnitBegan) and each.unit.counted]
        assert len([each for each in compiled if "kernel.cu" in each.unit.source]) == expected
        program.trace_file.unlink()


PLAIN = """
import os, subprocess
from setuptools import Distribution, setup
from setuptools.command.build_ext import build_ext


class Nvcc(build_ext):
    def run(self):
        os.makedirs("build", exist_ok=True)
        nvcc = os.environ["CUDA_HOME"] + "/bin/nvcc"
        subprocess.run([nvcc, "-arch=sm_90", "-c", "kernel.cu", "-o", "build/kernel.o"], check=True)


class Built(Distribution):
    def has_ext_modules(self):
        return True


setup(name="plain", version="1", distclass=Built, cmdclass={"build_ext": Nvcc}, py_modules=[])
"""


def test_a_setup_py_that_calls_nvcc_by_its_path_meets_gates(program: Program, tmp_path: Path) -> None:
    """No Ninja, no CMake, and an nvcc that finds its tools beside itself: the environment catches them."""
    folder = tmp_path / "plain"
    folder.mkdir()
    (folder / "setup.py").write_text(PLAIN)
    (folder / "kernel.cu").write_text("__global__ void scale(float *x) { *x *= 2; }\n")
    options = ["--no-doctor", "--cache", "none", "--trace", str(program.trace_file)]
    done = program.run("build", str(folder), *options)
    assert done.returncode == 0, done.stdout + done.stderr
    asked = [each.phase.kind for each in program.records() if isinstance(each, PhaseAsked)]
    assert {"cudafe++", "cicc", "ptxas"} <= set(asked)
    assert "unasked" not in done.stdout + done.stderr
