"""What several projects need alike."""

from __future__ import annotations

from builddoctor.model.known_project import Library

TORCH_HEADERS: tuple[Library, ...] = ("cublas", "cusolver", "cusparse")
"""what torch's header ATen/cuda/CUDAContextLight.h includes, and so most extensions in CUDA; those that take torch's
stable interface or c10's headers alone (causal-conv1d 1.6, Mamba 2.3, xFormers 0.0.35) do not"""
