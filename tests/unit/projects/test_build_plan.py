"""How a project is built: its command, its variables in its own spelling, and without a path of this machine."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest

from builddoctor.core.errors import NoBuildSystemError, ProjectNotFoundError, UsageError
from builddoctor.core.project import ArchKnob, KnownProject, VersionNote, holds_for, is_before, numbers_of
from builddoctor.projects.archs import parse_archs
from builddoctor.projects.build_plan import (
    BuildPlan,
    Project,
    find_project,
    plan_build,
    plan_unfetched,
    portable_build,
)
from builddoctor.projects.catalogue import find_known, shipped_projects

ARCHS = parse_archs("sm_90,sm_100a")


def found(folder: Path, *files: str, archs: str = "", env: dict | None = None, wheels: Path | None = None) -> Project:
    """The project of a folder with these (empty) files."""
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    return find_project(folder, parse_archs(archs) if archs else (), env or {}, wheels)


def configure(project: Project) -> list[str]:
    """The words of a CMake project's configure step."""
    shell, flag, script = project.command
    assert (shell, flag) == ("/bin/sh", "-c")
    return shlex.split(script.partition(" && ")[0])


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        (("setup.py",), "python"),
        (("pyproject.toml", "CMakeLists.txt"), "python"),
        (("CMakeLists.txt", "build.ninja"), "cmake"),
        (("build.ninja",), "ninja"),
    ],
)
def test_a_project_is_what_its_files_say(tmp_path: Path, files: tuple[str, ...], kind: str) -> None:
    """Python before CMake before a configured folder."""
    project = found(tmp_path, *files)
    assert (project.kind, project.name, project.path) == (kind, tmp_path.name, tmp_path)


def test_a_python_project_becomes_a_wheel_in_this_very_environment(tmp_path: Path) -> None:
    """Build isolation would hide its torch and our gates."""
    project = found(tmp_path, "setup.py", env={"PATH": "/nowhere"})
    assert project.command[:4] == ("python3", "-m", "pip", "wheel")
    assert {"--no-build-isolation", "--no-deps"} <= set(project.command)
    assert project.command[-3:] == ("--wheel-dir", f"{tmp_path}/dist", str(tmp_path))
    assert found(tmp_path, wheels=Path("/wheels")).output == "/wheels"


def test_the_python_on_the_path_builds(tmp_path: Path) -> None:
    """The user's own environment, not builddoctor's."""
    python = tmp_path / "venv" / "python"
    found(tmp_path, "setup.py", "venv/python")
    python.chmod(0o755)
    assert found(tmp_path, env={"PATH": str(python.parent)}).command[0] == str(python)


def test_a_cmake_project_is_configured_and_built(tmp_path: Path) -> None:
    """With Ninja and in Release, archs as CMake spells them; names with blanks are quoted."""
    folder = tmp_path / "my project"
    project = found(folder, "CMakeLists.txt", archs="sm_100,sm_90a")
    assert configure(project) == [
        *("cmake", "-S", str(folder), "-B", f"{folder}/build", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"),
        "-DCMAKE_CUDA_ARCHITECTURES=100;90a",
    ]
    assert shlex.split(project.command[2].partition(" && ")[2]) == ["exec", "cmake", "--build", f"{folder}/build"]


def test_a_configured_cmake_project_keeps_its_choices(tmp_path: Path) -> None:
    """Another generator would be an error, another build type a full rebuild."""
    words = configure(found(tmp_path, "CMakeLists.txt", "build/CMakeCache.txt"))
    assert words == ["cmake", "-S", str(tmp_path), "-B", f"{tmp_path}/build"]


def test_the_users_generator_and_build_type_stand(tmp_path: Path) -> None:
    """As exported for CMake."""
    env = {"CMAKE_GENERATOR": "Unix Makefiles", "CMAKE_BUILD_TYPE": "Debug"}
    assert configure(found(tmp_path, "CMakeLists.txt", env=env))[5:] == ["-G", "Unix Makefiles"]


def test_a_path_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    """With the path as it was given."""
    with pytest.raises(ProjectNotFoundError, match=r"no such path: .*missing"):
        found(tmp_path / "missing")


def test_a_file_is_no_project_but_its_folder_may_be(tmp_path: Path) -> None:
    """The hint can be pasted, blanks and all."""
    (tmp_path / "a b").mkdir()
    (tmp_path / "a b" / "setup.py").write_text("")
    with pytest.raises(NoBuildSystemError, match="is a file") as error:
        found(tmp_path / "a b" / "setup.py")
    assert f"builddoctor build '{tmp_path}/a b'" in error.value.hint


def test_an_unknown_build_system_can_still_be_supervised(tmp_path: Path) -> None:
    """The hint says how."""
    with pytest.raises(NoBuildSystemError, match="no build system found") as error:
        found(tmp_path, "meson.build")
    assert "builddoctor run --" in error.value.hint


def test_a_makefile_is_made_with_every_core(tmp_path: Path) -> None:
    """make takes one job unless it is told otherwise; memory is for the gates to keep."""
    project = found(tmp_path, "Makefile")
    assert (project.kind, project.command) == ("make", ("make", f"-j{os.cpu_count()}"))


def test_only_variables_that_the_project_reads_are_set(tmp_path: Path) -> None:
    """What CMake and torch read for whatever they build, and a known project's own; of another what its files name."""
    (tmp_path / "setup.py").write_text('archs = os.environ.get("NATTEN_CUDA_ARCH", "")')
    unknown = dict(plan_build(tmp_path, None, ARCHS, {}).settings)
    assert unknown == {"CUDAARCHS": "90;100a", "TORCH_CUDA_ARCH_LIST": "9.0;10.0a", "NATTEN_CUDA_ARCH": "9.0;10.0a"}
    known = dict(plan_build(tmp_path, find_known("flash_attn"), ARCHS, {}).settings)
    assert {name for name in known if "ARCH" in name} == {"CUDAARCHS", "TORCH_CUDA_ARCH_LIST", "FLASH_ATTN_CUDA_ARCHS"}


def test_after_a_failure_the_rest_is_built_when_that_is_asked_for(tmp_path: Path) -> None:
    """In ninja's words, and in make's."""
    for name, files in (("n", ("build.ninja",)), ("m", ("Makefile",)), ("c", ("CMakeLists.txt",))):
        folder = tmp_path / name
        found(folder, *files)
        command = find_project(folder, (), {}, None, keep_going=True).command
        assert command[-1].endswith({"n": "0", "m": "-k", "c": "-- -k 0"}[name])
    made = find_project(tmp_path / "c", (), {"CMAKE_GENERATOR": "Unix Makefiles"}, None, keep_going=True)
    assert made.command[-1].endswith("-- -k")


def planned(folder: Path, name: str, archs: str = "", env: dict[str, str] | None = None, **more: object) -> BuildPlan:
    """The plan for a checkout that has a setup.py."""
    known = find_known(name)
    top = folder / known.subfolder if known is not None and known.subfolder else folder
    top.mkdir(parents=True, exist_ok=True)
    (top / "setup.py").write_text("")
    return plan_build(folder, known, parse_archs(archs) if archs else (), env or {}, **more)


@pytest.mark.parametrize(
    ("name", "archs", "variable", "value"),
    [
        ("transformer_engine", "sm_100a,sm_90", "NVTE_CUDA_ARCHS", "100;90"),
        ("flash_attn", "sm_90a", "FLASH_ATTN_CUDA_ARCHS", "90"),
        ("xformers", "sm_90a,sm_100+ptx", "TORCH_CUDA_ARCH_LIST", "9.0a;10.0+PTX"),
        ("vllm", "gb200", "TORCH_CUDA_ARCH_LIST", "10.0"),
        ("deepspeed", "sm_90a,sm_100+ptx", "TORCH_CUDA_ARCH_LIST", "9.0;10.0+PTX"),
        ("natten", "sm_90a,sm_100", "NATTEN_CUDA_ARCH", "9.0;10.0"),
        ("flashinfer", "sm_90a,sm_100a", "FLASHINFER_CUDA_ARCH_LIST", "9.0a 10.0a"),
        ("llama_cpp_python", "sm_90,sm_100", "CMAKE_ARGS", "-DGGML_CUDA=on '-DCMAKE_CUDA_ARCHITECTURES=90;100'"),
        ("bitsandbytes", "h100", "CMAKE_ARGS", "-DCOMPUTE_BACKEND=cuda -DCOMPUTE_CAPABILITY=90"),
    ],
)
def test_architectures_are_spelled_as_the_project_reads_them(
    tmp_path: Path, name: str, archs: str, variable: str, value: str
) -> None:
    """Numbers or dots, semicolons or blanks, with letters where they are understood."""
    assert dict(planned(tmp_path, name, archs).settings)[variable] == value


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("flash_attn", ("FLASH_ATTENTION_FORCE_BUILD", "TRUE")),
        ("mamba_ssm", ("MAMBA_FORCE_BUILD", "TRUE")),
        ("causal_conv1d", ("CAUSAL_CONV1D_FORCE_BUILD", "TRUE")),
        ("transformer_engine", ("NVTE_PYTORCH_FORCE_BUILD", "TRUE")),
        ("deepspeed", ("DS_BUILD_OPS", "1")),
        ("deepspeed", ("DS_ACCELERATOR", "cuda")),
        ("xformers", ("FORCE_CUDA", "1")),
        ("apex", ("APEX_CUDA_EXT", "1")),
        ("flashinfer", ("FLASHINFER_BUILD_NO_PIP", "1")),
    ],
)
def test_a_build_compiles_and_takes_no_finished_wheel(tmp_path: Path, name: str, setting: tuple[str, str]) -> None:
    """A build was asked for: what would be fetched instead of compiled is forbidden."""
    assert setting in planned(tmp_path, name).settings


def test_what_the_user_has_set_stands_but_for_the_architectures(tmp_path: Path) -> None:
    """``--arch`` was typed later than the variable."""
    env = {"NVTE_CUDA_ARCHS": "70", "NVTE_CMAKE_BUILD_DIR": "/mine", "CMAKE_ARGS": "-DX=1"}
    settings = dict(planned(tmp_path, "transformer_engine", "sm_100", env).settings)
    assert settings["NVTE_CUDA_ARCHS"] == "100"
    assert "NVTE_CMAKE_BUILD_DIR" not in settings
    llama = dict(planned(tmp_path / "l", "llama_cpp_python", "", env).settings)
    assert shlex.split(llama["CMAKE_ARGS"]) == ["-DX=1", "-DGGML_CUDA=on"]


@pytest.mark.parametrize(
    ("setup", "by_path"),
    [
        ("subprocess.run([CUDA_HOME + '/bin/nvcc'])", True),
        ("cmdclass={'build_ext': BuildExtension.with_options(use_ninja=use_ninja)}", True),
        ("cmdclass={'build_ext': BuildExtension}", False),
        ("subprocess.run(['cmake', '-S', '.'])", False),
        ("", False),
    ],
)
def test_an_nvcc_called_by_its_own_path_is_expected_of_setup_py_alone(
    tmp_path: Path, setup: str, by_path: bool
) -> None:
    """torch with Ninja is told of our nvcc, and CMake has to find it as it is."""
    (tmp_path / "setup.py").write_text(setup)
    assert plan_build(tmp_path, None, (), {}).nvcc_by_path == by_path


@pytest.mark.parametrize(
    ("pyproject", "is_kept"),
    [
        ('[build-system]\nbuild-backend = "scikit_build_core.build"\n', True),
        ('[build-system]\nbuild-backend = "scikit_build_core.setuptools.build_meta"\n', True),
        ('[build-system]\nbuild-backend = "setuptools.build_meta"\n', False),
        ('[build-system]\nbuild-backend = "scikit_build_core.build"\n[tool.scikit-build]\nbuild-dir = "b"\n', False),
    ],
)
def test_scikit_build_core_is_given_a_folder_that_stays(tmp_path: Path, pyproject: str, is_kept: bool) -> None:
    """Any project's, known or not; one that names a folder keeps its own."""
    (tmp_path / "pyproject.toml").write_text(pyproject)
    plan = plan_build(tmp_path, None, (), {})
    assert (f"--config-settings=build-dir={tmp_path}/build/cmake" in plan.command) == is_kept
    assert bool(plan.make_folders) == is_kept


def test_the_build_folder_stays_for_the_next_build(tmp_path: Path) -> None:
    """TransformerEngine and scikit-build-core would build in one that is gone after a failure."""
    plan = planned(tmp_path, "transformer_engine")
    assert dict(plan.settings)["NVTE_CMAKE_BUILD_DIR"] == plan.kept == f"{tmp_path}/build/cmake"
    assert plan.make_folders == (plan.kept,)
    llama = planned(tmp_path / "l", "llama_cpp_python")
    assert f"--config-settings=build-dir={tmp_path}/l/build/cmake" in llama.command
    assert planned(tmp_path / "f", "flash_attn").kept == ""


def test_parts_can_be_left_out_by_name(tmp_path: Path) -> None:
    """In the project's own words; a part that it does not have is an error that lists those it has."""
    assert ("NVTE_WITH_NCCL_EP", "0") in planned(tmp_path, "te", without=("nccl-ep",)).settings
    sgl = planned(tmp_path / "s", "sgl_kernel", without=("below-sm90",))
    assert "-DENABLE_BELOW_SM90=OFF" in dict(sgl.settings)["CMAKE_ARGS"]
    with pytest.raises(UsageError, match="no part 'x'") as error:
        planned(tmp_path, "te", without=("x",))
    assert "nccl-ep" in error.value.hint
    with pytest.raises(UsageError, match="nothing is known"):
        planned(tmp_path, "nobody knows", without=("x",))


def test_a_project_may_be_built_in_a_folder_of_its_checkout(tmp_path: Path) -> None:
    """FlashAttention 3 is ``hopper``; from within that folder as well."""
    assert planned(tmp_path, "fa3").folder == f"{tmp_path}/hopper"
    (tmp_path / "flash_attn").mkdir(exist_ok=True)
    (tmp_path / "flash_attn" / "__init__.py").write_text('__version__ = "2.8.4"\n')
    (tmp_path / "hopper" / "__init__.py").write_text('__version__ = "3.0.0"\n')
    assert planned(tmp_path, "fa3").title == "FlashAttention 3 3.0.0"
    assert plan_build(tmp_path / "hopper", find_known("fa3"), (), {}).folder == f"{tmp_path}/hopper"
    torch = tmp_path / "bindings" / "torch"
    torch.mkdir(parents=True)
    (torch / "setup.py").write_text("from setuptools import setup\nsetup()\n")
    assert plan_build(torch, find_known("tiny_cuda_nn"), (), {}).folder == str(torch)
    (tmp_path / "old").mkdir()
    with pytest.raises(ProjectNotFoundError, match="hopper/, which is missing"):
        plan_build(tmp_path / "old", find_known("fa3"), (), {})


def test_a_project_whose_architectures_are_fixed_says_so(tmp_path: Path) -> None:
    """Nobody is to wonder why --arch made no difference."""
    assert any("nine are written into its setup.py" in note for note in planned(tmp_path, "mamba_ssm", "sm_90").notes)


def test_notes_of_a_version_are_told_for_that_version(tmp_path: Path) -> None:
    """TransformerEngine 2.3 cannot be compiled with CUDA 13."""
    assert any("CUDA 13" in note for note in planned(tmp_path, "te", version="2.3").notes)
    assert not any("CUDA 13" in note for note in planned(tmp_path, "te", version="2.8").notes)
    assert any("NVTE_CUDA_ARCHS 1.11" in note for note in planned(tmp_path, "te", version="1.9").notes)


@pytest.mark.parametrize("project", shipped_projects(), ids=lambda each: each.name)
def test_each_entry_can_be_planned_and_says_where_its_sources_are(tmp_path: Path, project: Any) -> None:
    """Every setting is a name and a value; a source distribution, or why there is none."""
    assert bool(project.package) != bool(project.no_package)
    assert project.repository.startswith("https://")
    assert project.backend
    assert "{version}" in project.tag
    for text in (*project.settings, *(part.off for part in project.components)):
        name, equals, value = text.partition("=")
        assert name.replace("_", "").isalnum()
        assert equals
        assert value
    plan = planned(tmp_path, project.name, "sm_90,sm_100")
    assert plan.title == project.title
    assert all("{" not in value for _, value in plan.settings)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("2.8", (2, 8)), ("v2.8.0", (2, 8, 0)), ("release_v2.3", (2, 3)), ("2.8.3.post2", (2, 8, 3)), ("main", None)],
)
def test_versions_are_read_as_projects_write_them(text: str, numbers: tuple[int, ...] | None) -> None:
    """A branch has no number."""
    assert numbers_of(text) == numbers


def test_versions_are_compared_by_number() -> None:
    """2.10 is after 2.9, 2.8 and 2.8.0 are one; a branch is newer than all."""
    assert is_before("2.9", "2.10")
    assert not is_before("2.8.0", "2.8")
    note = VersionNote(since="2.4", until="2.10", text="")
    assert [each for each in ("2.3", "2.4", "2.9.1", "2.10", "main") if holds_for(note, each)] == ["2.4", "2.9.1"]


def test_a_release_is_named_once(tmp_path: Path) -> None:
    """Its folder bears the version already."""
    folder = tmp_path / "lightgbm-4.7.0"
    folder.mkdir()
    (folder / "pyproject.toml").write_text("")
    assert plan_build(folder, None, (), {}, version="4.7.0").title == "lightgbm 4.7.0"


def test_a_known_project_needs_no_sources() -> None:
    """Its own variables for architectures and for what it does not build without; the kept folder is a mark."""
    build = portable_build(find_known("transformer_engine"), None, ARCHS)
    assert build.archs == (("NVTE_CUDA_ARCHS", "90;100"),)
    assert dict(build.settings) == {"NVTE_CMAKE_BUILD_DIR": "{build}", "NVTE_PYTORCH_FORCE_BUILD": "TRUE"}
    assert build.command[0] == "{python}"
    assert build.command[-3:] == ("--wheel-dir", "{wheels}", "{source}")


def test_architectures_in_cmake_args_are_one_word_there() -> None:
    """A list of architectures does not end at its semicolon for whoever splits CMAKE_ARGS."""
    build = portable_build(find_known("llama_cpp_python"), None, ARCHS)
    assert build.archs == (("CMAKE_ARGS", "-DGGML_CUDA=on '-DCMAKE_CUDA_ARCHITECTURES=90;100a'"),)


def test_no_path_of_this_machine_is_in_a_command(tmp_path: Path) -> None:
    """Sources, wheels, kept folder and python are marks; packages are those that pyproject.toml asks for."""
    (tmp_path / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["scikit-build-core>=0.9", "cmake<4"]\nbuild-backend = "scikit_build_core.build"\n'
    )
    build = portable_build(None, tmp_path, ARCHS)
    assert str(tmp_path) not in " ".join(build.command)
    assert "--config-settings=build-dir={build}" in build.command
    assert build.command[0] == "{python}"
    assert build.packages == ("scikit-build-core>=0.9", "cmake<4", "ninja")


def test_a_cmake_project_is_configured_where_it_lies(tmp_path: Path) -> None:
    """With relative paths alone, and by Ninja, whatever its folder is configured for here."""
    (tmp_path / "CMakeLists.txt").touch()
    (tmp_path / "build").mkdir()
    (tmp_path / "build/CMakeCache.txt").touch()
    build = portable_build(None, tmp_path, ARCHS)
    assert build.kind == "cmake"
    script = "cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CUDA_ARCHITECTURES='90;100a'"
    assert build.command == ("/bin/sh", "-c", f"{script} && exec cmake --build build")


def test_a_makefile_is_said_to_be_one(tmp_path: Path) -> None:
    """Stages are runs of Ninja: whoever renders has to know."""
    (tmp_path / "Makefile").touch()
    assert portable_build(None, tmp_path, ()).kind == "make"


def test_torch_is_installed_for_projects_that_import_it() -> None:
    """Their builds fail at once without it."""
    assert "torch" in portable_build(find_known("flash_attn"), None, ()).packages


ENGINE = KnownProject(
    name="engine",
    title="Engine",
    built_by="cmake",
    cmake_args=("-DENGINE_CUDA=ON",),
    archs=ArchKnob(variable="-DCMAKE_CUDA_ARCHITECTURES", spelling="number"),
)


def test_a_known_cmake_project_is_told_its_settings_as_words(tmp_path: Path) -> None:
    """CMake does not read CMAKE_ARGS; its architectures are said once, and what the user has set there stands."""
    (tmp_path / "CMakeLists.txt").write_text("")
    plan = plan_build(tmp_path, ENGINE, ARCHS, {"CMAKE_ARGS": "-DENGINE_RPC=ON"})
    words = shlex.split(plan.command[2].partition(" && ")[0])
    assert words[words.index("-DCMAKE_BUILD_TYPE=Release") + 1 :] == [
        *("-DENGINE_RPC=ON", "-DENGINE_CUDA=ON", "-DCMAKE_CUDA_ARCHITECTURES=90;100a"),
    ]
    assert "CMAKE_ARGS" not in dict(plan.settings)
    assert "CMAKE_CUDA_ARCHITECTURES" not in plan_build(tmp_path, ENGINE, (), {}).command[2]


def test_without_its_sources_a_project_is_planned_by_what_builds_it() -> None:
    """CMake where no pip is called; the same as with sources, but for the folder."""
    plan = plan_unfetched(ENGINE, ARCHS, {}, wheel_folder=Path("/wheels"))
    assert plan.kind == "cmake"
    assert "-DENGINE_CUDA=ON" in plan.command[2]
    python = msgspec.structs.replace(ENGINE, built_by="python")
    assert "pip" in plan_unfetched(python, ARCHS, {}, wheel_folder=Path("/wheels")).command


def test_a_known_cmake_project_is_portable_with_its_settings(tmp_path: Path) -> None:
    """With its sources and without them it is the same command."""
    (tmp_path / "CMakeLists.txt").write_text("")
    here, away = portable_build(ENGINE, tmp_path, ARCHS), portable_build(ENGINE, None, ARCHS)
    assert here == away
    assert here.kind == "cmake"
    assert "-DENGINE_CUDA='ON'" in here.command[2]
    assert here.command[2].count("CMAKE_CUDA_ARCHITECTURES") == 1


def test_a_build_that_compiles_no_cuda_says_so(tmp_path: Path) -> None:
    """FlashAttention 4 is Python alone: its kernels are compiled when they are used."""
    (tmp_path / "pyproject.toml").write_text("")
    known = find_known("fa4")
    assert known is not None
    assert any("at their first use" in note for note in plan_build(tmp_path, known, (), {}).notes)
    assert plan_build(tmp_path, ENGINE, (), {}).notes == ()
