"""Mamba: an extension of torch."""

from __future__ import annotations

from builddoctor.model.known_project import Knob, KnownProject

PROJECT = KnownProject(
    name="mamba_ssm",
    title="Mamba SSM",
    repository="https://github.com/state-spaces/mamba",
    marks=("csrc/selective_scan", "mamba_ssm"),
    needs_torch=True,
    force_build="MAMBA_FORCE_BUILD=TRUE",
    package="mamba-ssm",
    backend="torch's BuildExtension with Ninja",
    jobs=(Knob(variable="MAX_JOBS", default="ninja's own number"),),
    threads=Knob(variable="NVCC_APPEND_FLAGS", default="--threads 4, fixed in its setup.py"),
    fixed_archs="nine are written into its setup.py",
    traps=(
        "Without MAMBA_FORCE_BUILD a finished wheel is taken from the network; offline that ends in a traceback.",
        "TORCH_CUDA_ARCH_LIST may be cleared by its setup.py.",
    ),
)
