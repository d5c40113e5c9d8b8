"""What a project says of itself: its name and its version."""

from __future__ import annotations

from pathlib import Path

import pytest

from builddoctor.projects.metadata import project_name, project_version

INFO = "Metadata-Version: 2.1\nName: Flash_Attn\nVersion: 2.8.3\n\nName: another\n"
PYPROJECT = (
    '[build-system]\nrequires = ["x"]\n\n[project] # this one\nversion = "1"\nname = "transformer_engine.torch"\n'
)
POETRY = "[tool.poetry]\nname = 'apex'\n"
SETUP_CFG = "[options]\nname = no\n[metadata]\nversion = 1\nname = vllm\n"
SETUP_PY = "from setuptools import setup\nNAME = 'deepspeed'\nsetup(version='1', name=NAME)\n"
CMAKE = '# project(no)\ncmake_minimum_required(VERSION 3.20)\nproject( "xformers" LANGUAGES CXX CUDA)\n'
GIT = '[core]\n\tbare = false\n[remote "origin"]\n\turl = https://host/owner/Cutlass.git\n\tfetch = x\n'
COMMIT, OTHER = "1" * 40, "2" * 40


@pytest.mark.parametrize(
    ("file", "text", "name"),
    [
        ("PKG-INFO", INFO, "flash-attn"),
        ("pyproject.toml", PYPROJECT, "transformer-engine-torch"),
        ("pyproject.toml", POETRY, "apex"),
        ("setup.cfg", SETUP_CFG, "vllm"),
        ("setup.py", SETUP_PY, "deepspeed"),
        ("CMakeLists.txt", CMAKE, "xformers"),
        (".git/config", GIT, "cutlass"),
        (".git/config", GIT.replace("https://host/owner/Cutlass.git", "git@host:owner/a.b_c"), "a-b-c"),
        (".git/config", GIT.replace('"origin"', '"fork"'), ""),
        ("pyproject.toml", "[project\nname =", ""),
        ("pyproject.toml", "[project]\nname = 7\n", ""),
        ("setup.py", "setup(name=f'{x}')", ""),
    ],
)
def test_each_file_that_says_it(tmp_path: Path, file: str, text: str, name: str) -> None:
    """As package indexes write it."""
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    assert project_name(tmp_path) == name


def test_what_a_package_says_goes_before_where_it_was_fetched_from(tmp_path: Path) -> None:
    """A fork is another repository and the same project."""
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text(GIT)
    (tmp_path / "CMakeLists.txt").write_text(CMAKE)
    assert project_name(tmp_path) == "cutlass"
    (tmp_path / "setup.py").write_text(SETUP_PY)
    assert project_name(tmp_path) == "deepspeed"
    (tmp_path / "PKG-INFO").write_text(INFO)
    assert project_name(tmp_path) == "flash-attn"


def test_a_worktree_has_its_repositorys_origin(tmp_path: Path) -> None:
    """Its ``.git`` is a file, and its configuration is shared."""
    own = tmp_path / "main" / ".git" / "worktrees" / "two"
    own.mkdir(parents=True)
    (tmp_path / "main" / ".git" / "config").write_text(GIT)
    (own / "commondir").write_text("../..\n")
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / ".git").write_text(f"gitdir: {own}\n")
    assert project_name(tmp_path / "two") == "cutlass"


def test_a_folder_that_is_not_there_has_no_name(tmp_path: Path) -> None:
    """And no error."""
    assert project_name(tmp_path / "gone") == ""
    (tmp_path / "setup.py").mkdir()
    (tmp_path / "PKG-INFO").write_bytes(b"Name: \xff\xfe\n")
    assert project_name(tmp_path).isprintable()


@pytest.mark.parametrize(
    ("name", "text", "version"),
    [
        ("PKG-INFO", "Metadata-Version: 2.1\nName: x\nVersion: 1.7.0.post1\n", "1.7.0.post1"),
        ("pyproject.toml", '[project]\nname = "x"\nversion = "0.3.1"\n', "0.3.1"),
        ("pyproject.toml", '[project]\nname = "x"\ndynamic = ["version"]\n', ""),
        ("build_tools/VERSION.txt", "2.8.0\n", "2.8.0"),
        ("VERSION", "v2.9.0rc1\n", "2.9.0rc1"),
        ("VERSION", "$Format:%H$\n", ""),
        ("VERSION", "1.2\nand a story\n", ""),
    ],
)
def test_files_that_say_it(tmp_path: Path, name: str, text: str, version: str) -> None:
    """Each of them alone is enough; what is no version is none."""
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    assert project_version(tmp_path) == version


@pytest.mark.parametrize(
    ("pyproject", "name", "text", "version"),
    [
        ("", "causal_conv1d/__init__.py", '__version__ = "1.6.1"\n\nfrom causal_conv1d import x\n', "1.6.1"),
        ("", "src/causal_conv1d/__init__.py", "__version__: str = '1.6.1'\n", "1.6.1"),
        ("", "causal_conv1d/__init__.py", "__version__ = metadata.version('causal_conv1d')\n", ""),
        ("", "another/__init__.py", '__version__ = "1.6.1"\n', ""),
        ("", "__init__.py", '__version__ = "3.0.0"\n', "3.0.0"),
        (
            '[tool.setuptools.dynamic]\nversion = {attr = "conv.version.__version__"}\n',
            "conv/version.py",
            '__version__ = "0.50.2.dev0"\n',
            "0.50.2.dev0",
        ),
        (
            '[tool.setuptools.dynamic]\nversion = {attr = "../../etc.__version__"}\n',
            "etc/__init__.py",
            '__version__ = "1.0"\n',
            "",
        ),
    ],
)
def test_the_version_that_the_package_gives_itself(
    tmp_path: Path, pyproject: str, name: str, text: str, version: str
) -> None:
    """By the project's name, or by the module that setuptools reads; never outside the folder."""
    (tmp_path / "pyproject.toml").write_text(f'[project]\nname = "causal-conv1d"\ndynamic = ["version"]\n{pyproject}')
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    assert project_version(tmp_path) == version


@pytest.mark.parametrize(
    ("refs", "version"),
    [
        (f"{COMMIT} refs/tags/v2.8\n", "2.8"),
        (f"{OTHER} refs/tags/v2.8\n^{COMMIT}\n", "2.8"),
        (f"{OTHER} refs/tags/v2.8\n^{OTHER}\n{COMMIT} refs/heads/v3.0\n", ""),
        (f"{COMMIT} refs/tags/nightly\n{COMMIT} refs/tags/v2.9.1\n", "2.9.1"),
        ("", ""),
    ],
)
def test_the_tag_of_the_commit_that_is_checked_out(tmp_path: Path, refs: str, version: str) -> None:
    """Plain and annotated tags; a branch that is called like a version is none."""
    git = tmp_path / ".git"
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "refs" / "heads" / "main").write_text(f"{COMMIT}\n")
    (git / "packed-refs").write_text(f"# pack-refs with: peeled fully-peeled sorted\n{refs}")
    assert project_version(tmp_path) == version
