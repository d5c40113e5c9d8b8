"""xFormers: an extension of torch."""

from __future__ import annotations

from builddoctor.model.known_project import ArchKnob, Knob, KnownProject

PROJECT = KnownProject(
    name="xformers",
    title="xFormers",
    repository="https://github.com/facebookresearch/xformers",
    marks=("xformers/csrc", "third_party"),
    needed_submodules=("third_party/cutlass",),
    needs_torch=True,
    package="xformers",
    backend="torch's BuildExtension with Ninja",
    jobs=(Knob(variable="MAX_JOBS", default="ninja's own number"),),
    threads=Knob(variable="NVCC_APPEND_FLAGS", default="--threads 4, fixed in its setup.py"),
    archs=ArchKnob(variable="TORCH_CUDA_ARCH_LIST", spelling="dotted", ptx=True),
    settings=("FORCE_CUDA=1",),
    traps=("Where no GPU is seen, no CUDA is built without FORCE_CUDA=1 or TORCH_CUDA_ARCH_LIST.",),
)
