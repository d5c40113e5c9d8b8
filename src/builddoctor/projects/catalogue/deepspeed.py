"""DeepSpeed: operators, each an extension of torch."""

from __future__ import annotations

from builddoctor.model.known_project import ArchKnob, Knob, KnownProject
from builddoctor.projects.catalogue.libraries import TORCH_HEADERS

PROJECT = KnownProject(
    name="deepspeed",
    title="DeepSpeed",
    repository="https://github.com/deepspeedai/DeepSpeed",
    marks=("op_builder", "deepspeed"),
    needed_libraries=(*TORCH_HEADERS, "curand"),
    needs_torch=True,
    package="deepspeed",
    backend="torch's BuildExtension, without Ninja unless DS_ENABLE_NINJA=1",
    jobs=(
        Knob(variable="DS_ENABLE_NINJA", default="one file after the other"),
        Knob(variable="MAX_JOBS", default="ninja's own number, where there is ninja"),
    ),
    threads=Knob(variable="DS_NVCC_THREADS", default="the cores, 8 at most"),
    archs=ArchKnob(variable="TORCH_CUDA_ARCH_LIST", spelling="dotted", letters=False, ptx=True),
    settings=("DS_ACCELERATOR=cuda", "DS_BUILD_OPS=1", "DS_ENABLE_NINJA=1"),
    traps=(
        "Without DS_BUILD_OPS=1 or a DS_BUILD_<OPERATOR>=1 nothing is compiled before its first use.",
        "Without DS_ACCELERATOR=cuda, on a machine without a GPU, the operators for processors are built alone.",
        "An operator alone: DS_BUILD_OPS=0 DS_BUILD_FUSED_ADAM=1 builddoctor build deepspeed.",
        "DS_ENABLE_NINJA=0 is a word like any other, and turns ninja on; DS_ENABLE_NINJA= turns it off.",
        "Without ninja MAX_JOBS and PYTORCH_NVCC are not read.",
        "An nvcc of another minor version than torch's is refused; DS_SKIP_CUDA_CHECK=1 lets it pass.",
        "A letter in TORCH_CUDA_ARCH_LIST (9.0a) is a ValueError.",
    ),
)
