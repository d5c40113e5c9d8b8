"""Variables that a recipe may set."""

from __future__ import annotations

import pytest

from builddoctor.gates.knobs import JOB_KNOBS, THREAD_KNOBS
from builddoctor.projects.catalogue import shipped_projects
from builddoctor.recipes.allowed_variables import allowed, allowed_names

SAFE = ["MAX_JOBS", "NVTE_CUDA_ARCHS", "TORCH_CUDA_ARCH_LIST", "CUDAARCHS", "CMAKE_BUILD_TYPE", "NVTE_FRAMEWORK"]

UNSAFE = [
    *[
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "LD_AUDIT",
        "PATH",
        "PYTHONPATH",
        "PYTHONSTARTUP",
        "PYTHONHOME",
        "BASH_ENV",
        "ENV",
    ],
    *[
        "CC",
        "CXX",
        "CUDACXX",
        "CUDAHOSTCXX",
        "NVCC",
        "PYTORCH_NVCC",
        "CUDA_HOME",
        "CUDA_PATH",
        "CONDA_PREFIX",
        "TMPDIR",
    ],
    *["CFLAGS", "CXXFLAGS", "LDFLAGS", "NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS", "TORCH_NVCC_FLAGS", "CMAKE_ARGS"],
    *[
        "CMAKE_CXX_COMPILER_LAUNCHER",
        "CMAKE_TOOLCHAIN_FILE",
        "NVTE_CMAKE_BUILD_DIR",
        "NATTEN_BUILD_DIR",
        "SHELL",
        "IFS",
    ],
    *[
        "PIP_INDEX_URL",
        "UV_INDEX_URL",
        "HTTPS_PROXY",
        "GIT_SSH_COMMAND",
        "MAKEFLAGS",
        "GCC_EXEC_PREFIX",
        "NINJA",
        "HOME",
    ],
    *["", "max_jobs", "MAX_JOBS ", "MAX_JOBS\n", "-DCMAKE_CUDA_ARCHITECTURES", "XYZ"],
]


@pytest.mark.parametrize("name", SAFE)
def test_a_knob_of_a_known_project_is_allowed(name: str) -> None:
    """How much is built, for what, and how many at once."""
    assert allowed(name)


@pytest.mark.parametrize("name", UNSAFE)
def test_what_names_a_program_a_folder_or_arguments_is_not(name: str) -> None:
    """Also where a known project reads it."""
    assert not allowed(name)


def test_all_job_and_thread_knobs_are_allowed() -> None:
    """What a supervised build sets itself, a recipe may say."""
    assert all(map(allowed, (*JOB_KNOBS, *THREAD_KNOBS)))


def test_what_projects_are_built_with_is_allowed_but_for_folders_and_arguments() -> None:
    """Nothing is forgotten when a project is added: what is left out of its variables is known here."""
    variables = {
        setting.partition("=")[0]
        for project in shipped_projects()
        for setting in (*project.settings, project.force_build, *(each.off for each in project.components))
        if setting
    }
    assert {name for name in variables if not allowed(name)} == {
        "CMAKE_ARGS",
        "NATTEN_BUILD_DIR",
        "NVTE_CMAKE_BUILD_DIR",
    }


def test_the_names_are_listed_in_order() -> None:
    """For the reference page and for hints."""
    assert list(allowed_names()) == sorted(set(allowed_names()))
    assert all(map(allowed, allowed_names()))
