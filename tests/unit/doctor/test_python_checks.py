"""What the doctor says of the python that builds, and of torch."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from builddoctor.core.check import Check, Status
from builddoctor.core.toolchain import Torch
from builddoctor.doctor.build_tool_checks import build_tool_checks
from builddoctor.projects.archs import parse_archs
from builddoctor.projects.catalogue import find_known
from builddoctor.toolchain.build_tools import parse_requires, torch_of
from unit.source_trees import (
    NVCC,
    by_name,
    python,
    source,
    tools,
)


def checked(project: Any = None, *, known: str = "", arch: str = "", **changed: Any) -> dict[str, Check]:
    """The checks of tools for a project, by name. Tools of ``tools()`` may be named: ``ninjas=()``."""
    fields: dict[str, Any] = {name: changed.pop(name) for name in ("toolkit", "env", "gpus") if name in changed}
    archs = parse_archs(arch) if arch else ()
    given = {"toolkit": NVCC, "env": {}} | fields
    return by_name(
        build_tool_checks(
            tools(**changed), source=project, known=find_known(known) if known else None, archs=archs, **given
        )
    )


CMAKE_PROJECT = source(python=False, cmake=True, uses_cmake=True, cmake_minimum="3.21")
TORCH_PROJECT = source(uses_torch="setup.py")


@pytest.mark.parametrize(
    ("changed", "hint"),
    [
        ({"include": "/usr/include/python3.11"}, "apt install python3-dev python3.11-dev"),
        ({"include": "/opt/conda/include/python3.11", "conda": True}, "conda install python=3.11"),
        ({"include": "/opt/python/include"}, "take a python that came with its headers"),
    ],
)
def test_missing_headers_are_a_problem_with_a_hint_for_that_python(changed: dict, hint: str) -> None:
    """Only where pip builds the project."""
    bare = python(headers=False, **changed)
    check = checked(TORCH_PROJECT, python=bare)["python-headers"]
    assert (check.status, check.stops_build) == (Status.PROBLEM, False)
    assert check.hint.startswith(hint)
    assert "python-headers" not in checked(CMAKE_PROJECT, python=bare)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (None, "python"),
        (python(problem="pyenv: python: command not found"), "python"),
        (python(packages="setuptools=80.0"), "python-pip"),
        (python(packages="pip=25.0"), "python-backend"),
        (python(packages="pip=25.0 setuptools=65.5.0"), "python-wheel"),
    ],
)
def test_a_python_that_cannot_build_wheels_stops_the_build(given: Any, name: str) -> None:
    """None, one that does not run, without pip, without setuptools, with an old setuptools and no wheel."""
    check = checked(TORCH_PROJECT, python=given)[name]
    assert (check.status, check.stops_build) == (Status.PROBLEM, True)


def test_a_new_setuptools_needs_no_wheel_package() -> None:
    """From 70.1 on, also where pyproject.toml still asks for it."""
    new = python(packages="pip=25.0 setuptools=70.1.0")
    assert checked(source(requires=("setuptools", "wheel")), python=new)["python"].status is Status.OK


def test_a_missing_backend_stops_the_build_and_its_requirements_are_the_hint() -> None:
    """Without isolation pip fetches nothing."""
    project = source(backend="scikit_build_core.build", requires=("scikit-build-core>=0.10", "pybind11"))
    check = checked(project, python=python(missing_backend="scikit_build_core"))["python-backend"]
    assert check.stops_build
    assert shlex.split(check.hint) == [
        "/venv/bin/python",
        "-m",
        "pip",
        "install",
        "scikit-build-core>=0.10",
        "pybind11",
    ]


def test_other_requirements_that_are_not_met_are_a_warning() -> None:
    """By version too; what does not apply here, what PATH has, and torch (which has lines of its own) are left out."""
    needs = (
        "setuptools>=99",
        "ninja",
        "cmake>=3.18",
        "torch",
        "jax; sys_platform == 'win32'",
        "???",
        "pybind11[global]",
    )
    check = checked(source(requires=needs))["python-packages"]
    assert (check.status, check.stops_build) == (Status.WARNING, False)
    assert shlex.split(check.hint)[4:] == ["setuptools>=99", "pybind11[global]"]
    assert "python-packages" in checked(source(requires=("jax",)))
    assert "python-packages" not in checked(source(requires=("jax",)), known="te")


def test_a_hostile_requirement_is_quoted_or_left_out() -> None:
    """What pyproject.toml says ends up in a line that people paste."""
    assert parse_requires(("$(touch x)", "a;rm -rf /", "`x`", "a\nb")) == []
    url = "a @ https://example.org/$(touch${IFS}x).whl"
    hint = checked(source(requires=(url,)))["python-packages"].hint
    assert "$(touch" not in hint or "'" in hint
    assert len(shlex.split(hint)) == 5


def test_torch_is_needed_where_the_project_says_so() -> None:
    """Known to need it: the build stops. Imported at the top of setup.py: a problem. Used if there: a warning."""
    without = python(torch=None)
    assert checked(TORCH_PROJECT, known="flash_attn", python=without)["torch"].stops_build
    imported = checked(source(uses_torch="setup.py", imports_torch=True), python=without)["torch"]
    assert (imported.status, imported.stops_build) == (Status.PROBLEM, False)
    assert checked(TORCH_PROJECT, known="te", python=without)["torch"].status is Status.WARNING
    assert "torch" not in checked(source(), python=without)
    assert "torch" not in checked(TORCH_PROJECT, known="pytorch", python=without)


@pytest.mark.parametrize(
    ("cuda", "nvcc", "name", "status"),
    [
        ("13.0", "13.0.88", "torch", Status.OK),
        ("13.0", "13.2.10", "torch", Status.OK),
        ("12.8", "13.0.88", "torch-cuda", Status.PROBLEM),
        ("", "13.0.88", "torch-cuda", Status.WARNING),
        ("13.0", "", "torch", Status.OK),
    ],
)
def test_torch_refuses_another_major_version_only(cuda: str, nvcc: str, name: str, status: Status) -> None:
    """A minor one gets a note."""
    toolkit = type(NVCC)(nvcc="n", version=nvcc, here="h", top="t", cicc="c", tools=())
    check = checked(TORCH_PROJECT, python=python(torch=Torch(version="2.9.0", cuda=cuda)), toolkit=toolkit)[name]
    assert check.status is status
    assert ("will do" in check.text) is (nvcc == "13.2.10")


def test_torch_for_amd_is_no_torch_for_cuda() -> None:
    """A problem for a project that needs it."""
    amd = python(torch=Torch(version="2.9.0+rocm6.4", rocm=True))
    assert checked(TORCH_PROJECT, known="xformers", python=amd)["torch-cuda"].status is Status.PROBLEM


@pytest.mark.parametrize(
    ("text", "torch"),
    [
        (
            "__version__ = '2.8.0+cu128'\ncuda: Optional[str] = '12.8'\nhip: Optional[str] = None\n",
            ("2.8.0+cu128", "12.8", False),
        ),
        ("__version__ = '2.1.0'\ncuda = '11.8'\nhip = None\n", ("2.1.0", "11.8", False)),
        ('__version__ = "2.9.0+cpu"\ncuda: str | None = None\n', ("2.9.0+cpu", "", False)),
        ("__version__ = '2.9.0+rocm6.4'\ncuda = None\nhip = '6.4.43482'\n", ("2.9.0+rocm6.4", "", True)),
        ("", ("7.7", "", False)),
        ("\0\xff cuda = ", ("7.7", "", False)),
    ],
)
def test_torchs_version_is_read_and_not_imported(tmp_path: Path, text: str, torch: tuple[str, str, bool]) -> None:
    """From version.py as torch writes it; from what pip says where that is odd."""
    (tmp_path / "version.py").write_text(text)
    found = torch_of(tmp_path, "7.7")
    assert found is not None
    assert (found.version, found.cuda, found.rocm) == torch


def test_a_folder_that_is_called_torch_is_not_torch(tmp_path: Path) -> None:
    """Without a version.py, and without a package of that name."""
    assert torch_of(tmp_path, "") is None
    assert torch_of(tmp_path, "2.9.0") == Torch(version="2.9.0", folder=str(tmp_path))
