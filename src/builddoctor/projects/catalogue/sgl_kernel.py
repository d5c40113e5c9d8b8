"""SGLang's kernels: scikit-build-core and CMake."""

from __future__ import annotations

from builddoctor.model.known_project import Component, Knob, KnownProject
from builddoctor.projects.catalogue.libraries import TORCH_HEADERS

PROJECT = KnownProject(
    name="sgl_kernel",
    title="sgl-kernel",
    aliases=("sglang_kernel",),
    repository="https://github.com/sgl-project/sglang",
    subfolder="sgl-kernel",
    marks=("python/sgl_kernel", "CMakeLists.txt"),
    needed_libraries=TORCH_HEADERS,
    needs_torch=True,
    no_package="the package index has wheels of it alone",
    backend="scikit-build-core: CMake with Ninja",
    jobs=(Knob(variable="CMAKE_BUILD_PARALLEL_LEVEL", default="ninja's own number"),),
    threads=Knob(variable="-DSGL_KERNEL_COMPILE_THREADS", default="32"),
    fixed_archs="sm_90 and sm_100 are two libraries and both are built, with all that the toolkit's version knows",
    cmake_args=("-DSGL_KERNEL_COMPILE_THREADS=1",),
    config_settings=("build-dir={build}",),
    components=(
        Component(name="below-sm90", off="CMAKE_ARGS=-DENABLE_BELOW_SM90=OFF", what="kernels for GPUs before Hopper"),
    ),
    traps=(
        "32 nvcc threads a file unless SGL_KERNEL_COMPILE_THREADS says otherwise.",
        "Nine repositories are cloned from git during the configure step.",
    ),
)
