"""FlashAttention 2: an extension of torch."""

from __future__ import annotations

from builddoctor.model.known_project import ArchKnob, Knob, KnownProject, VersionNote
from builddoctor.projects.catalogue.libraries import TORCH_HEADERS

PROJECT = KnownProject(
    name="flash_attn",
    title="FlashAttention 2",
    aliases=("flash_attention", "flash_attn_2", "fa2"),
    repository="https://github.com/Dao-AILab/flash-attention",
    marks=("csrc/flash_attn/flash_api.cpp", "setup.py"),
    needed_submodules=("csrc/cutlass",),
    needed_libraries=TORCH_HEADERS,
    needs_torch=True,
    force_build="FLASH_ATTENTION_FORCE_BUILD=TRUE",
    heavy_phase_mib=4768.0,
    heavy_source="3 to 5 GB an nvcc thread, of which it starts 4 a job (flash-attention#2079)",
    package="flash-attn",
    backend="torch's BuildExtension with Ninja",
    jobs=(Knob(variable="MAX_JOBS", default="half the cores, or a job for 9 GB of free host memory"),),
    threads=Knob(variable="NVCC_THREADS", default="4"),
    archs=ArchKnob(variable="FLASH_ATTN_CUDA_ARCHS", spelling="number", letters=False),
    traps=(
        "TORCH_CUDA_ARCH_LIST is not read.",
        "Its own number of jobs comes from the host's free memory, whatever the container's limit is.",
        "Without FLASH_ATTENTION_FORCE_BUILD a finished wheel is taken from the network.",
    ),
    versions=(
        VersionNote(since="2.8.4", text="compiles for families (100f) and PTX: six -gencode where four were named"),
    ),
)
