"""TransformerEngine: a CMake library, and an extension of torch or jax."""

from __future__ import annotations

from builddoctor.model.known_project import ArchKnob, Component, Knob, KnownProject, VersionNote

PROJECT = KnownProject(
    name="transformer_engine",
    title="TransformerEngine",
    aliases=("te", "transformer_engine_torch"),
    repository="https://github.com/NVIDIA/TransformerEngine",
    marks=("transformer_engine/common/CMakeLists.txt",),
    needed_submodules=("3rdparty/cudnn-frontend", "3rdparty/cutlass", "3rdparty/nccl-extensions"),
    needed_libraries=(
        *("cublas", "cudnn", "curand", "cusolver", "cusparse", "nccl", "nvml", "nvrtc", "nvtx", "profiler"),
    ),
    optional_packages=("jax", "flax", "torch"),
    python_cmake_first=True,
    always_cuda=True,
    heavy_phase_mib=4124.0,
    heavy_source="measured: cicc of gemm/cutlass_grouped_gemm.cu in 2.8, sm_100, nvcc 13.0.88",
    no_package="the package index has wheels of it, and the source of its torch part alone",
    backend="setup.py: CMake with Ninja for the library, torch's BuildExtension for the rest",
    jobs=(Knob(variable="NVTE_BUILD_MAX_JOBS"), Knob(variable="MAX_JOBS", default="ninja's own number")),
    threads=Knob(variable="NVTE_BUILD_THREADS_PER_JOB", default="1"),
    archs=ArchKnob(variable="NVTE_CUDA_ARCHS", spelling="number", letters=False),
    settings=("NVTE_CMAKE_BUILD_DIR={build}", "NVTE_PYTORCH_FORCE_BUILD=TRUE"),
    components=(
        Component(name="nccl-ep", off="NVTE_WITH_NCCL_EP=0", what="expert parallelism over NCCL, from 2.17 on"),
        Component(name="frameworks", off="NVTE_FRAMEWORK=none", what="the extensions of torch and jax"),
    ),
    debug_off="NVTE_BUILD_DEBUG=0",
    traps=(
        "Without ninja on PATH it makes Makefiles and starts `make -j` without a number.",
        "NVTE_BUILD_THREADS_PER_JOB is part of every compile command: another number compiles everything again.",
        "With build isolation torch cannot be seen, and no torch extension is built.",
        "Where a finished wheel of the torch extension fits, it is taken from the network.",
        "On GB200 a cudafe++ may grow without end, whatever MAX_JOBS is (#1996): another minor version of nvcc helps.",
    ),
    versions=(
        VersionNote(
            until="1.12",
            text="NVTE_BUILD_THREADS_PER_JOB is read from 1.10 on, NVTE_CUDA_ARCHS 1.11, NVTE_CMAKE_BUILD_DIR 1.12",
        ),
        VersionNote(until="2.4", text="7 CUDA sources in the torch extension; none from 2.4 on"),
        VersionNote(until="2.4", text="does not compile with CUDA 13: it uses what cuBLAS 13 has removed"),
        VersionNote(
            since="2.9",
            until="2.15",
            text="CMake says `CUDA_ARCHITECTURES is empty` where only Blackwell is asked for (sm_100, sm_120): name an "
            "older one too, such as `--arch sm_90,sm_100`, or take 2.15 (#2832)",
        ),
        VersionNote(since="2.10", text="heavy sources are compiled for 100a and 103a where 100 is asked for"),
        VersionNote(since="2.12", text="NVTE_USE_CCACHE and NVTE_CCACHE_BIN"),
        VersionNote(since="2.17", text="NCCL EP is built first, by a `make -j` of its own"),
    ),
)
