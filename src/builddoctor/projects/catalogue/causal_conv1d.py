"""causal-conv1d: an extension of torch."""

from __future__ import annotations

from builddoctor.model.known_project import Knob, KnownProject

PROJECT = KnownProject(
    name="causal_conv1d",
    title="causal-conv1d",
    repository="https://github.com/Dao-AILab/causal-conv1d",
    marks=("csrc/causal_conv1d.cpp",),
    needs_torch=True,
    force_build="CAUSAL_CONV1D_FORCE_BUILD=TRUE",
    package="causal-conv1d",
    backend="torch's BuildExtension with Ninja",
    jobs=(Knob(variable="MAX_JOBS", default="ninja's own number"),),
    threads=Knob(variable="NVCC_APPEND_FLAGS", default="--threads 4, fixed in its setup.py"),
    fixed_archs="written into its setup.py: nine with CUDA 13",
    traps=(
        "Without CAUSAL_CONV1D_FORCE_BUILD a finished wheel is taken from the network; offline that is a traceback.",
    ),
)
