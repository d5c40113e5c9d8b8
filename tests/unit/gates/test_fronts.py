"""What a program that runs a build is about to build, from its arguments and folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from builddoctor.gates.fronts import configured_nvcc, ends_at_failure, planned_units, wants_jobs, works_in
from builddoctor.toolchain.discover import OVERLAY_MARK


@pytest.fixture
def nvcc(tmp_path: Path) -> Path:
    path = tmp_path / "cuda" / "bin" / "nvcc"
    path.parent.mkdir(parents=True)
    path.write_text("")
    return path


def configured(folder: Path, nvcc: Path, *, kind: str = "CMAKE_CUDA_COMPILER") -> None:
    """A build folder that calls this nvcc by its own path."""
    folder.mkdir(parents=True, exist_ok=True)
    if kind in ("CMAKE_CUDA_COMPILER", "CUDA_NVCC_EXECUTABLE"):
        text = f"CMAKE_BUILD_TYPE:STRING=Release\n{kind}:FILEPATH={nvcc}\n//end\n"
        (folder / "CMakeCache.txt").write_text(text)
    elif kind == "meson":
        text = f"rule cuda_COMPILER\n command = {nvcc} $ARGS -MD -MF $DEPFILE -o $out -c $in\n"
        (folder / "build.ninja").write_text(text)
    else:
        launcher = "ccache " if kind == "torch with ccache" else ""
        text = f"ninja_required_version = 1.3\nnvcc = {launcher}{nvcc}\ncuda_cflags = -O3\n"
        (folder / "build.ninja").write_text(text)


@pytest.mark.parametrize(
    ("name", "argv", "below"),
    [
        ("ninja", [], "."),
        ("ninja", ["-C", "build"], "build"),
        ("ninja", ["-Cbuild"], "build"),
        ("ninja", ["-C", "a", "-C", "b", "all"], "b"),
        ("make", ["-C", "a", "-C", "b"], "a/b"),
        ("ninja", ["-v", "-C", "build", "-k", "0"], "build"),
        ("make", ["-C", "build"], "build"),
        ("cmake", ["--build", "build", "-j8"], "build"),
    ],
)
@pytest.mark.parametrize("kind", ["CMAKE_CUDA_COMPILER", "CUDA_NVCC_EXECUTABLE", "torch", "torch with ccache", "meson"])
def test_the_nvcc_of_the_build_folder_is_found(
    tmp_path: Path, nvcc: Path, name: str, argv: list[str], below: str, kind: str
) -> None:
    """From CMake's cache, or from the build.ninja that torch writes; folders as ninja, make and cmake take them."""
    configured(tmp_path / "src" / below, nvcc, kind=kind)
    assert configured_nvcc(name, argv, str(tmp_path / "src"), {}) == nvcc


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("CMakeCache.txt", "CMAKE_CUDA_COMPILER:STRING=NVCC\nCMAKE_CUDA_COMPILER_LAUNCHER:UNINITIALIZED=sccache\n"),
        (
            "build.ninja",
            "build x.o: CUDA_COMPILER__x_unscanned_ /src/x.cu || first\n  FLAGS = -g\n  LAUNCHER = /usr/bin/sccache \n",
        ),
        ("build.ninja", "cuda_home = /usr/local/cuda\nnvcc = sccache NVCC\n"),
        ("inner.ninja", "nvcc = sccache NVCC\n"),
        ("CMakeFiles/x.dir/build.make", "x.o: x.cu\n\tsccache NVCC -x cu -c x.cu -o x.o\n"),
    ],
)
@pytest.mark.parametrize("cache", ["sccache", "ccache"])
def test_an_nvcc_behind_sccache_is_left_alone(tmp_path: Path, nvcc: Path, file: str, text: str, cache: str) -> None:
    """sccache 0.16 panics where nvcc's dry run names no PATH; ccache does not mind. As CMake 4.4 and torch write it."""
    configured(tmp_path, nvcc)
    (tmp_path / "build.ninja").write_text("subninja inner.ninja\n")
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(text.replace("sccache", cache).replace("NVCC", str(nvcc)))
    assert configured_nvcc("ninja", [], str(tmp_path), {}) == (None if cache == "sccache" else nvcc)


@pytest.mark.parametrize("inner", [False, True])
@pytest.mark.parametrize("argv", [["-v", "-C", "work", "-f", "KERNEL"], ["-fKERNEL"]])
def test_the_nvcc_of_flashinfers_kernels_is_found(tmp_path: Path, nvcc: Path, argv: list[str], inner: bool) -> None:
    """In a file that ``-f`` names, by the toolkit's variable; of several kernels in the files that it includes."""
    (tmp_path / "work").mkdir()
    kernel = tmp_path / "page" / "build.ninja"
    kernel.parent.mkdir()
    kernel.write_text(f"name = page\ncuda_home = {nvcc.parent.parent}\nnvcc = $cuda_home/bin/nvcc\n")
    if inner:
        (tmp_path / "all.ninja").write_text(f"ninja_required_version = 1.3\nsubninja {kernel}\n")
    named = str(tmp_path / "all.ninja" if inner else kernel)
    assert configured_nvcc("ninja", [word.replace("KERNEL", named) for word in argv], str(tmp_path), {}) == nvcc


@pytest.mark.parametrize(
    ("name", "argv"), [("cmake", ["-S", "."]), ("cmake", ["--build"]), ("cmake", []), ("ninja", ["-C", "missing"])]
)
def test_what_is_no_build_folder_names_no_nvcc(tmp_path: Path, nvcc: Path, name: str, argv: list[str]) -> None:
    """A configure step, an unfinished option, a missing folder."""
    configured(tmp_path, nvcc)
    assert configured_nvcc(name, argv, str(tmp_path), {}) is None


def test_a_folder_that_calls_our_own_gate_needs_no_help(tmp_path: Path, nvcc: Path) -> None:
    """It was configured under builddoctor."""
    (nvcc.parent.parent / OVERLAY_MARK).write_text("x")
    configured(tmp_path / "b", nvcc)
    assert configured_nvcc("ninja", [], str(tmp_path / "b"), {}) is None


def test_what_an_old_module_calls_counts_beside_our_gate(tmp_path: Path, nvcc: Path) -> None:
    """CMake's own language goes through the gate, and FindCUDA has found the toolkit beside it."""
    gate = tmp_path / "overlay" / "bin" / "nvcc"
    gate.parent.mkdir(parents=True)
    gate.write_text("")
    (tmp_path / "overlay" / OVERLAY_MARK).write_text("x")
    text = f"CUDA_NVCC_EXECUTABLE:FILEPATH={nvcc}\nCMAKE_CUDA_COMPILER:FILEPATH={gate}\n"
    (tmp_path / "CMakeCache.txt").write_text(text)
    assert configured_nvcc("ninja", [], str(tmp_path), {}) == nvcc


@pytest.mark.parametrize("path", ["/missing/nvcc", "/" + "x" * 300 + "/nvcc"])
def test_an_nvcc_that_is_gone_is_none(tmp_path: Path, path: str) -> None:
    """A stale cache, or one with a path that cannot be, is no error."""
    configured(tmp_path, Path(path))
    assert configured_nvcc("ninja", [], str(tmp_path), {}) is None


@pytest.mark.parametrize("content", [b"", b"\xff\x00CMAKE_CUDA_COMPILER", b"CMAKE_CUDA_COMPILER:FILEPATH=nvcc\n"])
def test_a_cache_of_any_content_is_read(tmp_path: Path, content: bytes) -> None:
    """Only an absolute path counts: by its name alone nvcc is found through our PATH."""
    (tmp_path / "CMakeCache.txt").write_bytes(content)
    assert configured_nvcc("ninja", [], str(tmp_path), {}) is None


@pytest.mark.parametrize(
    ("name", "argv", "wanted"),
    [
        ("ninja", [], True),
        ("ninja-build", ["-C", "b", "install"], True),
        ("samu", [], True),
        ("ninja", ["-j8"], False),
        ("ninja", ["-j", "8"], False),
        ("ninja", ["-t", "targets"], False),
        ("ninja", ["--version"], False),
        ("ninja", ["-n"], False),
        ("cmake", ["--build", "b"], False),
        ("make", [], False),
    ],
)
def test_ninja_gets_the_window_where_nobody_set_its_jobs(name: str, argv: list[str], wanted: bool) -> None:
    """Its own default knows cores, not memory; a ``-j`` in the command stands."""
    assert wants_jobs(name, argv) is wanted


@pytest.mark.parametrize("argv", [["-t", "compdb"], ["-n"], ["--version"], ["--help"]])
def test_a_ninja_that_only_answers_is_not_asked_for_its_plan(argv: list[str]) -> None:
    """It will compile nothing, so nothing is started to count it."""
    assert planned_units("/bin/ninja", argv, "/") is None


@pytest.mark.parametrize(
    ("command", "folder"),
    [
        (["ninja", "-C", "build"], "/src/build"),
        (["/usr/bin/ninja", "-Cbuild", "all"], "/src/build"),
        (["cmake", "--build", "/elsewhere"], "/elsewhere"),
        (["make", "-C", "a", "--directory=b"], "/src/a/b"),
        (["ninja", "-C", "a", "-C", "b"], "/src/b"),
        (["cmake", "--build", "--preset", "release"], "/src"),
        (["pip", "wheel", "-C", "build"], "/src"),
        (["cmake", "-B", "build"], "/src"),
        (["ninja", "-C"], "/src"),
        ([], "/src"),
    ],
)
def test_a_command_may_work_in_another_folder(command: list[str], folder: str) -> None:
    """Whose project it is then that is built."""
    assert works_in(command, "/src") == folder


@pytest.mark.parametrize(
    ("argv", "ends"),
    [
        ([], True),
        (["-v", "-j", "8"], True),
        (["-C", "build", "all"], True),
        (["-k", "1"], True),
        (["-k1"], True),
        (["-vk1"], True),
        (["-k", "0"], False),
        (["-k0"], False),
        (["-vk", "0"], False),
        (["-k"], False),
        (["-dkeepdepfile"], False),
    ],
)
def test_a_ninja_ends_at_its_first_failure_unless_it_is_told_otherwise(argv: list[str], ends: bool) -> None:
    """What cannot be told apart from -k counts as that."""
    assert ends_at_failure(argv) is ends
