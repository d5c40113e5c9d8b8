"""A workflow for GitHub Actions: the script in a container with a memory limit, below the runner's own. Pure.

The limit keeps the runner's agent alive: a build that takes everything ends the job without a word otherwise.
"""

from __future__ import annotations

import math
import textwrap

import msgspec

from builddoctor.core.errors import RecipeError
from builddoctor.core.plan import Plan
from builddoctor.core.recipe import Recipe
from builddoctor.core.units import format_mib
from builddoctor.ui.scripts.dockerfile import image_for
from builddoctor.ui.scripts.render_request import RenderWith, needs_of
from builddoctor.ui.scripts.safe_text import comments, heading, word
from builddoctor.ui.scripts.shell_files import render_script

RUNNERS = {"aarch64": "ubuntu-24.04-arm"}
RUNNER = "ubuntu-24.04"
OWN_RUNNERS = {"aarch64": "[self-hosted, Linux, ARM64]"}
OWN_RUNNER = "[self-hosted, Linux, X64]"
HOSTED_CORES, HOSTED_MIB = 4, 16384
"""of GitHub's own runners for public repositories: more is there only on larger ones, or on one's own
(https://docs.github.com/en/actions/reference/runners/github-hosted-runners)"""
MOST_MINUTES = 360
"""GitHub ends a job on its own runners after six hours."""

_JOB = """\
name: wheels
on:
  workflow_dispatch:
  push:
    tags: ["v*"]
permissions:
  contents: read
jobs:
  wheels:
    runs-on: @RUNNER@
    timeout-minutes: @MINUTES@
    container:
      image: @IMAGE@
      # What is left of the runner's memory is for its agent, which would be killed with the build.
      options: --memory @MEMORY@m --memory-swap @MEMORY@m --cpus @CORES@
    steps:
      - name: Tools
        run: |
          apt-get update
          apt-get install -y --no-install-recommends ca-certificates git python3-dev python3-venv
          python3 -m venv /opt/venv
          echo /opt/venv/bin >>"$GITHUB_PATH"
      - uses: actions/checkout@v7
        with:
          submodules: recursive
@CHECKOUT@      - name: What it takes to build the project
        run: |
          pip install @PACKAGES@
      - name: Build
        run: |
@SCRIPT@
      - uses: actions/upload-artifact@v7
        with:
          name: wheels
          path: dist/
"""


def render_workflow(recipe: Recipe, plan: Plan, how: RenderWith) -> str:
    """The workflow. Raises MemoryBudgetError or RecipeError."""
    # GitHub replaces expressions before any shell sees the script: these texts are in files that it writes.
    plan = msgspec.structs.replace(plan, recipe=_tame(plan.recipe), machine=_tame(plan.machine))
    needs = needs_of(recipe, plan, how)
    minutes = math.ceil(needs.time_s / 60)
    script = render_script(recipe, plan, how)
    hosted = plan.cores <= HOSTED_CORES and plan.memory_mib <= HOSTED_MIB
    runner = RUNNERS.get(plan.host_arch, RUNNER) if hosted else OWN_RUNNERS.get(plan.host_arch, OWN_RUNNER)
    text = _JOB.replace("@RUNNER@", runner)
    values = {
        "MINUTES": str(min(MOST_MINUTES, minutes)),
        "IMAGE": _yaml(how.image or image_for(recipe)),
        "MEMORY": str(math.floor(plan.budget_mib + plan.beside_mib + plan.reserve_mib * 3 / 4)),
        "CORES": str(plan.cores),
        "CHECKOUT": _checkout(how),
        "PACKAGES": " ".join(map(word, how.packages)),
        "SCRIPT": textwrap.indent(script.rstrip(), " " * 10),
    }
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    late = [f"It is expected to take up to {minutes} minutes, and GitHub ends it after {MOST_MINUTES}."]
    large = (
        f"GitHub's own runners have {HOSTED_CORES} cores and {format_mib(HOSTED_MIB)}: this is for one of your own, or "
        "a larger one, with what the first line says. `--on github-runner` plans for theirs."
    )
    head = comments([heading(plan), *([] if hosted else [large]), *(late if minutes > MOST_MINUTES else [])])
    return _unread("\n".join([*head, "# .github/workflows/wheels.yml", "", text]))


def _tame(text: str) -> str:
    return text.replace("${{", "$ {{")


def _unread(text: str) -> str:
    """Without expressions of GitHub's. Raises RecipeError for one that is still there: in the name of a stage, say."""
    if "${{" in text:
        raise RecipeError("an expression of GitHub's in a text that goes into the workflow", hint="leave `${{` out")
    return text


def _checkout(how: RenderWith) -> str:
    if not how.from_git:
        return ""
    repository = how.source.removesuffix(".git").rstrip("/").split("/")[-2:]
    lines = [f"          repository: {_yaml('/'.join(repository))}"]
    if how.tag:
        lines.append(f"          ref: {_yaml(how.tag)}")
    return "\n".join([*lines, ""])


def _yaml(text: str) -> str:
    """A scalar of one line in single quotes."""
    if not text.isprintable() or "${{" in text:
        raise RecipeError(f"not fit for a workflow: {text!r}", hint="plain words only")
    return "'" + text.replace("'", "''") + "'"
