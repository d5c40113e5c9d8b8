"""llama-cpp-python: scikit-build-core and ggml."""

from __future__ import annotations

from builddoctor.model.known_project import ArchKnob, Knob, KnownProject

PROJECT = KnownProject(
    name="llama_cpp_python",
    title="llama-cpp-python",
    aliases=("llama_cpp",),
    repository="https://github.com/abetlen/llama-cpp-python",
    marks=("llama_cpp", "vendor"),
    needed_submodules=("vendor/llama.cpp",),
    needed_libraries=("cublas",),
    package="llama-cpp-python",
    backend="scikit-build-core: CMake with Ninja",
    jobs=(Knob(variable="CMAKE_BUILD_PARALLEL_LEVEL", default="ninja's own number"),),
    archs=ArchKnob(variable="-DCMAKE_CUDA_ARCHITECTURES", spelling="number"),
    cmake_args=("-DGGML_CUDA=on",),
    config_settings=("build-dir={build}",),
    traps=("Without -DGGML_CUDA=on in CMAKE_ARGS no CUDA is built.",),
)
