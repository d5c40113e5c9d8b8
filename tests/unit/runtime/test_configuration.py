"""Settings from files and the environment: one order, near names, and what a checkout may not set."""

from __future__ import annotations

from pathlib import Path

import pytest

from builddoctor.core.errors import UsageError
from builddoctor.runtime.configuration import settings


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "own").mkdir()
    return {"BUILDDOCTOR_CONFIG_DIR": str(tmp_path / "own")}


def in_force(env: dict[str, str], cwd: Path) -> dict[str, tuple[object, str]]:
    return {each.name: (each.value, Path(each.source).name) for each in settings(env, cwd)}


def test_the_first_of_variable_project_and_own_file_counts(env: dict[str, str], tmp_path: Path) -> None:
    below = tmp_path / "project" / "src"
    below.mkdir(parents=True)
    (tmp_path / "own" / "config.toml").write_text('memory = "1GiB"\ncores = 1\ntoolkit = "13.0"\n')
    (tmp_path / "project" / "pyproject.toml").write_text('[tool.builddoctor]\nmemory = "2GiB"\ncores = 2\n')
    env["BUILDDOCTOR_MEMORY"] = "3GiB"
    assert in_force(env, below) == {
        "memory": ("3GiB", "$BUILDDOCTOR_MEMORY"),
        "cores": (2, "pyproject.toml"),
        "toolkit": ("13.0", "config.toml"),
    }


def test_the_nearest_file_counts_and_one_of_ours_before_pyproject(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "builddoctor.toml").write_text("cores = 1\n")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "pyproject.toml").write_text("[tool.builddoctor]\ncores = 2\n")
    assert in_force(env, tmp_path / "a")["cores"] == (2, "pyproject.toml")
    (tmp_path / "a" / "builddoctor.toml").write_text("cores = 3\n")
    assert in_force(env, tmp_path / "a")["cores"] == (3, "builddoctor.toml")


def test_a_pyproject_without_a_table_of_ours_is_passed_over(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project\nbroken, but not ours to say")
    assert settings(env, tmp_path) == []


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ('memry = "3GiB"\n', "no setting memry", "did you mean memory?"),
        ("ignore_caps = true\n", "no setting ignore_caps", "did you mean ignore-caps?"),
        ("wholly-else = 1\n", "no setting wholly-else", "config show --all"),
        ('cores = "many"\n', "cores", "config show --all"),
        ('strategy = "gate"\n', "gate", "config show --all"),
        ("cores = ", "is no TOML", ""),
        ('toolkit = "/tmp/theirs"\n', "not taken from a checkout", "export BUILDDOCTOR_TOOLKIT"),
        ('wheel-dir = "/etc"\n', "not taken from a checkout", "export BUILDDOCTOR_WHEEL_DIR"),
    ],
)
def test_what_is_wrong_is_refused_with_the_file(
    env: dict[str, str], tmp_path: Path, text: str, said: str, hint: str
) -> None:
    path = tmp_path / "builddoctor.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=said) as caught:
        settings(env, tmp_path)
    assert str(path) in str(caught.value)
    assert hint in caught.value.hint


@pytest.mark.parametrize(("text", "value"), [("yes", True), ("1", True), ("off", False), ("False", False)])
def test_a_variable_says_yes_or_no_in_a_few_ways(env: dict[str, str], tmp_path: Path, text: str, value: bool) -> None:
    env["BUILDDOCTOR_IGNORE_CAPS"] = text
    assert in_force(env, tmp_path)["ignore-caps"][0] is value


@pytest.mark.parametrize("text", ["perhaps", "2"])
def test_a_variable_that_says_neither_is_refused(env: dict[str, str], tmp_path: Path, text: str) -> None:
    env["BUILDDOCTOR_IGNORE_CAPS"] = text
    with pytest.raises(UsageError, match=r"\$BUILDDOCTOR_IGNORE_CAPS"):
        settings(env, tmp_path)


def test_an_empty_variable_is_none(env: dict[str, str], tmp_path: Path) -> None:
    env["BUILDDOCTOR_MEMORY"] = ""
    assert settings(env, tmp_path) == []


def test_of_two_that_exclude_each_other_the_first_that_is_set_counts(env: dict[str, str], tmp_path: Path) -> None:
    """A checkout that wants every decision told does not make a quiet user's builds loud."""
    (tmp_path / "builddoctor.toml").write_text("verbose = true\n")
    assert in_force(env, tmp_path) == {"verbose": (True, "builddoctor.toml")}
    env["BUILDDOCTOR_QUIET"] = "1"
    assert in_force(env, tmp_path) == {"quiet": (True, "$BUILDDOCTOR_QUIET")}
    env["BUILDDOCTOR_QUIET"] = "0"
    assert in_force(env, tmp_path)["verbose"] == (True, "builddoctor.toml")
