"""What a rendered file needs to know beyond recipe and plan: the project's sources, its command, its variables.

Does *not* cover: working that out (``cli.recipe_render``). Texts in here come from the project's facts and the command
line; of a recipe's environment, only names that are allowed.
"""

from __future__ import annotations

import msgspec

WHEEL = (
    *("{python}", "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-cache-dir", "--verbose"),
    *("--wheel-dir", "{wheels}", "{source}"),
)
"""A wheel, in the environment that is there: with build isolation the project would not see its torch."""

PACKAGES = ("setuptools", "wheel", "packaging", "ninja", "cmake")


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    """One environment variable."""

    name: str
    value: str
    """``{build}`` in it stands for the folder that is kept from one build to the next"""
    why: str = ""
    forced: bool = False
    """it replaces what the user has set: architectures, jobs and threads, which the plan was made for"""


class RenderWith(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    source: str = "."
    """a folder, or the address of a git repository"""
    tag: str = ""
    """what to check out of that"""
    subfolder: str = ""
    """the folder of the checkout that is built"""
    command: tuple[str, ...] = WHEEL
    """what builds it; ``{python}``, ``{source}``, ``{wheels}`` and ``{build}`` stand for themselves"""
    variables: tuple[Variable, ...] = ()
    jobs: tuple[str, ...] = ("MAX_JOBS", "CMAKE_BUILD_PARALLEL_LEVEL")
    """variables that the project reads its number of jobs from"""
    threads: tuple[str, ...] = ("NVCC_THREADS",)
    """variables that it reads nvcc's ``--threads`` from"""
    packages: tuple[str, ...] = PACKAGES
    """what has to be installed to build it"""
    image: str = ""
    """container image with nvcc; empty: NVIDIA's for the recipe's nvcc"""
    with_builddoctor: bool = False
    """the build runs under builddoctor, not in stages"""
    builddoctor: str = ""
    """its version"""
    recipe: str = ""
    """for its ``--recipe``: a name, or a file"""
    recipe_is_file: bool = False

    @property
    def from_git(self) -> bool:
        """The sources are cloned."""
        return "://" in self.source or self.source.startswith("git@")
