"""FlashAttention 3: the folder hopper of FlashAttention."""

from __future__ import annotations

from builddoctor.model.known_project import Component, Knob, KnownProject
from builddoctor.projects.catalogue.libraries import TORCH_HEADERS

PROJECT = KnownProject(
    name="flash_attn_3",
    title="FlashAttention 3",
    aliases=("fa3", "flash_attention_3", "flash_attn_hopper"),
    repository="https://github.com/Dao-AILab/flash-attention",
    subfolder="hopper",
    marks=("flash_api.cpp", "instantiations", "setup.py"),
    needed_submodules=("csrc/cutlass",),
    needed_libraries=TORCH_HEADERS,
    needs_torch=True,
    force_build="FLASH_ATTENTION_FORCE_BUILD=TRUE",
    heavy_phase_mib=17166.0,
    heavy_source="17 to 18 GB a job (vllm#12477)",
    no_package="it is a folder of FlashAttention's repository",
    backend="torch's BuildExtension with Ninja, its build file rewritten",
    jobs=(Knob(variable="MAX_JOBS", default="ninja's own number"),),
    threads=Knob(variable="NVCC_THREADS", default="2"),
    fixed_archs="built for sm_90a, and for sm_80 unless FLASH_ATTENTION_DISABLE_SM80=TRUE",
    components=(
        Component(name="sm80", off="FLASH_ATTENTION_DISABLE_SM80=TRUE", what="kernels for GPUs before Hopper"),
        Component(name="backward", off="FLASH_ATTENTION_DISABLE_BACKWARD=TRUE", what="training"),
        Component(name="hdim256", off="FLASH_ATTENTION_DISABLE_HDIM256=TRUE", what="heads of 256"),
        Component(name="fp8", off="FLASH_ATTENTION_DISABLE_FP8=TRUE", what="FP8"),
    ),
    traps=(
        "With CUDA 12.3 to 12.7 and 12.9 it downloads another nvcc and sets PYTORCH_NVCC to it.",
        "451 instantiations are compiled, 17 GB each.",
    ),
)
