"""vLLM: CMake below setup.py, with parts fetched from git."""

from __future__ import annotations

from builddoctor.model.known_project import ArchKnob, Knob, KnownProject
from builddoctor.projects.catalogue.libraries import TORCH_HEADERS

PROJECT = KnownProject(
    name="vllm",
    title="vLLM",
    repository="https://github.com/vllm-project/vllm",
    marks=("vllm/engine", "csrc", "CMakeLists.txt"),
    needed_libraries=TORCH_HEADERS,
    needs_torch=True,
    avoids_sccache="VLLM_DISABLE_SCCACHE=1",
    no_package="its source distribution fetches cutlass, flash-attention and others from git while it is built",
    backend="setup.py: CMake with Ninja",
    jobs=(Knob(variable="MAX_JOBS", default="the cores; divided by NVCC_THREADS"),),
    threads=Knob(variable="NVCC_THREADS", default="1"),
    archs=ArchKnob(variable="TORCH_CUDA_ARCH_LIST", spelling="dotted", ptx=True),
    settings=("VLLM_TARGET_DEVICE=cuda",),
    traps=(
        "It runs MAX_JOBS divided by NVCC_THREADS jobs: 4 and 4 are one.",
        "sccache or ccache on PATH is used without being asked for.",
        "Parts are cloned from git during the configure step; VLLM_CUTLASS_SRC_DIR and its kin name copies.",
    ),
)
