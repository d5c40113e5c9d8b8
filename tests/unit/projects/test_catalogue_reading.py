"""What ``scripts/catalogue check`` reads from build files, and what it says of a difference."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from builddoctor.core.project import ArchKnob, Component, Knob, KnownProject
from builddoctor.projects.catalogue import find_known

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))

from catalogue_reading import Seen, catalogue_names, changes, disagreements, read_source, sentence  # noqa: E402

KERNELS = KnownProject(name="kernels", title="Kernels", jobs=(Knob(variable="MAX_JOBS"),))
SETUP = """
import os
from build_tools.flags import archs
FORCE = "KERNELS_FORCE_BUILD"
if os.getenv(FORCE) or "KERNELS_TRACE" in os.environ or os.environ["KERNELS_HOME"]:
    os.environ["KERNELS_SET"] = "1"
jobs = int(os.environ.get("MAX_JOBS", "4"))
setup(name="kernels", cmdclass={})
"""
FLAGS = """
import os

def archs():
    return os.getenv("KERNELS_CUDA_ARCHS", "80;9.0a")

FLAGS = ["-gencode", "arch=compute_100f,code=sm_100f"]
YEARS = ["2024", "2025"]
"""
CMAKE = """
project(kernels LANGUAGES CXX CUDA)
option(KERNELS_USE_CUDA "with CUDA" ON)
option(KERNELS_DOCS "manual" OFF)
set(CMAKE_CUDA_ARCHITECTURES 75 90-real)
# set(CMAKE_CUDA_ARCHITECTURES 120)
if(DEFINED ENV{KERNELS_SRC_DIR})
  add_subdirectory(parts)
endif()
"""


def read(folder: Path, files: Mapping[str, str], project: KnownProject = KERNELS) -> Seen:
    """What is read of a folder with these files."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return read_source(folder, project, version="1.2", source="a checkout")


def test_variables_that_a_setup_py_reads(tmp_path: Path) -> None:
    """By any of the ways to look into the environment, in its own modules too; what it sets is not read."""
    seen = read(tmp_path, {"setup.py": SETUP, "build_tools/flags.py": FLAGS, "other.py": 'os.getenv("NOT_ASKED")'})
    assert seen.variables == (
        *("KERNELS_CUDA_ARCHS", "KERNELS_FORCE_BUILD", "KERNELS_HOME", "KERNELS_TRACE"),
        "MAX_JOBS",
    )
    assert seen.front == "setup.py"


def test_architectures_that_are_named(tmp_path: Path) -> None:
    """As flags, as the default of a variable, as CMake's list; dotted or not. Years are none, nor are comments."""
    python = read(tmp_path / "a", {"setup.py": SETUP, "build_tools/flags.py": FLAGS})
    assert python.archs == ("80", "90a", "100f")
    assert read(tmp_path / "b", {"CMakeLists.txt": CMAKE}).archs == ("75", "90")


def test_cmake_is_followed_into_what_it_adds(tmp_path: Path) -> None:
    """Also below a condition; a folder that nothing adds says nothing, nor does one of another project."""
    inner = 'set(KERNELS_NVCC_THREADS "4" CACHE STRING "")\n'
    seen = read(
        tmp_path,
        {
            "CMakeLists.txt": CMAKE,
            "parts/CMakeLists.txt": inner,
            "elsewhere/CMakeLists.txt": "option(OTHER_CUDA x ON)",
            "third_party/cutlass/CMakeLists.txt": "option(CUTLASS_CUDA x ON)",
        },
    )
    assert seen.settings == ("-DKERNELS_NVCC_THREADS", "-DKERNELS_USE_CUDA")
    assert seen.variables == ("KERNELS_SRC_DIR",)
    assert seen.front == "CMake"


def test_a_table_of_names_counts_where_the_environment_is_asked_by_it(tmp_path: Path) -> None:
    """As in Apex; where every name is written out, other words in capitals are words."""
    table = 'import os\nFLAGS = {"KERNELS_EXT": "--ext"}\nfor key in FLAGS:\n    os.environ.get(key)\n'
    assert read(tmp_path / "a", {"setup.py": table}).variables == ("KERNELS_EXT",)
    plain = 'import os\nWORDS = {"KERNELS_EXT": "--ext"}\nos.environ.get("KERNELS_JOBS")\n'
    assert read(tmp_path / "b", {"setup.py": plain}).variables == ("KERNELS_JOBS",)


def test_the_front_the_requirements_and_the_submodules(tmp_path: Path) -> None:
    """As pyproject.toml and .gitmodules say them; a backend of the project's own has its variables read."""
    files = {
        "pyproject.toml": '[build-system]\nrequires = ["scikit-build-core>=0.9"]\n'
        'build-backend = "scikit_build_core.build"\n',
        ".gitmodules": '[submodule "a"]\n\tpath = third_party/a\n\turl = https://example.org/a\n',
    }
    seen = read(tmp_path / "a", files)
    assert (seen.front, seen.requires, seen.submodules) == (
        "scikit_build_core.build",
        ("scikit-build-core>=0.9",),
        ("third_party/a",),
    )
    own = '[build-system]\nrequires = []\nbuild-backend = "own_backend"\nbackend-path = ["."]\n'
    seen = read(tmp_path / "b", {"pyproject.toml": own, "own_backend.py": 'import os\nos.getenv("OWN_JOBS")\n'})
    assert (seen.front, seen.variables) == ("a backend of its own", ("OWN_JOBS",))


def test_folders_that_are_named_in_between_are_followed(tmp_path: Path) -> None:
    """As CuPy's ``sys.path``, and XGBoost's variable for the folder of its C++; what is not imported is not read."""
    setup = 'import sys\nsys.path.append(os.path.join(here, "install"))\nfrom builder import flags\n'
    asks = 'import os\nos.getenv("KERNELS_{}")\n'
    python = {f"install/builder/{name}.py": asks.format(name.upper()) for name in ("__init__", "flags")}
    seen = read(tmp_path / "a", {"setup.py": setup, **python, "install/other.py": asks.format("OTHER")})
    assert seen.variables == ("KERNELS_FLAGS",)
    outer = 'set(_SRC "${CMAKE_CURRENT_SOURCE_DIR}/cpp")\nadd_subdirectory("${_SRC}" build)\n'
    seen = read(tmp_path / "b", {"CMakeLists.txt": outer, "cpp/CMakeLists.txt": "option(USE_GPU x OFF)"})
    assert seen.settings == ("-DUSE_GPU",)


def test_nothing_of_a_project_is_run(tmp_path: Path) -> None:
    """What it would do stays undone; a file that is no Python says nothing."""
    mark = tmp_path / "ran"
    seen = read(tmp_path / "p", {"setup.py": f'import pathlib\npathlib.Path("{mark}").touch()\n'})
    assert not mark.exists()
    assert seen.variables == ()
    assert read(tmp_path / "q", {"setup.py": "this is ( no Python"}).variables == ()


SEEN = Seen(name="kernels", version="1.2", source="a checkout", front="setup.py", variables=("A_JOBS", "B_ARCHS"))


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({}, []),
        ({"version": "1.3"}, ["nothing of its build files has changed but the version"]),
        ({"variables": ("A_JOBS", "C_NEW", "D")}, ["reads C_NEW, D (new)", "no longer reads B_ARCHS"]),
        ({"front": "CMake"}, ["is built by CMake, before setup.py"]),
        ({"submodules": ("3rdparty/nccl",)}, ["has the submodule 3rdparty/nccl (new)"]),
        ({"archs": ("110",), "version": "1.3"}, ["names the architecture 110 (new)"]),
        ({"settings": ("-DX_CUDA",)}, ["has the setting -DX_CUDA (new)"]),
        ({"requires": ("cmake",)}, ["requires for its build cmake (new)"]),
    ],
)
def test_what_changed_is_said(changed: dict, told: list[str]) -> None:
    """Each difference to the last time is one sentence, and no other."""
    assert changes(SEEN, msgspec.structs.replace(SEEN, **changed)) == told


def test_a_project_that_was_never_read_is_said_to_be_new() -> None:
    """Else its first entry in the file would pass unseen."""
    assert changes(None, SEEN) == ["was not read before"]


def test_a_sentence_names_the_versions_and_what_the_catalogue_still_has() -> None:
    """So that a maintainer knows which line to change."""
    project = msgspec.structs.replace(KERNELS, archs=ArchKnob(variable="B_ARCHS", spelling="number"))
    now = msgspec.structs.replace(SEEN, version="1.3", variables=())
    assert sentence(SEEN, now, changes(SEEN, now, catalogue_names(project))) == (
        "kernels 1.2 → 1.3: no longer reads A_JOBS; no longer reads B_ARCHS, which the catalogue has"
    )


def test_a_variable_that_stands_nowhere_in_the_source_is_told(tmp_path: Path) -> None:
    """Of all that an entry speaks of; what torch, nvcc or CMake read need not be written there."""
    project = msgspec.structs.replace(
        KERNELS,
        threads=Knob(variable="NVCC_APPEND_FLAGS"),
        settings=("KERNELS_GONE=1",),
        cmake_args=("-DKERNELS_USE_CUDA=ON",),
        force_build="KERNELS_FORCE_BUILD=TRUE",
        components=(Component(name="docs", off="CMAKE_ARGS=-DKERNELS_OLD=OFF", what="the manual"),),
    )
    seen = read(tmp_path, {"setup.py": SETUP, "build_tools/flags.py": FLAGS, "csrc/CMakeLists.txt": CMAKE}, project)
    told = disagreements(project, seen, tmp_path)
    assert told[:2] == [
        "KERNELS_GONE, which the catalogue has, stands nowhere in it",
        "-DKERNELS_OLD, which the catalogue has, stands nowhere in it",
    ]
    assert told[2:] == ["is not recognised by its name and marks"]


def test_a_known_project_that_agrees_is_silent(tmp_path: Path) -> None:
    """Its name is in its setup.py, and each of its variables; another name is told."""
    project = find_known("flash_attn")
    assert project is not None
    text = (
        'import os\nfor name in ("FLASH_ATTENTION_FORCE_BUILD", "NVCC_THREADS", "FLASH_ATTN_CUDA_ARCHS"):\n    pass\n'
    )
    seen = read(tmp_path / "a", {"setup.py": f'{text}setup(name="flash_attn")\n'}, project)
    assert disagreements(project, seen, tmp_path / "a") == []
    seen = read(tmp_path / "b", {"setup.py": f'{text}setup(name="flash")\n'}, project)
    assert disagreements(project, seen, tmp_path / "b") == ["is not recognised by its name and marks"]


def test_submodules_that_are_all_gone_are_told(tmp_path: Path) -> None:
    """One of them may be another version's."""
    project = msgspec.structs.replace(KERNELS, needed_submodules=("3rdparty/old", "3rdparty/new"))
    modules = '[submodule "a"]\n\tpath = {}\n\turl = https://example.org/a\n'
    for path, told in (("3rdparty/new", 0), ("3rdparty/other", 1)):
        seen = read(tmp_path, {".gitmodules": modules.format(path)}, project)
        said = [each for each in disagreements(project, seen, tmp_path) if "none of the submodules" in each]
        assert len(said) == told, path


def test_what_was_read_is_of_projects_in_the_catalogue() -> None:
    """The file can be read, holds each once and in order, and nothing of a project that is gone."""
    kept = msgspec.json.decode((ROOT / "scripts" / "catalogue_seen.json").read_bytes(), type=list[Seen])
    names = [each.name for each in kept]
    assert names == sorted(set(names))
    assert [name for name in names if find_known(name) is None] == []
    assert all(each.version and each.front for each in kept)


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """``scripts/catalogue``, which keeps what it reads in a folder of the test's."""
    loader = SourceFileLoader("catalogue_script", str(ROOT / "scripts" / "catalogue"))
    spec = importlib.util.spec_from_loader("catalogue_script", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    # msgspec looks for a struct's module by its name.
    monkeypatch.setitem(sys.modules, "catalogue_script", module)
    loader.exec_module(module)
    monkeypatch.setattr(module, "SEEN", tmp_path / "seen.json")
    return module


def test_a_second_look_at_the_same_source_is_silent(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was kept is compared with; a difference is told until it is kept, and counts."""
    project = find_known("megatron_core")
    folder = tmp_path / "megatron"
    read(folder, {"setup.py": 'setup(name="megatron-core")\n'})
    checkouts = {"megatron_core": script.Checkout(folder=folder, version="1")}
    assert script.check([project], checkouts, write=True) == 1
    assert capsys.readouterr().out == "megatron_core 1: was not read before\n"
    assert script.check([project], checkouts, write=False) == 0
    assert capsys.readouterr().out == ""
    read(folder, {"setup.py": 'import os\nos.getenv("MEGATRON_FOO")\nsetup(name="megatron-core")\n'})
    moved = {"megatron_core": script.Checkout(folder=folder, version="2")}
    for _ in range(2):
        assert script.check([project], moved, write=False) == 1
        assert capsys.readouterr().out == "megatron_core 1 → 2: reads MEGATRON_FOO (new)\n"
    assert script.check([project], moved, write=True) == 1
    assert script.check([project], moved, write=False) == 0


def test_what_is_not_read_is_said_and_not_forgotten(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A project of a repository without a checkout is no change; a folder without a version is a failure."""
    project = find_known("pytorch")
    (tmp_path / "torch").mkdir()
    kept = Seen(name="pytorch", version="2", source="a checkout", front="setup.py")
    (tmp_path / "seen.json").write_bytes(msgspec.json.encode([kept]))
    assert script.check([project], {}, write=True) == 0
    assert "--checkout pytorch=DIR" in capsys.readouterr().err
    assert msgspec.json.decode((tmp_path / "seen.json").read_bytes(), type=list[Seen]) == [kept]
    assert script.check([project], {"pytorch": script.Checkout(folder=tmp_path / "torch")}, write=True) == 1
    assert "--checkout pytorch@VERSION=" in capsys.readouterr().err
