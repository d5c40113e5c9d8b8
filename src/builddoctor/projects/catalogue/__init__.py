"""Projects that builddoctor knows by name, one file each: data only.

Figures without a source are left out. A gigabyte in a source (10^9 bytes) stands here as 953.7 MiB.
A package of somebody else's adds its own by an entry point, ``builddoctor.projects`` (see ``projects.known``).
"""

from __future__ import annotations

from builddoctor.model.known_project import KnownProject
from builddoctor.projects.catalogue import (
    apex,
    bitsandbytes,
    causal_conv1d,
    deepspeed,
    flash_attn,
    flash_attn_3,
    flashinfer,
    llama_cpp_python,
    mamba_ssm,
    megatron_core,
    natten,
    pytorch,
    sgl_kernel,
    transformer_engine,
    vllm,
    xformers,
)

KNOWN_PROJECTS: tuple[KnownProject, ...] = (
    transformer_engine.PROJECT,
    flash_attn.PROJECT,
    flash_attn_3.PROJECT,
    xformers.PROJECT,
    vllm.PROJECT,
    pytorch.PROJECT,
    apex.PROJECT,
    mamba_ssm.PROJECT,
    causal_conv1d.PROJECT,
    deepspeed.PROJECT,
    natten.PROJECT,
    llama_cpp_python.PROJECT,
    flashinfer.PROJECT,
    sgl_kernel.PROJECT,
    bitsandbytes.PROJECT,
    megatron_core.PROJECT,
)
