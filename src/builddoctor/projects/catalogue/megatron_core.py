"""Megatron-LM's core: small extensions, most of them C++."""

from __future__ import annotations

from builddoctor.model.known_project import ArchKnob, Knob, KnownProject

PROJECT = KnownProject(
    name="megatron_core",
    title="Megatron Core",
    aliases=("megatron", "megatron_lm"),
    repository="https://github.com/NVIDIA/Megatron-LM",
    tag="core_v{version}",
    marks=("megatron/core/datasets/helpers.cpp",),
    package="megatron-core",
    backend="setuptools with pybind11; CUDA extensions are torch's, compiled at their first use",
    jobs=(Knob(variable="MAX_JOBS", default="ninja's own number"),),
    archs=ArchKnob(variable="TORCH_CUDA_ARCH_LIST", spelling="dotted", ptx=True),
    traps=("What takes memory in such an installation is TransformerEngine and Apex: build those by name.",),
)
