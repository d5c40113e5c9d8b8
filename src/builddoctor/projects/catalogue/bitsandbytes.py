"""bitsandbytes: scikit-build-core and CMake."""

from __future__ import annotations

from builddoctor.model.known_project import ArchKnob, Knob, KnownProject

PROJECT = KnownProject(
    name="bitsandbytes",
    title="bitsandbytes",
    aliases=("bnb",),
    repository="https://github.com/bitsandbytes-foundation/bitsandbytes",
    tag="{version}",
    marks=("bitsandbytes/cextension.py", "csrc"),
    needed_libraries=("cublas", "cusparse"),
    no_package="its newest source distribution (0.42.0) holds a finished library and no CUDA source",
    backend="scikit-build-core: CMake with Ninja",
    jobs=(Knob(variable="CMAKE_BUILD_PARALLEL_LEVEL", default="ninja's own number"),),
    archs=ArchKnob(variable="-DCOMPUTE_CAPABILITY", spelling="number"),
    cmake_args=("-DCOMPUTE_BACKEND=cuda",),
    config_settings=("build-dir={build}",),
    traps=("Without COMPUTE_CAPABILITY it is built for every architecture.",),
)
