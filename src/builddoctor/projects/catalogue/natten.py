"""NATTEN: CMake below setup.py."""

from __future__ import annotations

from builddoctor.model.known_project import ArchKnob, Knob, KnownProject
from builddoctor.projects.catalogue.libraries import TORCH_HEADERS

PROJECT = KnownProject(
    name="natten",
    title="NATTEN",
    repository="https://github.com/SHI-Labs/NATTEN",
    marks=("src/natten", "csrc/CMakeLists.txt"),
    needed_submodules=("third_party/cutlass",),
    needed_libraries=TORCH_HEADERS,
    needs_torch=True,
    package="natten",
    backend="setup.py: CMake, with Makefiles unless CMAKE_GENERATOR=Ninja",
    jobs=(Knob(variable="NATTEN_N_WORKERS", default="a quarter of the cores"),),
    archs=ArchKnob(variable="NATTEN_CUDA_ARCH", spelling="dotted", letters=False),
    settings=("CMAKE_GENERATOR=Ninja", "NATTEN_BUILD_DIR={build}"),
    traps=(
        "MAX_JOBS, CMAKE_ARGS and CUDAFLAGS are not read.",
        "NATTEN_BUILD_DIR counts only where the folder is there already.",
    ),
)
