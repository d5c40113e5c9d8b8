"""NVIDIA's Apex: extensions of torch."""

from __future__ import annotations

from builddoctor.model.known_project import ArchKnob, Knob, KnownProject
from builddoctor.projects.catalogue.libraries import TORCH_HEADERS

PROJECT = KnownProject(
    name="apex",
    title="Apex",
    aliases=("nvidia_apex",),
    repository="https://github.com/NVIDIA/apex",
    tag="{version}",
    marks=("apex/contrib/csrc", "csrc"),
    needed_libraries=TORCH_HEADERS,
    needs_torch=True,
    no_package="the package named apex in the package index is another project",
    backend="torch's BuildExtension with Ninja, an extension after the other",
    jobs=(Knob(variable="MAX_JOBS", default="ninja's own number"), Knob(variable="APEX_PARALLEL_BUILD", default="1")),
    threads=Knob(variable="NVCC_APPEND_FLAGS"),
    archs=ArchKnob(variable="TORCH_CUDA_ARCH_LIST", spelling="dotted", ptx=True),
    fixed_archs="group_norm and some others name their own",
    settings=("APEX_CPP_EXT=1", "APEX_CUDA_EXT=1"),
    traps=(
        "Without APEX_CPP_EXT and APEX_CUDA_EXT nothing is compiled.",
        "Jobs multiply: APEX_PARALLEL_BUILD extensions, MAX_JOBS each, nvcc's threads each.",
    ),
)
