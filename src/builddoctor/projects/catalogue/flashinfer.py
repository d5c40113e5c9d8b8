"""FlashInfer: kernels compiled when they are used, or ahead of time."""

from __future__ import annotations

from builddoctor.model.known_project import ArchKnob, Knob, KnownProject

PROJECT = KnownProject(
    name="flashinfer",
    title="FlashInfer",
    aliases=("flashinfer_python",),
    repository="https://github.com/flashinfer-ai/flashinfer",
    marks=("flashinfer", "include/flashinfer"),
    needed_submodules=("3rdparty/cutlass", "3rdparty/spdlog"),
    heavy_phase_mib=8192.0,
    heavy_source="about 8 GiB a job (flashinfer#3636)",
    package="flashinfer-python",
    backend="its own build backend, which writes build files for Ninja",
    jobs=(Knob(variable="MAX_JOBS", default="ninja's own number"),),
    threads=Knob(variable="FLASHINFER_NVCC_THREADS", default="1"),
    archs=ArchKnob(variable="FLASHINFER_CUDA_ARCH_LIST", spelling="dotted", separator=" "),
    settings=("FLASHINFER_BUILD_NO_PIP=1", "BUILD_NVEP=0"),
    traps=(
        "Its build backend installs packages into the running Python; FLASHINFER_BUILD_NO_PIP=1 stops that.",
        "Its wheel compiles nothing: kernels are compiled at their first use.",
    ),
)
