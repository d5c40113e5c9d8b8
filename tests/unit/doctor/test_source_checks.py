"""What the doctor says of a source tree: submodules, and what an earlier build left."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from builddoctor.core.check import Check, Status
from builddoctor.core.project import Submodule
from builddoctor.doctor.source_checks import source_checks
from builddoctor.projects.archs import parse_archs
from builddoctor.projects.catalogue import find_known
from unit.source_trees import CUTLASS, NINJA_11, NINJA_13, NVCC, by_name, change, folder, program, source, tools


def checked(project: Any, *, known: str = "", arch: str = "", **changed: Any) -> dict[str, Check]:
    """The checks of a source tree, by name."""
    fields = {"toolkit": NVCC, "tools": tools(), "env": {}} | changed
    archs = parse_archs(arch) if arch else ()
    return by_name(source_checks(project, known=find_known(known) if known else None, archs=archs, **fields))


def test_a_healthy_tree_gets_one_line() -> None:
    """Nothing to do, nothing to read."""
    found = checked(source(submodules=(change(CUTLASS, present=True),)))
    assert [(check.status, check.text) for check in found.values()] == [(Status.OK, "1 submodule is there")]
    assert [check.status for check in checked(source()).values()] == [Status.OK]


def test_a_missing_submodule_stops_the_build() -> None:
    """The build file that names it is the reason, and the hint fetches it."""
    check = checked(source(submodules=(CUTLASS,)))["submodules"]
    assert (check.status, check.stops_build, check.fix) == (Status.PROBLEM, True, "submodules")
    assert check.text == "3rdparty/cutlass is empty, and setup.py needs it"
    assert check.hint == "cd /p && git submodule update --init --recursive"


def test_a_submodule_that_only_some_builds_need_is_a_warning() -> None:
    """LightGBM's external_libs/compute under ``if(USE_GPU)``: named, but not outside of all conditions."""
    check = checked(source(submodules=(change(CUTLASS, certain=False),)))["submodules"]
    assert (check.status, check.stops_build, check.fix) == (Status.WARNING, False, "submodules")


def test_the_hint_can_be_pasted_whatever_the_folder_is_called() -> None:
    """A blank, a quote, a semicolon: quoted for a shell."""
    check = checked(source(submodules=(CUTLASS,), checkout="/a b;c'd"))["submodules"]
    assert shlex.split(check.hint.partition(" && ")[0]) == ["cd", "/a b;c'd"]


def test_a_project_that_fetches_its_submodules_is_only_warned() -> None:
    """TransformerEngine and flash-attention run git themselves: it takes the network, and no more."""
    check = checked(source(submodules=(CUTLASS,), fetches_submodules="setup.py"))["submodules"]
    assert (check.status, check.stops_build, check.fix) == (Status.WARNING, False, "submodules")
    assert "network" in check.text


def test_it_cannot_fetch_them_without_git() -> None:
    """Then it goes on, and stops at the first include."""
    check = checked(source(submodules=(CUTLASS,), fetches_submodules="setup.py"), tools=tools(git=""))["submodules"]
    assert (check.status, check.stops_build, check.hint) == (Status.PROBLEM, True, "apt install git")


def test_an_archive_holds_no_submodules_and_cannot_fetch_them() -> None:
    """`git submodule update` would not work there: the hint is another way to get the sources."""
    project = source(submodules=(CUTLASS,), checkout="", fetches_submodules="setup.py")
    check = checked(project, known="transformer_engine")["submodules"]
    assert (check.status, check.stops_build, check.fix) == (Status.PROBLEM, True, "")
    assert check.hint == "git clone --recursive https://github.com/NVIDIA/TransformerEngine"
    assert "git clone --recursive" in checked(project)["submodules"].hint


@pytest.mark.parametrize(
    "module",
    [
        change(CUTLASS, named_in="", certain=False),
        change(CUTLASS, present=True),
        Submodule(
            path="csrc/composable_kernel", url="https://github.com/ROCm/composable_kernel.git", named_in="setup.py"
        ),
        Submodule(path="third_party/aiter", url="git@github.com:ROCm/aiter.git", named_in="setup.py"),
        Submodule(
            path="3rdparty/googletest", url="https://github.com/google/googletest.git", named_in="CMakeLists.txt"
        ),
    ],
)
def test_what_a_cuda_build_does_without_is_not_mentioned(module: Submodule) -> None:
    """Submodules that nobody names, those for AMD's GPUs, those for tests."""
    assert checked(source(submodules=(module,)))["submodules"].status is Status.OK


def test_what_is_known_of_a_project_goes_before_its_build_files() -> None:
    """A submodule on the list is needed though no file names it; one that is not on the list must not stop a build."""
    listed = change(CUTLASS, named_in="", certain=False)
    other = Submodule(path="3rdparty/extra", url="u", named_in="setup.py", certain=True)
    assert checked(source(submodules=(listed,)), known="te")["submodules"].stops_build
    check = checked(source(submodules=(other,)), known="te")["submodules"]
    assert (check.status, check.stops_build) == (Status.WARNING, False)


def test_a_submodule_of_a_part_that_is_left_out_is_not_needed() -> None:
    """TransformerEngine without NCCL EP reads none of NCCL's sources, whoever has set that."""
    project = source(submodules=(change(CUTLASS, path="3rdparty/nccl"),), checkout="")
    assert checked(project, known="te", env={"NVTE_WITH_NCCL_EP": "1"})["submodules"].stops_build
    without = checked(project, known="te", env={"NVTE_WITH_NCCL_EP": "0"})
    assert [check.status for check in without.values()] == [Status.OK]
    with_others = source(submodules=(change(CUTLASS, path="3rdparty/nccl"), CUTLASS), checkout="")
    check = checked(with_others, known="te", env={"NVTE_WITH_NCCL_EP": "0"})["submodules"]
    assert check.text.startswith("3rdparty/cutlass is empty")


def test_many_missing_submodules_stay_one_line() -> None:
    """PyTorch has forty."""
    modules = tuple(change(CUTLASS, path=f"3rdparty/{number}") for number in range(40))
    assert (
        "3rdparty/0, 3rdparty/1 and 38 more submodules are empty"
        in checked(source(submodules=modules))["submodules"].text
    )


def test_a_setup_py_that_cannot_be_read_is_said_so() -> None:
    """Not checked is not the same as fine."""
    assert checked(source(unread=("/p/setup.py",)))["source-unreadable"].status is Status.WARNING


def test_a_project_that_takes_finished_wheels_says_so_unless_told_otherwise() -> None:
    """flash-attention downloads one and compiles nothing, which is not what a person expects who asks for a build."""
    check = checked(source(), known="flash_attn")["prebuilt-wheel"]
    assert (check.status, check.hint) == (Status.OK, "export FLASH_ATTENTION_FORCE_BUILD=TRUE")
    assert "prebuilt-wheel" not in checked(source(), known="flash_attn", env={"FLASH_ATTENTION_FORCE_BUILD": "TRUE"})


def test_a_program_that_is_gone_breaks_the_folder() -> None:
    """CMake takes compiler and ninja from its cache, not from PATH; objects stay when it is configured anew."""
    left = folder(make_program="/tmp/pip-build-env-x/bin/ninja", gone=("/tmp/pip-build-env-x/bin/ninja",))
    check = checked(source(cmake=True, build_folders=(left,)))["build-folder-programs"]
    assert (check.status, check.stops_build) == (Status.PROBLEM, False)
    assert check.hint == "rm -r /p/build/CMakeCache.txt /p/build/CMakeFiles"


def test_a_broken_folder_stops_the_build_that_would_use_it() -> None:
    """`builddoctor build` of a CMake project configures build/; another folder is nobody's business now."""
    project = source(
        python=False, cmake=True, build_folders=(folder(moved_from="/old"), folder("/p/build-2", moved_from="/old"))
    )
    checks = source_checks(project, known=None, archs=(), toolkit=NVCC, tools=tools(), env={})
    assert [(check.name, check.stops_build) for check in checks] == [
        ("build-folder-moved", True),
        ("build-folder-moved", False),
    ]


@pytest.mark.parametrize(("field", "stops"), [("cuda_compiler", False), ("cxx_compiler", True), ("make_program", True)])
def test_only_programs_that_cmake_asks_for_anyway_stop_a_build(field: str, stops: bool) -> None:
    """A compiler for CUDA may be left from a time when the project had CUDA: CMake 4.4 configures all the same."""
    left = folder(gone=("/gone/x",), **{field: "/gone/x"})
    check = checked(source(python=False, cmake=True, build_folders=(left,)))["build-folder-programs"]
    assert (check.status, check.stops_build) == (Status.PROBLEM if stops else Status.WARNING, stops)


def test_a_launcher_that_is_gone_is_a_warning() -> None:
    """CMake does not look for it, and the project may take it away."""
    left = folder(launchers=(("CMAKE_CXX_COMPILER_LAUNCHER", "/gone/ccache"),), gone=("/gone/ccache",))
    check = checked(source(python=False, cmake=True, build_folders=(left,)))["build-folder-programs"]
    assert (check.status, check.stops_build) == (Status.WARNING, False)


def test_a_folder_that_was_configured_for_other_sources_is_refused() -> None:
    """`cmake -S cm -B build`, then `builddoctor build .`; in a folder of another name nobody minds."""
    left = folder(other_source="/p/cm")
    project = source(python=False, cmake=True, build_folders=(left,))
    check = checked(project)["build-folder-source"]
    assert (check.status, check.stops_build) == (Status.PROBLEM, True)
    assert check.hint == "rm -r /p/build/CMakeCache.txt /p/build/CMakeFiles"
    assert not checked(change(project, python=True))["build-folder-source"].stops_build
    away = change(project, build_folders=(change(left, path="/p/build-2"),))
    assert list(checked(away)) == ["submodules"]


def test_a_gate_left_in_a_cache_is_harmless_while_it_exists() -> None:
    """Without a supervisor it runs the real tool; deleted, it breaks the folder."""
    gate = "/c/overlays/host-0a1b2c3d/bin/ninja"
    there = folder(make_program=gate, overlays=(gate,))
    assert list(checked(source(build_folders=(there,)))) == ["submodules"]
    gone = change(there, gone=(gate,))
    assert checked(source(build_folders=(gone,)))["build-folder-overlay"].status is Status.PROBLEM


@pytest.mark.parametrize(
    ("cached", "arch", "stale"),
    [
        ("90", "sm_100", True),
        ("90-real;100", "sm_100", True),
        ("100-real", "sm_100", False),
        ("90;100a", "sm_100a,sm_90", False),
        ("native", "sm_100", False),
        ("OFF", "sm_100", False),
        ("", "sm_100", False),
        ("90", "", False),
    ],
)
def test_other_architectures_mean_everything_again(cached: str, arch: str, stale: bool) -> None:
    """Where the cache names numbers, and some were asked for."""
    found = checked(source(build_folders=(folder(archs=cached),)), arch=arch)
    assert ("build-folder-archs" in found) is stale


def test_a_folder_keeps_the_nvcc_it_was_configured_with() -> None:
    """Whichever is on PATH now."""
    old = folder(cuda_compiler="/cuda-12.8/bin/nvcc", cuda_version="12.8.61")
    check = checked(source(build_folders=(old,)))["build-folder-nvcc"]
    assert check.status is Status.WARNING
    assert "12.8.61" in check.text
    assert "13.0.88" in check.text
    assert "build-folder-nvcc" not in checked(source(build_folders=(change(old, cuda_version="13.0.88"),)))
    assert "build-folder-nvcc" not in checked(source(build_folders=(old,)), toolkit=None)


@pytest.mark.parametrize(
    ("log", "version", "again"),
    [
        (5, "1.11.1", False),
        (5, "1.10.0", False),
        (5, "1.12.1", True),
        (6, "1.12.0", False),
        (7, "1.13.2", False),
        (7, "1.14.0", False),
        (7, "1.11.1", True),
        (6, "1.13.0", True),
        (5, "2.0", True),
        (5, "", False),
    ],
)
def test_a_log_of_another_ninja_means_everything_again(log: int, version: str, again: bool) -> None:
    """v5 up to 1.11, v6 for 1.12, v7 from 1.13: an older or newer one starts over, some without a word."""
    ninja = program("/usr/bin/ninja", version)
    found = checked(source(build_folders=(folder(ninja_log=log),)), tools=tools(ninjas=(ninja,)))
    assert ("ninja-log" in found) is again


def test_the_ninja_that_wrote_the_log_is_offered() -> None:
    """torch takes the first on PATH; CMake the one in its cache."""
    both = tools(ninjas=(NINJA_13, NINJA_11))
    torch = folder("/p/build/temp", configured=False, make_program="", ninja_log=5)
    assert checked(source(build_folders=(torch,)), tools=both)["ninja-log"].hint == 'export PATH=/usr/bin:"$PATH"'
    cached = folder(make_program=NINJA_13.path, ninja_log=5)
    hint = checked(source(build_folders=(cached,)), tools=both)["ninja-log"].hint
    assert hint == "cmake -DCMAKE_MAKE_PROGRAM=/usr/bin/ninja /p/build"


def test_a_folder_with_a_ninja_of_its_own_is_not_to_be_built_with_another() -> None:
    """CMake goes on with 1.11 from its cache; `ninja` typed there would be 1.13."""
    mine = folder(make_program="/opt/ninja", ninja_log=5)
    given = tools(ninjas=(NINJA_13,), configured_ninjas=(program("/opt/ninja", "1.11.1", origin="folder"),))
    check = checked(source(build_folders=(mine,)), tools=given)["ninja-log"]
    assert (check.status, check.hint) == (Status.WARNING, "cmake --build /p/build")
    assert "1.13.2" in check.text


def test_makefiles_have_no_ninja_log() -> None:
    """Nor does an unknown ninja say anything."""
    assert "ninja-log" not in checked(
        source(build_folders=(folder(generator="Unix Makefiles", ninja_log=5),)), tools=tools(ninjas=(NINJA_13,))
    )
    assert "ninja-log" not in checked(source(build_folders=(folder(ninja_log=7),)), tools=tools(ninjas=()))
