"""A Dockerfile for BuildKit: a layer a stage, so that a stage that fails does not lose those before it. Pure.

The build folder is in the layers and not in a cache mount: then `docker build` goes on after the last stage that was
done, on another machine too where layers are shared. Only wheels are in the last image.
"""

from __future__ import annotations

import re

import msgspec

from builddoctor.core.errors import RecipeError
from builddoctor.core.plan import Plan
from builddoctor.core.recipe import Recipe
from builddoctor.ui.scripts.render_request import RenderWith
from builddoctor.ui.scripts.safe_text import comments, delimiter, heading, word
from builddoctor.ui.scripts.shell_files import render_script

_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]*\Z")
_IN_CONTEXT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\Z")
SCRIPT = "/opt/builddoctor/build.sh"
RECIPE = "/opt/builddoctor/recipe.toml"

_TOOLS = """\
# Debian's and Ubuntu's names; their versions come with the image, and its tag is what pins them.
# hadolint ignore=DL3008
RUN apt-get update \\
 && apt-get install -y --no-install-recommends git python3-dev python3-venv \\
 && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH WHEELS=/wheels PIP_CACHE_DIR=/var/cache/pip
"""

_PACKAGES = """\
# What it takes to build the project without build isolation. Give versions where they matter.
# hadolint ignore=DL3013,DL3042
RUN --mount=type=cache,target=/var/cache/pip pip install @PACKAGES@
"""

_MEMORY = (
    "BuildKit sees the memory of the whole machine and not its own share, and `docker build --memory` is ignored "
    "(moby/buildkit#1362): the numbers here are those of the plan, and are lowered only where the machine has less. "
    "A builder with a limit of its own, so that nothing else suffers:"
)
_LAYERS = (
    "Each stage is a layer: after a stage that failed, the next `docker build` begins with that one. The build folder "
    "is in the layers and not in a cache mount, so that this holds wherever the layers are; only the wheels get into "
    "the last image. Changed sources begin again with the first stage."
)


def render_dockerfile(recipe: Recipe, plan: Plan, how: RenderWith) -> str:
    """The Dockerfile; its context is the folder with the sources. Raises MemoryBudgetError or RecipeError."""
    if how.recipe_is_file and how.with_builddoctor:
        script = render_script(recipe, plan, msgspec.structs.replace(how, recipe=RECIPE))
    else:
        script = render_script(recipe, plan, how)
    image = how.image or image_for(recipe)
    if not _IMAGE.match(image):
        raise RecipeError(f"no name of an image: {image!r}", hint="`--image nvidia/cuda:13.0.0-devel-ubuntu24.04`")
    memory_mib = int(plan.memory_mib)
    lines = [
        "# syntax=docker/dockerfile:1",
        # A line that is no directive ends those at the top: what follows is from outside.
        "#",
        *comments([heading(plan)]),
        "#",
        "#   docker build -f Dockerfile --target wheels --output dist FOLDER      the wheels of the sources in FOLDER",
        "#",
        *comments([_MEMORY]),
        "#",
        f"#   docker buildx create --name limited --driver docker-container --driver-opt memory={memory_mib}m",
        "#   docker buildx build --builder limited -f Dockerfile --target wheels --output dist FOLDER",
        *([] if how.with_builddoctor else ["#", *comments([_LAYERS])]),
        "",
        f"ARG CUDA_IMAGE={image}",
        "FROM ${CUDA_IMAGE} AS build",
        "# A layer for each step is what is wanted.",
        "# hadolint global ignore=DL3059",
        "",
        _TOOLS + _PACKAGES.replace("@PACKAGES@", " ".join(map(word, how.packages))),
        _sources(how),
        *_recipe(how),
        "WORKDIR /src",
        "",
        "# The script; it says where its numbers come from.",
        _script(script),
        *_runs(plan, how),
        "",
        "FROM scratch AS wheels",
        "COPY --from=build /wheels/ /",
    ]
    return "\n".join([*lines, ""])


def image_for(recipe: Recipe) -> str:
    """NVIDIA's image with nvcc of the recipe's release, gcc and headers: the first patch release of it."""
    parts = recipe.fingerprint.nvcc.split(".")
    numbers = [int(part) for part in parts[:2] if part.isascii() and part.isdigit() and len(part) < 4]
    major, minor = (numbers[0], numbers[1]) if len(numbers) == 2 else (13, 0)
    system = "ubuntu24.04" if (major, minor) >= (12, 6) else "ubuntu22.04"
    return f"nvidia/cuda:{major}.{minor}.0-devel-{system}"


def _sources(how: RenderWith) -> str:
    if not how.from_git:
        return "COPY . /src"
    branch = f"--branch {word(how.tag)} " if how.tag else ""
    return f"RUN git clone --depth 1 --recurse-submodules --shallow-submodules {branch}-- {word(how.source)} /src"


def _recipe(how: RenderWith) -> list[str]:
    """A recipe of one's own lies in the context; those that are shipped come with builddoctor."""
    if not (how.with_builddoctor and how.recipe_is_file):
        return []
    name = how.recipe.rpartition("/")[2]
    if not _IN_CONTEXT.match(name):
        raise RecipeError(f"a file name that COPY would read as more: {name!r}", hint="rename it to `recipe.toml`")
    return [f"COPY {name} {RECIPE}"]


def _script(script: str) -> str:
    """BuildKit looks for nothing but the end in a here-document whose delimiter is quoted."""
    end = delimiter(script, "BUILDDOCTOR_SCRIPT")
    return f"COPY <<'{end}' {SCRIPT}\n{script.rstrip()}\n{end}\n"


def _runs(plan: Plan, how: RenderWith) -> list[str]:
    stages = [] if how.with_builddoctor else plan.stages[:-1]
    each = [f"RUN BUILDDOCTOR_STAGES_UPTO={word(stage.name)} sh {SCRIPT} /src" for stage in stages]
    return [*each, f"RUN sh {SCRIPT} /src"]
