"""Projects by name, and the project that a folder is a checkout of."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from builddoctor.core.project import KnownProject
from builddoctor.projects import catalogue
from builddoctor.projects.catalogue import find_known, known_names, nearest_project, recognise, shipped_projects


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("flash-attn", "flash_attn"),
        ("Flash_Attn", "flash_attn"),
        (" FLASH.ATTN ", "flash_attn"),
        ("TransformerEngine", "transformer_engine"),
        ("te", "transformer_engine"),
        ("llama-cpp-python", "llama_cpp_python"),
        ("fa3", "flash_attn_3"),
        ("torch", "pytorch"),
    ],
)
def test_a_project_is_found_however_its_name_is_spelled(typed: str, name: str) -> None:
    """Dashes, underscores, dots and case make no difference; aliases and titles count."""
    project = find_known(typed)
    assert project is not None
    assert project.name == name


@pytest.mark.parametrize("typed", ["", "no-such-project", "flash", "../flash_attn", "\0"])
def test_an_unknown_name_is_nobody(typed: str) -> None:
    """Nothing is guessed: a near miss is a suggestion, not a project."""
    assert find_known(typed) is None


def test_a_near_miss_gets_a_suggestion() -> None:
    """For "did you mean"; something else altogether gets none."""
    assert nearest_project("transfomer-engine") == "transformer_engine"
    assert nearest_project("xformer") == "xformers"
    assert nearest_project("flash_atn") == "flash_attn"
    assert nearest_project("postgresql") == ""


def test_no_two_projects_share_a_name() -> None:
    """Else one of them could not be asked for."""
    for project in shipped_projects():
        for name in (project.name, project.title, *project.aliases):
            assert find_known(name) is project
    assert len(set(known_names())) == len(shipped_projects())


def test_every_figure_has_a_source() -> None:
    """A number that nobody can check is worth nothing."""
    for project in shipped_projects():
        assert (project.heavy_phase_mib is None) == (project.heavy_source == ""), project.name
        assert project.repository.startswith("https://github.com/"), project.name


def test_a_file_has_the_name_of_its_project() -> None:
    """So that a project's facts are found; and a key that is misspelled is refused."""
    files = sorted(Path(catalogue.__file__).parent.glob("*.toml"))
    assert [file.stem for file in files] == [project.name for project in shipped_projects()]
    with pytest.raises(msgspec.ValidationError, match="needs_torhc"):
        msgspec.toml.decode('name = "x"\ntitle = "X"\nneeds_torhc = true\n', type=KnownProject)


@pytest.mark.parametrize(
    ("files", "name"),
    [
        (
            {"pyproject.toml": '[build-system]\nrequires = ["x"]\n[project]\nversion = "1"\nname = "sgl-kernel"\n'},
            "sgl_kernel",
        ),
        ({"setup.py": 'setup(\n    name="xformers",\n)\n'}, "xformers"),
        ({"setup.py": 'N = "xformers"\nif __name__ == "__main__":\n    setuptools.setup(name=N)\n'}, "xformers"),
        ({"setup.py": 'PACKAGE_NAME = "mamba_ssm"\nsetup(name=f"{PACKAGE_NAME}")\n'}, "mamba_ssm"),
        ({"setup.py": 'setup(name="torch")', "torch/csrc/x": "", "c10/x": "", "aten/x": ""}, "pytorch"),
        (
            {"setup.py": 'PACKAGE_NAME = "flash_attn"\nX(name="flash_attn_2_cuda")\nsetup(name=PACKAGE_NAME)'},
            "flash_attn",
        ),
        ({"setup.py": "", "transformer_engine/common/CMakeLists.txt": ""}, "transformer_engine"),
        ({"setup.py": "", "flash_api.cpp": "", "instantiations/a.cu": ""}, "flash_attn_3"),
        ({"setup.py": "", "csrc/flash_attn/flash_api.cpp": ""}, "flash_attn"),
    ],
)
def test_a_checkout_is_recognised_by_its_name_or_its_files(tmp_path: Path, files: dict[str, str], name: str) -> None:
    """The folder's own name says nothing: people rename it."""
    for file, text in files.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    project = recognise(tmp_path)
    assert project is not None
    assert project.name == name


@pytest.mark.parametrize(
    "setup",
    [
        'setup(name="mine", ext_modules=[Extension(\n    name="vllm",\n)])',
        'setup(name="mine")\ndef helper(\n    name="xformers",\n): pass',
        'setup(\n    name="mamba",\n)',
        'setup(name="torch")',
        'setup(name="te")',
        'name = "xformers"',
        'setup(\n    name="xformers",\n',
    ],
)
def test_a_name_that_is_no_proof_is_none(tmp_path: Path, setup: str) -> None:
    """An extension's, a default's, one that others use as well, one in a file that Python does not read."""
    (tmp_path / "setup.py").write_text(setup)
    assert recognise(tmp_path) is None


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    """Opened, it would block until somebody writes to it."""
    for name in ("setup.py", "pyproject.toml"):
        os.mkfifo(tmp_path / name)
    assert recognise(tmp_path) is None


def test_other_folders_are_not_mistaken_for_a_known_project(tmp_path: Path) -> None:
    """Nothing there, a name nobody knows, a binary setup.py, a dependency of that name, a file instead of a folder."""
    assert recognise(tmp_path / "missing") is None
    (tmp_path / "setup.py").write_bytes(b"\xff\xfe\x00" * 100)
    assert recognise(tmp_path) is None
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "mine"\ndependencies = ["xformers"]\n[tool.x]\nname = "apex"\n'
    )
    assert recognise(tmp_path) is None
    assert recognise(tmp_path / "setup.py") is None


def test_a_package_of_somebody_elses_adds_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By an entry point; what cannot be loaded, is no project, or has a name of ours, is passed over."""
    info = tmp_path / "extra-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: extra\nVersion: 1\n")
    names = (
        "mine = extra_projects:MINE",
        "ours = extra_projects:OURS",
        "text = extra_projects:TEXT",
        "gone = nowhere:X",
    )
    (info / "entry_points.txt").write_text("[builddoctor.projects]\n" + "\n".join(names) + "\n")
    (tmp_path / "extra_projects.py").write_text(
        "from builddoctor.core.project import KnownProject\n"
        "MINE = KnownProject(name='my_kernels', title='Mine')\n"
        "OURS = KnownProject(name='flash_attn', title='not this one')\n"
        "TEXT = 'no project'\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    found = find_known("My-Kernels")
    assert found is not None
    assert found.title == "Mine"
    flash = find_known("flash_attn")
    assert flash is not None
    assert flash.title == "FlashAttention 2"
    assert known_names()[-1] == "my_kernels"
