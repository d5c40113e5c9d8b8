"""What is known of one project before its first build here.

Does *not* cover: which projects (``projects.known_data``) or finding them (``projects.known``).
"""

from __future__ import annotations

from typing import Literal

import msgspec

Library = Literal["cublas", "cudart", "cudnn", "curand", "cusolver", "cusparse", "nccl", "nvml", "nvrtc"]


class KnownProject(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a project, each from its sources or from a measurement."""

    name: str
    """as it is imported: ``flash_attn``"""
    title: str
    """as its people write it: ``FlashAttention 2``"""
    aliases: tuple[str, ...] = ()
    """further names that people type; dashes, underscores and case make no difference"""
    repository: str = ""
    """what to clone"""
    marks: tuple[str, ...] = ()
    """files and folders that its checkout alone has, all of them; empty where its name must do"""
    needed_submodules: tuple[str, ...] = ()
    """submodules that a CUDA build reads, in any version; those that a checkout does not have do not count"""
    needed_libraries: tuple[Library, ...] = ()
    """headers and libraries of CUDA that its build looks for, beyond the compiler's own"""
    always_cuda: bool = False
    """there is no building it without nvcc: no option leaves CUDA out, and no finished wheel comes instead"""
    needs_torch: bool = False
    """its build fails at once where torch cannot be imported"""
    optional_packages: tuple[str, ...] = ()
    """packages in its ``build-system.requires`` that it also builds without"""
    python_cmake_first: bool = False
    """it takes the cmake of its python's packages before the one on PATH"""
    force_build: str = ""
    """the setting without which it takes a finished wheel from the network and compiles nothing"""
    avoids_sccache: str = ""
    """it uses sccache by its mere presence on PATH; the setting that stops that"""
    heavy_phase_mib: float | None = None
    """the most that one compiler process (or one nvcc thread) took; None when nobody said so"""
    heavy_source: str = ""
    """where that figure comes from"""
