"""Which nvcc a Makefile calls by its own path. The Makefiles are of the forms that public projects have."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from builddoctor.gates.fronts import configured_nvcc
from builddoctor.toolchain.discover import OVERLAY_MARK

Files = Mapping[str, str]


@pytest.fixture
def homes(tmp_path: Path) -> Path:
    """Two toolkits, ``a`` and ``b``, and ``link``, which is ``a``."""
    for name in "ab":
        (tmp_path / name / "bin").mkdir(parents=True)
        (tmp_path / name / "bin" / "nvcc").write_text("")
    (tmp_path / "link").symlink_to("a")
    return tmp_path


def found(homes: Path, files: Files, *argv: str, env: Files | None = None, of: str = ".") -> str:
    """The toolkit of the nvcc that is found, by its name; empty where none is."""

    def here(text: str) -> str:
        return text.replace("HOMES", str(homes))

    for name, text in files.items():
        (homes / "src" / name).parent.mkdir(parents=True, exist_ok=True)
        (homes / "src" / name).write_text(here(text))
    seen = {name: here(value) for name, value in (env or {}).items()}
    nvcc = configured_nvcc("make", list(map(here, argv)), str(homes / "src" / of), seen)
    return "" if nvcc is None else str(nvcc.relative_to(homes).parts[0])


USUAL = "CUDA_HOME ?= HOMES/a\nNVCC ?= $(CUDA_HOME)/bin/nvcc\n"
NCCL = {"Makefile": "default: src.build\n", "src/Makefile": "include ../makefiles/common.mk\n"} | {
    "makefiles/common.mk": USUAL
}


@pytest.mark.parametrize(
    "text",
    [
        "all:\n\tHOMES/a/bin/nvcc -c x.cu\n",
        "NVCC = HOMES/a/bin/nvcc  # ours\n",
        "CUDA = \"HOMES/a\"\nNVCC = '$(CUDA)/bin/nvcc'\n",
        "NVCC\t\t:=${CUDA_PATH}/bin/nvcc -ccbin $(HOST)\nCUDA_PATH\t?=HOMES/a\n",
        "CUDA_PATH := HOMES/a\nCUDA_BIN_PATH := $(CUDA_PATH)/bin\nNVCC := $(CUDA_BIN_PATH)/nvcc\n",
        "export CUDA_DIR ::= HOMES/link\nx.o: x.cu\n\t@$(CUDA_DIR)/bin/nvcc -c $<\n\tHOMES/a/bin/nvcc --version\n",
        "NVCC ?= $(shell which nvcc 2>/dev/null || echo HOMES/a/bin/nvcc)\n",
        (
            "ifneq ($(wildcard HOMES/b/bin/nvcc), )\nelse ifneq (${wildcard $(X)/bin/nvcc},)\nCUDA ?= HOMES/a\nendif\n"
            "NVCC := ${CUDA}/bin/nvcc\n"
        ),
        USUAL.replace("HOMES/a", "/nowhere") + "override CUDA_HOME = HOMES/a\n",
    ],
)
def test_a_makefile_that_calls_one_nvcc_by_its_path_names_it(homes: Path, text: str) -> None:
    """Written out, by variables of variables, in a recipe, by a link."""
    assert found(homes, {"Makefile": text}) in ("a", "link")


@pytest.mark.parametrize(
    "text",
    [
        "NVCC = nvcc\nCUDA_PATH = HOMES/a\nINC = -I$(CUDA_PATH)/include\n",
        "NVCC := $(CUDA_HOME)/bin/nvcc\n",
        "NVCC := /nowhere/bin/nvcc\n",
        "NVCC := HOMES/a/bin/nvcc\nOLD := HOMES/b/bin/nvcc\n",
        "CUDA ?= HOMES/a\nelse\nCUDA ?= HOMES/b\nNVCC = $(CUDA)/bin/nvcc\n",
        "X = $(X)\nNVCC = $(X)/bin/nvcc\n",
        "NVCC = $(shell cat HOMES/a)/bin/nvcc\n",
        "NVCC = sccache HOMES/a/bin/nvcc\n",
        "TOOLS = HOMES/a/bin/nvcc-wrapper HOMES/a/bin/nvcc.profile\n",
        "",
    ],
)
def test_where_it_is_not_certain_none_is_named(homes: Path, text: str) -> None:
    """By name alone, a variable without a value, one that is not there, one of two, what only a shell knows."""
    assert found(homes, {"Makefile": text}) == ""


@pytest.mark.parametrize(
    ("argv", "env", "toolkit"),
    [
        ((), {}, "a"),
        ((), {"CUDA_HOME": "HOMES/b"}, "b"),
        (("-j8", "all", "CUDA_HOME=HOMES/b"), {}, "b"),
        (("CUDA_HOME=HOMES/b",), {"CUDA_HOME": "HOMES/a"}, "b"),
        (("NVCC=HOMES/b/bin/nvcc",), {}, "b"),
        (("NVCC=HOMES/b/bin/nvcc -ccbin g++",), {}, "b"),
    ],
)
def test_variables_are_ranked_as_make_ranks_them(homes: Path, argv: tuple[str, ...], env: Files, toolkit: str) -> None:
    """Arguments before the Makefile, the environment before what is only set where nothing is."""
    assert found(homes, {"Makefile": USUAL}, *argv, env=env) == toolkit


def test_what_a_makefile_sets_stands_before_the_environment(homes: Path) -> None:
    """Unlike what it sets with ``?=``."""
    assert found(homes, {"Makefile": USUAL.replace("?=", "=")}, env={"CUDA_HOME": "HOMES/b"}) == "a"


@pytest.mark.parametrize(
    ("files", "argv", "of"),
    [
        ({"Makefile": "include common.mk\n", "common.mk": USUAL}, (), ""),
        ({"src/Makefile": "-include ../$(X).mk ../m/common.mk\n", "m/common.mk": USUAL}, (), "src"),
        ({"src/Makefile": "sinclude ../m/common.mk\n", "m/common.mk": USUAL}, ("-C", "src"), ""),
        ({"build.mak": USUAL, "Makefile": "NVCC = HOMES/b/bin/nvcc\n"}, ("-f", "build.mak"), ""),
        ({"build.mak": USUAL}, ("-fbuild.mak",), ""),
        ({"build.mak": USUAL}, ("--file=build.mak",), ""),
        ({"GNUmakefile": USUAL, "Makefile": "NVCC = HOMES/b/bin/nvcc\n"}, (), ""),
        ({"Makefile": USUAL, "tests/Makefile": "NVCC = HOMES/b/bin/nvcc\n"}, (), ""),
        ({"Makefile": "all:\n\t$(MAKE) -C cudamatrix\n", "kaldi.mk": USUAL}, (), ""),
        ({"Makefile": "include $(X)/$(Y)/conf\n", "arch/lib/conf": USUAL}, ("X=arch", "Y=lib"), ""),
        ({"Makefile": "TOP := ../src\ninclude ${TOP}/m.mk $(wildcard *.d)\n", "m.mk": USUAL}, (), ""),
        (NCCL, (), ""),
    ],
)
def test_the_files_that_make_reads_are_read(homes: Path, files: Files, argv: tuple[str, ...], of: str) -> None:
    """Those named, those included, and, where these call none, those below."""
    assert found(homes, files, *argv, of=of) == "a"


@pytest.mark.parametrize(
    "text",
    [
        "X = $(X)$(X)\n" * 20 + "NVCC = $(X)/bin/nvcc\n",
        "include " + "$(A) " * 50_000 + "\nA = x y\n" * 20,
        "/" * 200_000 + "nvcc\n",
        "$(A)/" * 40_000 + "nvcc\n",
        "export " * 30_000 + "\n",
    ],
)
def test_no_makefile_takes_long(homes: Path, text: str) -> None:
    """What goes round, what is long, what looks like much at each of its places: with the test's limit of time."""
    assert found(homes, {"Makefile": text}) == ""


def test_a_makefile_that_includes_itself_ends(homes: Path) -> None:
    """As does one that cannot be read."""
    assert found(homes, {"Makefile": "include Makefile missing.mk ../src\n" + USUAL}) == "a"


def test_our_own_gate_needs_no_help(homes: Path) -> None:
    """An activated shell's CUDA_HOME is the overlay."""
    (homes / "b" / OVERLAY_MARK).write_text("x")
    assert found(homes, {"Makefile": USUAL}, env={"CUDA_HOME": "HOMES/b"}) == ""


def test_a_ninja_file_beside_it_that_calls_none_does_not_count(homes: Path) -> None:
    """Some projects have both."""
    assert found(homes, {"Makefile": USUAL, "build.ninja": "rule say\n  command = echo\n"}) == "a"


def test_a_folder_without_a_makefile_is_not_searched(homes: Path) -> None:
    """make has nothing to read there."""
    assert found(homes, {"src/Makefile": USUAL}) == ""
