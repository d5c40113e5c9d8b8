"""The example of a build in a container: checked, and carried out as far as it goes without a container engine."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import builddoctor
from builddoctor.recipes.recipe_text import dump
from support.example import EXAMPLE
from support.image_build import ImageBuild
from support.recipes import RECIPE

FOLDER = EXAMPLE.parent / "container"
DOCS = EXAMPLE.parents[1] / "docs" / "containers.md"


def test_the_dockerfile_is_clean() -> None:
    """hadolint has nothing to say."""
    file = FOLDER / "Dockerfile"
    done = subprocess.run(["hadolint", "--no-color", str(file)], capture_output=True, text=True, check=False)
    assert done.stdout == ""
    assert done.returncode == 0


def test_the_three_lines_are_those_of_the_documentation() -> None:
    """docs/containers.md and the example say the same: recipe, builddoctor, build."""
    text = (FOLDER / "Dockerfile").read_text()
    assert "COPY container/recipe.toml container/builddoctor-*.whl /opt/\n" in text
    for line in ("pip install /opt/builddoctor-*.whl\n", "builddoctor build /src --recipe /opt/recipe.toml --arch"):
        assert line in text
        assert line in DOCS.read_text()


@pytest.mark.needs_unshare
def test_the_image_gets_as_far_as_the_build(tmp_path: Path) -> None:
    """Every instruction works; builddoctor finds recipe and project, and where the wheel would go."""
    context = tmp_path / "context"
    shutil.copytree(EXAMPLE, context / "attention_kernels", ignore=shutil.ignore_patterns("build", "dist"))
    (context / "container").mkdir()
    (context / "container/recipe.toml").write_text(dump(RECIPE))
    (context / "container/builddoctor-1.whl").touch()
    image = ImageBuild(tmp_path / "image", (FOLDER / "Dockerfile").read_text(), context)
    # The real program, up to the point where it would start compilers.
    package = Path(builddoctor.__file__).parents[1]
    image.bind(package, Path(sys.prefix), Path(sys.base_prefix))
    real = f'PYTHONPATH={package} exec {sys.executable} -m builddoctor "$@" --dry-run >/opt/calls/plan'
    image.stand_in("builddoctor", real)
    done = image.run()
    assert [each.returncode for each in done] == [0] * 5, done[-1].stderr
    assert image.calls("pip")[-1] == "install /opt/builddoctor-1.whl"
    plan = "\n".join(image.calls("plan"))
    assert "CUDAARCHS=90" in plan
    assert re.search(r"-m pip wheel .*--wheel-dir /wheels .*/src", plan)
