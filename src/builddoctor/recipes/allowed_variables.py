"""Environment variables that a recipe may set: the knobs of known projects, by name. Pure.

Covers: names; values are bounded by the model's pattern. What a variable means is its project's business: a recipe can
choose how much is built and for what, never which program runs or from where.
"""

from __future__ import annotations

import functools
import re

from builddoctor.core.project import KnownProject
from builddoctor.gates.knobs import JOB_KNOBS, THREAD_KNOBS
from builddoctor.projects.catalogue import shipped_projects

_COMMON = (
    "CMAKE_BUILD_TYPE",
    "CMAKE_GENERATOR",
    "CUDAARCHS",
    "FLASH_ATTN_CUDA_ARCHS",
    "NVTE_CUDA_ARCHS",
    "TORCH_CUDA_ARCH_LIST",
)
"""CMake's own, and what extensions of torch share."""

_NEVER = re.compile(
    r"(?:LD|DYLD|PYTHON|PIP|UV|GIT|BASH)(?:_.*|[A-Z]*)"
    r"|.*(?:PATH|FLAGS|ARGS|OPTIONS|OPTS|HOME|ROOT|PREFIX|DIR|FOLDER|FILE|COMPILER|LAUNCHER|TOOLCHAIN|PROXY|URL|INDEX)"
    r"|(?:CUDA)?(?:HOST)?(?:CC|CXX)|NVCC|PYTORCH_NVCC|SHELL|IFS|ENV|MAKE|NINJA|.*PRELOAD.*"
)
"""Variables that name programs, folders, libraries or further arguments: not even where a project is known to read
them."""


def allowed(name: str) -> bool:
    """A recipe may set this variable."""
    return name in _names()


def allowed_names() -> tuple[str, ...]:
    """All of them, sorted."""
    return tuple(sorted(_names()))


@functools.cache
def _names() -> frozenset[str]:
    known = {*_COMMON, *JOB_KNOBS, *THREAD_KNOBS}
    for project in shipped_projects():
        known.update(_variables(project))
    return frozenset(name for name in known if re.fullmatch(r"[A-Z][A-Z0-9_]*", name) and not _NEVER.fullmatch(name))


def _variables(project: KnownProject) -> set[str]:
    settings = (
        *project.settings,
        *(component.off for component in project.components),
        project.force_build,
        project.avoids_sccache,
        project.debug_off,
    )
    knobs = (*project.jobs, *((project.threads,) if project.threads else ()))
    return {
        *(setting.partition("=")[0] for setting in settings),
        *(knob.variable for knob in knobs),
        *((project.archs.variable,) if project.archs else ()),
    }
