"""What several projects need alike."""

from __future__ import annotations

from builddoctor.model.known_project import Library

TORCH_HEADERS: tuple[Library, ...] = ("cublas", "cusolver", "cusparse")
"""what torch's own CUDA headers include (ATen/cuda/CUDAContextLight.h), so that every extension in CUDA needs it"""
