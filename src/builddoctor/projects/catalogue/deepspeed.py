"""DeepSpeed: operators, each an extension of torch."""

from __future__ import annotations

from builddoctor.model.known_project import ArchKnob, Knob, KnownProject

PROJECT = KnownProject(
    name="deepspeed",
    title="DeepSpeed",
    repository="https://github.com/deepspeedai/DeepSpeed",
    marks=("op_builder", "deepspeed"),
    package="deepspeed",
    backend="torch's BuildExtension, without Ninja unless DS_ENABLE_NINJA=1",
    jobs=(Knob(variable="DS_ENABLE_NINJA", default="0: one file after the other"),),
    threads=Knob(variable="DS_NVCC_THREADS", default="the cores, 8 at most"),
    archs=ArchKnob(variable="TORCH_CUDA_ARCH_LIST", spelling="dotted", ptx=True),
    settings=("DS_BUILD_OPS=1", "DS_ENABLE_NINJA=1"),
    traps=(
        "Without DS_BUILD_OPS=1 or a DS_BUILD_<OPERATOR>=1 nothing is compiled before its first use.",
        "Without ninja MAX_JOBS and PYTORCH_NVCC are not read.",
    ),
)
