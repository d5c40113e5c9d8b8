"""conda's recipe needs what the package needs."""

from __future__ import annotations

from pathlib import Path

import msgspec
import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[3]
OTHER_NAMES = {"installer": "python-installer"}


class Project(msgspec.Struct):
    """What is read of ``[project]``."""

    dependencies: list[str]
    python: str = msgspec.field(name="requires-python")


class Pyproject(msgspec.Struct):
    project: Project


def test_conda_installs_what_pip_installs() -> None:
    """Each dependency with the same bound; the interpreter too."""
    project = msgspec.toml.decode((ROOT / "pyproject.toml").read_bytes(), type=Pyproject).project
    # GitHub's and conda's expressions alike are strings to YAML.
    run = yaml.safe_load((ROOT / "packaging/conda/recipe.yaml").read_text())["requirements"]["run"]
    wanted = [Requirement(each) for each in project.dependencies]
    assert run == [
        "__linux",
        f"python {project.python}",
        *(f"{OTHER_NAMES.get(each.name, each.name)} {each.specifier}" for each in sorted(wanted, key=by_name)),
    ]


def by_name(each: Requirement) -> str:
    return OTHER_NAMES.get(each.name, each.name)
