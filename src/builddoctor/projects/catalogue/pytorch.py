"""PyTorch itself."""

from __future__ import annotations

from builddoctor.model.known_project import ArchKnob, Component, Knob, KnownProject

PROJECT = KnownProject(
    name="pytorch",
    title="PyTorch",
    aliases=("torch",),
    repository="https://github.com/pytorch/pytorch",
    marks=("torch/csrc", "c10", "aten"),
    needed_submodules=("third_party/cutlass", "third_party/protobuf"),
    needed_libraries=("cublas", "curand", "cusolver", "cusparse", "nvrtc", "profiler"),
    no_package="the package index has no source of it",
    backend="setup.py: CMake with Ninja",
    jobs=(Knob(variable="MAX_JOBS", default="ninja's own number"),),
    threads=Knob(variable="TORCH_NVCC_FLAGS"),
    archs=ArchKnob(variable="TORCH_CUDA_ARCH_LIST", spelling="dotted", ptx=True),
    settings=("USE_CUDA=1",),
    components=(
        Component(name="distributed", off="USE_DISTRIBUTED=0", what="torch.distributed"),
        Component(name="nccl", off="USE_NCCL=0", what="collectives between GPUs"),
        Component(name="flash-attention", off="USE_FLASH_ATTENTION=0", what="the heaviest kernels of attention"),
        Component(name="mem-eff-attention", off="USE_MEM_EFF_ATTENTION=0", what="memory-efficient attention"),
        Component(name="tests", off="BUILD_TEST=0", what="its C++ tests"),
    ),
    traps=("Every variable CMAKE_*, USE_* and BUILD_* of the environment becomes a CMake setting.",),
)
