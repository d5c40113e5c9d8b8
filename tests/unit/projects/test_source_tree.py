"""A project's source tree as facts: submodules, build files, folders that were configured before."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from builddoctor.core.project import BuildFolder, Source, Submodule
from builddoctor.projects.git_checkout import parse_gitmodules
from builddoctor.projects.metadata import read_pyproject
from builddoctor.projects.source_tree import examine_source, first_naming
from builddoctor.system import source_files
from builddoctor.toolchain.discover import OVERLAY_MARK

GITMODULES = (
    '[submodule "3rdparty/cutlass"]\n\tpath = 3rdparty/cutlass\n\turl = https://github.com/NVIDIA/cutlass.git\n'
)
LOG = "# ninja log v{}\n0\t16\t17\tx.o\ta7368565bfac81ec\n"


def examined(folder: Path, files: Mapping[str, str], env: Mapping[str, str] | None = None) -> Source:
    """The facts of a folder with these files; a name that ends in ``/`` is an empty folder."""
    for name, text in files.items():
        path = folder / name
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return examine_source(folder, env or {})


def cutlass(folder: Path, **files: str) -> Submodule:
    """The submodule of a checkout with GITMODULES and these files (``setup_py=…``)."""
    named = {name.replace("_py", ".py").replace("_txt", ".txt"): text for name, text in files.items()}
    found = examined(folder, {".git/HEAD": "", ".gitmodules": GITMODULES, **named}).submodules
    assert [module.path for module in found] == ["3rdparty/cutlass"]
    return found[0]


def test_an_empty_folder_is_a_missing_submodule(tmp_path: Path) -> None:
    """So is no folder at all, and one in which a clone died, with its ``.git`` alone."""
    assert not cutlass(tmp_path).present
    (tmp_path / "3rdparty/cutlass").mkdir(parents=True)
    assert not cutlass(tmp_path).present
    (tmp_path / "3rdparty/cutlass/.git").write_text("gitdir: ../../.git/modules/cutlass\n")
    assert not cutlass(tmp_path).present
    (tmp_path / "3rdparty/cutlass/README").write_text("")
    assert cutlass(tmp_path).present


def test_nested_submodules_are_seen_one_level_down(tmp_path: Path) -> None:
    """Below those that are there."""
    inner = GITMODULES.replace("3rdparty/cutlass", "deps/fmt")
    files = {".git/HEAD": "", ".gitmodules": GITMODULES, "3rdparty/cutlass/.gitmodules": inner}
    found = examined(tmp_path, files).submodules
    assert [(m.path, m.present) for m in found] == [("3rdparty/cutlass", True), ("3rdparty/cutlass/deps/fmt", False)]


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ('[submodule "a b"]\n  path = "a b"\n  url = u # why\n', [("a b", "u")]),
        ('[core]\npath = x\n[submodule "a"]\nPATH=a/\nbranch = main\n', [("a", "")]),
        ('[submodule "a"]\nurl = u\n', []),
        ('[submodule "a"]\npath = ../up\n[submodule "b"]\npath = /etc\n[submodule "c"]\npath = x/../../y\n', []),
        ('[submodule "a"]\npath = .\n[submodule "b"]\npath = a\x1b[31m\n', []),
        ("path = a\n", []),
        ("\0\xff[[[]]]=\n[submodule", []),
    ],
)
def test_gitmodules_in_any_shape(text: str, pairs: list[tuple[str, str]]) -> None:
    """Quotes, comments and case as git takes them; a path out of the checkout is not looked at."""
    assert parse_gitmodules(text) == pairs


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('cutlass = root / "3rdparty" / "cutlass"', True),
        ('os.path.join(here, "3rdparty", "cutlass", "include")', True),
        ('"${CMAKE_CURRENT_SOURCE_DIR}/../../3rdparty/cutlass/include"', True),
        ("../3rdparty/cutlass", True),
        ("gemm/cutlass_grouped_gemm.cu", False),
        ("3rdparty/cutlass-extensions", False),
        ("my3rdparty/cutlass", False),
        ("cutlass", False),
    ],
)
def test_a_build_file_names_a_path_in_many_spellings(text: str, named: bool) -> None:
    """Joined by ``/``, by commas, behind variables; parts of other names do not count."""
    assert bool(first_naming({"": text}, {"": ["3rdparty/cutlass"]})) is named


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("add_subdirectory(cutlass)", True),
        ("${ROOT}/cutlass/include", True),
        ('"cutlass/include"', True),
        ("find_package(cutlass)", False),
        ("# we like cutlass", False),
        ("run(cutlass_kernel)", False),
    ],
)
def test_a_single_word_has_to_look_like_a_path(text: str, named: bool) -> None:
    """A submodule at the top called like its library is mentioned in many other ways."""
    assert bool(first_naming({"": text}, {"": ["cutlass"]})) is named


def test_the_file_that_names_a_submodule_is_told(tmp_path: Path) -> None:
    """Comments, and the build files of tests, do not count."""
    tests = {"tests/CMakeLists.txt": "add_subdirectory(../3rdparty/cutlass)"}
    assert examined(tmp_path, tests).files.read == 0
    assert cutlass(tmp_path, setup_py="# 3rdparty/cutlass\n").named_in == ""
    assert cutlass(tmp_path, setup_py='x = "3rdparty/cutlass"\n').named_in == "setup.py"


def test_a_path_is_also_named_from_where_the_file_stands(tmp_path: Path) -> None:
    """3rdparty/CMakeLists.txt says ``add_subdirectory(cutlass)``."""
    files = {".git/HEAD": "", ".gitmodules": GITMODULES, "3rdparty/CMakeLists.txt": "add_subdirectory(cutlass)\n"}
    assert examined(tmp_path, files).submodules[0].named_in == "3rdparty/CMakeLists.txt"


def test_submodules_of_the_checkout_around_a_project_count(tmp_path: Path) -> None:
    """flash-attention's hopper/ builds with ../csrc/cutlass."""
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitmodules").write_text(GITMODULES)
    source = examined(tmp_path / "hopper", {"setup.py": 'root / "3rdparty" / "cutlass"'})
    assert source.checkout == str(tmp_path)
    assert [(m.path, m.named_in) for m in source.submodules] == [("3rdparty/cutlass", "setup.py")]


def test_an_archive_is_no_checkout_wherever_it_lies(tmp_path: Path) -> None:
    """Unpacked below somebody's checkout of something else, it still has no git of its own."""
    (tmp_path / ".git").mkdir()
    assert examined(tmp_path / "te-2.8", {".gitmodules": GITMODULES, "setup.py": ""}).checkout == ""
    assert examined(tmp_path / "part", {"setup.py": ""}).checkout == str(tmp_path)


@pytest.mark.parametrize(
    ("file", "text", "fetches"),
    [
        ("setup.py", 'check_call(["git", "submodule", "update", "--init"])', True),
        ("setup.py", 'run(["git", "-C", here, "submodule", "update"])', True),
        ("setup.py", 'run(["git", "-C", "x", "submodule", "update"])', True),
        ("setup.py", 'os.system("git submodule update --init")', True),
        ("CMakeLists.txt", "execute_process(COMMAND ${GIT_EXECUTABLE} submodule update --init)", True),
        ("CMakeLists.txt", 'execute_process(\n  COMMAND "${GIT_EXECUTABLE}" -C ${DIR}\n  submodule update)', True),
        ("CMakeLists.txt", "execute_process(COMMAND git -C ${DIR} -c a=b submodule update --init)", True),
        ("setup.py", 'run(\n    [\n        "git",\n        "submodule",\n        "update",\n    ]\n)', True),
        ("setup.py", 'os.system(f"cd {here} && git -C {here} submodule update --init")', True),
        ("setup.py", 'command = "git submodule update --init"\nos.system(command)', True),
        ("setup.py", 'print("call git submodule update --init")', False),
        ("Makefile", "all:\n\tgit submodule update --init\n", True),
        ("Makefile", "# git submodule update --init\nall:\n", False),
        ("setup.py", 'raise RuntimeError("run `git submodule update --init --recursive`")', False),
        ("setup.py", '["git", "submodule", "status"]', False),
        ("CMakeLists.txt", 'message(FATAL_ERROR "Run git submodule update --init")', False),
    ],
)
def test_a_build_that_fetches_its_submodules_is_known(tmp_path: Path, file: str, text: str, fetches: bool) -> None:
    """To run git is one thing, to tell the user to run it another."""
    assert examined(tmp_path, {file: text}).files.fetches_submodules == (file if fetches else "")


@pytest.mark.parametrize(
    ("text", "backend", "requires"),
    [
        ('[build-system]\nrequires = ["a>=1", \'b\'] # "c"\nbuild-backend = "x.y"\n', "x.y", ("a>=1", "b")),
        (
            '[build-system]\nrequires = [\n  # "no", it\'s not\n  "pybind11[global]",\n]\n[x]\nrequires=["z"]',
            "",
            ("pybind11[global]",),
        ),
        ('[project]\nname = "x"\n[tool.y]\nbuild-backend = "z"\n', "", ()),
        ('[build-system]\nrequires = []\nbuild-backend = "mine"\nbackend-path = ["."]\n', "", ()),
        ('[build-system]\nrequires = ["a', "", ()),
        ('[ build-system ]\nrequires = ["a"]\nbuild-backend = "x.y"\n', "x.y", ("a",)),
        ('build-system = { requires = ["a"], build-backend = "x.y" }\n', "x.y", ("a",)),
        # pip refuses what is no TOML.
        ('[ build-system ]\nrequires = ["a"]\nbuild-backend = "x.y"\n[broken\n', "", ()),
        ("[build-system]\nrequires = 3\nbuild-backend = []\n", "", ()),
        ("build-system = 3\n", "", ()),
        ("", "", ()),
    ],
)
def test_the_build_system_table(text: str, backend: str, requires: tuple[str, ...]) -> None:
    """Comments and brackets inside of strings do not confuse it; a backend of the project's own cannot be missing."""
    found = read_pyproject(text)
    assert (found.backend, found.requires) == (backend, requires)


def test_the_outermost_cmake_minimum_counts(tmp_path: Path) -> None:
    """A part of the project may ask for more, but it may also never be built."""
    files = {
        "lib/CMakeLists.txt": "cmake_minimum_required(VERSION 3.21)",
        "lib/x/CMakeLists.txt": "cmake_minimum_required(VERSION 3.28)",
    }
    found = examined(tmp_path, files).files
    assert (found.cmake_minimum, found.cmake_minimum_certain) == ("3.21", False)
    (tmp_path / "CMakeLists.txt").write_text(
        "# cmake_minimum_required(VERSION 9.9)\nCMAKE_MINIMUM_REQUIRED( VERSION 3.5...3.29 FATAL_ERROR)"
    )
    found = examined(tmp_path, {}).files
    assert (found.cmake_minimum, found.cmake_minimum_certain) == ("3.5...3.29", True)


@pytest.mark.parametrize(
    ("text", "minimum", "certain"),
    [
        ("#[[\ncmake_minimum_required(VERSION 9.0)\n]]\ncmake_minimum_required(VERSION 3.20)", "3.20", True),
        ("#[=[ ]] cmake_minimum_required(VERSION 9.0) ]=]cmake_minimum_required(VERSION 3.20)", "3.20", True),
        ('message("cmake_minimum_required(VERSION 9.0)")\ncmake_minimum_required(VERSION 3.20)', "3.20", True),
        ("cmake_minimum_required(VERSION\n  3.20 # why\n)", "3.20", True),
        (
            "if(WIN32)\ncmake_minimum_required(VERSION 5)\nelse()\ncmake_minimum_required(VERSION 3.20)\nendif(WIN32)",
            "3.20",
            False,
        ),
        ("set(V 3.20)\ncmake_minimum_required(VERSION ${V})", "", False),
        ("function(f)\ncmake_minimum_required(VERSION 9.0)\nendfunction()", "9.0", False),
        ("#[[ nobody closes it\ncmake_minimum_required(VERSION 9.0)", "", False),
    ],
)
def test_the_minimum_is_what_cmake_would_read(tmp_path: Path, text: str, minimum: str, certain: bool) -> None:
    """Not comments, not strings, not what a variable stands for; parts of the project say nothing of the whole."""
    files = {"CMakeLists.txt": text, "plugins/CMakeLists.txt": "cmake_minimum_required(VERSION 5.0)"}
    found = examined(tmp_path, files).files
    assert (found.cmake_minimum, found.cmake_minimum_certain) == (minimum, certain)


@pytest.mark.parametrize(
    ("text", "certain"),
    [
        ("add_subdirectory(3rdparty/cutlass)", True),
        ('include_directories("${PROJECT_SOURCE_DIR}/3rdparty/cutlass/include")', True),
        ("set(D ${CMAKE_SOURCE_DIR}/3rdparty/cutlass)\nadd_library(x x.cpp ${D}/y.cpp)", True),
        ("target_include_directories(x PUBLIC $<BUILD_INTERFACE:${DIR}/3rdparty/cutlass/include>)", True),
        ("if(NOT EXISTS ${DIR}/3rdparty/cutlass/x.h)\nmessage(FATAL_ERROR none)\nendif()", True),
        ("if(A)\nelse()\nendif()\nadd_subdirectory(3rdparty/cutlass)", True),
        ("IF(WITH_A)\nadd_subdirectory(3rdparty/cutlass)\nENDIF(WITH_A)", False),
        ("if(A)\nelse()\nadd_subdirectory(3rdparty/cutlass)\nendif()", False),
        ("if(EXISTS ${DIR}/3rdparty/cutlass/x)\nadd_subdirectory(3rdparty/cutlass)\nendif()", False),
        ("if(NOT EXISTS ${DIR}/3rdparty/cutlass/x)\nset(A OFF)\nendif()", False),
        ("function(f)\nadd_subdirectory(3rdparty/cutlass)\nendfunction()", False),
        ("if(A)\nreturn()\nendif()\nadd_subdirectory(3rdparty/cutlass)", False),
        ("set(D 3rdparty/cutlass CACHE PATH x)\ninclude_directories(${D}/include)", False),
        ("set(D 3rdparty/cutlass/include)", False),
        ("set(D 3rdparty/cutlass)\nif(A)\nset(D /opt/cutlass)\nendif()\ninclude_directories(${D}/x)", False),
        ("include(3rdparty/cutlass/x.cmake OPTIONAL)", False),
        ("target_include_directories(x PUBLIC $<$<BOOL:${A}>:${DIR}/3rdparty/cutlass/include>)", False),
        ("include_directories(/opt/3rdparty/cutlass)", False),
        ("add_subdirectory(other/3rdparty/cutlass)", False),
        ("add_subdirectory(3rdparty/cutlass-2)", False),
        ('message(STATUS "needs 3rdparty/cutlass/include")', False),
        ("set(X 1) # add_subdirectory(3rdparty/cutlass)", False),
        ("#[[\nadd_subdirectory(3rdparty/cutlass)\n]]", False),
    ],
)
def test_what_cmake_reads_in_any_case_is_certain(tmp_path: Path, text: str, certain: bool) -> None:
    """Outside of conditions, functions and comments, with variables that the file itself sets."""
    found = cutlass(tmp_path, CMakeLists_txt=text)
    assert found.certain is certain
    # pip builds a project that has both, and may never read it.
    assert not cutlass(tmp_path, setup_py="").certain


@pytest.mark.parametrize(
    ("text", "certain"),
    [
        ('include = "3rdparty/cutlass/include"', True),
        ('x = os.path.join(here, "3rdparty", "cutlass", "include")', True),
        ('x = here / "3rdparty" / "cutlass"', True),
        ('x = here + "/3rdparty/cutlass"', True),
        ('x = f"{here}/3rdparty/cutlass/include"', True),
        ('def f():\n    return ["3rdparty/cutlass/a.cu"]\nsetup(ext_modules=f())', True),
        ('if __name__ == "__main__":\n    setup(include_dirs=["3rdparty/cutlass"])', True),
        ('def f():\n    return ["3rdparty/cutlass/a.cu"]\nif A:\n    setup(x=f())', False),
        ('if A:\n    x = "3rdparty/cutlass"', False),
        ('x = "3rdparty/cutlass" if A else ""', False),
        ('x = A and "3rdparty/cutlass"', False),
        ('try:\n    x = "3rdparty/cutlass"\nexcept OSError: pass', False),
        ('while A:\n    x = "3rdparty/cutlass"', False),
        ('for x in ["3rdparty/cutlass"]:\n    f(x)', False),
        ('x = [y for y in ["3rdparty/cutlass"] if exists(y)]', False),
        ('class C:\n    x = "3rdparty/cutlass"', False),
        ('"""needs 3rdparty/cutlass/include"""', False),
        ('packages = find_packages(exclude=["3rdparty/cutlass", "tests"])', False),
        ('EXCLUDED = ["3rdparty/cutlass"]', False),
        ('x = os.path.exists("3rdparty/cutlass")', False),
        ('x = os.environ.get("CUTLASS", "3rdparty/cutlass")', False),
        ('print("3rdparty/cutlass/x")', False),
        ('run(["git", "submodule", "update", "3rdparty/cutlass"])', False),
        ('def f():\n    if A:\n        return []\n    return ["3rdparty/cutlass/a.cu"]\nsetup(x=f())', False),
        ('x = "/opt/3rdparty/cutlass"', False),
        ('x = "3rdparty/cutlass"\nthis is no Python', False),
        ('# x = "3rdparty/cutlass"', False),
    ],
)
def test_what_setup_py_uses_in_any_case_is_certain(tmp_path: Path, text: str, certain: bool) -> None:
    """Outside of conditions, loops and classes, and neither asked for nor left out nor told of."""
    assert cutlass(tmp_path, setup_py=text).certain is certain


@pytest.mark.parametrize(
    ("files", "cuda", "certain"),
    [
        ({"CMakeLists.txt": "project(x LANGUAGES CXX CUDA)"}, "CMakeLists.txt", True),
        ({"CMakeLists.txt": "project(x)\nenable_language(CUDA)"}, "CMakeLists.txt", True),
        ({"CMakeLists.txt": "if(USE_CUDA)\nenable_language(CUDA)\nendif()"}, "CMakeLists.txt", False),
        ({"CMakeLists.txt": "project(x CXX)", "k.cu": ""}, "", False),
        ({"CMakeLists.txt": "project(CUDA CXX)"}, "CMakeLists.txt", False),
        ({"CMakeLists.txt": "project(x CXX)", "lib/CMakeLists.txt": "project(y CUDA)"}, "lib/CMakeLists.txt", False),
        ({"setup.py": "setup(ext_modules=[CUDAExtension('x', ['x.cu'])])"}, "setup.py", True),
        ({"setup.py": "if A:\n    setup(ext_modules=[CUDAExtension('x', ['x.cu'])])"}, "setup.py", False),
        ({"setup.py": "run([nvcc, 'x.cu'])", "csrc/x.cu": ""}, "setup.py", False),
        ({"setup.py": "run([nvcc, 'x.cu'])"}, "", False),
        ({"setup.py": "setup()", "csrc/x.cu": ""}, "", False),
        ({"setup.py": "setup()", "tests/x.cu": ""}, "", False),
    ],
)
def test_cuda_is_a_word_of_the_build_files(tmp_path: Path, files: dict[str, str], cuda: str, certain: bool) -> None:
    """A kernel that lies there and that no build file speaks of is nobody's business."""
    found = examined(tmp_path, files).files
    assert (found.cuda, found.cuda_certain) == (cuda, certain)


@pytest.mark.parametrize(
    "files",
    [
        {"CMakeLists.txt": "set(CMAKE_CUDA_HOST_COMPILER /usr/bin/g++-12)"},
        {"CMakeLists.txt": "set(CMAKE_CUDA_FLAGS -allow-unsupported-compiler)"},
        {"setup.py": "flags = ['-ccbin', 'g++-12']"},
        {"cmake/x.cmake": "set(ENV{CUDAHOSTCXX} g++-12)"},
    ],
)
def test_a_project_that_chooses_its_host_compiler_is_known(tmp_path: Path, files: dict[str, str]) -> None:
    """Then the one that nvcc takes by itself is nobody's business."""
    assert examined(tmp_path, files).files.host_compiler == next(iter(files))
    assert examined(tmp_path / "none", {"CMakeLists.txt": "project(x CUDA)"}).files.host_compiler == ""


def test_what_a_build_uses(tmp_path: Path) -> None:
    """torch, cmake and sccache, each with the file that says so."""
    files = examined(tmp_path, {"setup.py": "import os\nimport torch\nx('sccache')\n['cmake', '..']\n"}).files
    assert (files.uses_torch, files.imports_torch, files.uses_sccache, files.uses_cmake) == (
        "setup.py",
        True,
        "setup.py",
        True,
    )
    lazy = examined(tmp_path, {"setup.py": "try:\n    import torch\nexcept ImportError: pass\n"}).files
    assert (lazy.uses_torch, lazy.imports_torch, lazy.uses_cmake) == ("setup.py", False, False)
    # xformers has CMake files that its build never reads.
    assert not examined(tmp_path, {"setup.py": "", "deep/CMakeLists.txt": ""}).files.uses_cmake


@pytest.mark.parametrize(
    ("files", "used"),
    [
        ({"CMakeLists.txt": ""}, True),
        ({"CMakeLists.txt": "", "setup.py": ""}, False),
        ({"CMakeLists.txt": "", "setup.py": "subprocess.run(['cmake', '..'])"}, True),
        ({"CMakeLists.txt": "", "setup.py": "", "pyproject.toml": '[build-system]\nbuild-backend = "mine"\n'}, True),
    ],
)
def test_a_setup_py_that_never_speaks_of_cmake_does_not_run_it(
    tmp_path: Path, files: Mapping[str, str], used: bool
) -> None:
    """The CMakeLists.txt beside it, torch-cluster's, is for another way to build the project."""
    assert examined(tmp_path, files).files.uses_cmake is used
    assert not examined(tmp_path, {"setup.py": "import torchvision\n"}).files.uses_torch


def test_reading_has_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many files, so many bytes; what was not read is said to be so."""
    monkeypatch.setattr(source_files, "MOST_FILES", 3)
    source = examined(tmp_path, {f"d{number}/CMakeLists.txt": "" for number in range(9)})
    assert (source.files.read, source.files.truncated) == (3, True)


def test_a_huge_file_is_read_in_part(tmp_path: Path) -> None:
    """Its beginning counts, and the rest is known to be missing."""
    files = examined(tmp_path, {"CMakeLists.txt": "find_package(Torch)\n" + "\n" * source_files.MOST_BYTES}).files
    assert (files.uses_torch, files.truncated) == ("CMakeLists.txt", True)


def test_odd_things_in_place_of_files_stop_nothing(tmp_path: Path) -> None:
    """A pipe, a folder, a loop of links, a link to nowhere, bytes that are no text."""
    os.mkfifo(tmp_path / "setup.py")
    (tmp_path / "pyproject.toml").mkdir()
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "CMakeLists.txt").symlink_to(tmp_path / "nowhere")
    (tmp_path / ".gitmodules").write_bytes(b'[submodule "\xff"]\npath = \xff\xfe\n\x00')
    source = examined(tmp_path, {})
    assert source.files.read == 0
    assert sorted(os.path.basename(path) for path in source.unread) == ["pyproject.toml", "setup.py"]


@pytest.mark.parametrize("name", ["setup.py", "pyproject.toml", "CMakeLists.txt", ".gitmodules", "x.cmake"])
def test_pipes_and_sockets_are_not_opened(tmp_path: Path, name: str) -> None:
    """To open a pipe waits for its other end; it is said to be unread, where it matters."""
    os.mkfifo(tmp_path / name)
    os.mkfifo(tmp_path / "other.cmake")
    source = examine_source(tmp_path, {})
    assert source.unread == (() if name == "x.cmake" else (str(tmp_path / name),))


def test_many_submodules_in_long_files_take_one_pass(tmp_path: Path) -> None:
    """Each file is gone through once, whatever the number of paths: those that stand behind the bound are not found."""
    paths = {f"3rdparty/a/m{number}" for number in range(200)}
    text = "".join(f"x/3rdparty , m{number} a m{number}\n" for number in range(200)) * 20
    found = first_naming({"x.cmake": text, "y.cmake": "3rdparty/a/m7/"}, {path: [path] for path in paths})
    assert found == {"3rdparty/a/m7": "y.cmake"}
    assert first_naming({"x": text * 4, "y": "3rdparty/a/m7/"}, {path: [path] for path in paths}) == {}


def test_a_missing_folder_gives_an_empty_answer(tmp_path: Path) -> None:
    """Whoever asks for it finds out elsewhere."""
    source = examine_source(tmp_path / "gone", {})
    assert (source.python, source.cmake, source.submodules, source.build_folders) == (False, False, (), ())


def cache(folder: Path, *, here: Path | None = None, **entries: str) -> str:
    """A CMakeCache.txt as CMake writes it, for a build folder at ``here`` of a project at ``folder``."""
    lines = [f"CMAKE_{name}:FILEPATH={value}" for name, value in entries.items()]
    lines += [f"CMAKE_CACHEFILE_DIR:INTERNAL={here or folder / 'build'}", f"CMAKE_HOME_DIRECTORY:INTERNAL={folder}"]
    return "# This is the CMakeCache file.\n//comment\n\n" + "\n".join(lines) + "\n"


def only(source: Source) -> BuildFolder:
    assert len(source.build_folders) == 1
    return source.build_folders[0]


def test_a_cmake_cache_is_read(tmp_path: Path) -> None:
    """Architectures, compilers, ninja, launchers, the version of nvcc, and the log's version."""
    text = cache(
        tmp_path,
        CUDA_ARCHITECTURES="90;100a",
        CUDA_COMPILER=f"{tmp_path}/nvcc",
        CXX_COMPILER="/gone/g++",
        MAKE_PROGRAM="/gone/ninja",
        GENERATOR="Ninja",
        CXX_COMPILER_LAUNCHER="sccache",
    )
    found = only(
        examined(
            tmp_path,
            {
                "nvcc": "",
                "build/CMakeCache.txt": text,
                "build/.ninja_log": LOG.format(5),
                "build/CMakeFiles/3.25.1/CMakeCUDACompiler.cmake": 'set(CMAKE_CUDA_COMPILER_VERSION "13.0.88")\n',
            },
        )
    )
    assert found == BuildFolder(
        path=f"{tmp_path}/build",
        configured=True,
        archs="90;100a",
        cuda_compiler=f"{tmp_path}/nvcc",
        cuda_version="13.0.88",
        cxx_compiler="/gone/g++",
        make_program="/gone/ninja",
        generator="Ninja",
        home=str(tmp_path),
        launchers=(("CMAKE_CXX_COMPILER_LAUNCHER", "sccache"),),
        ninja_log=5,
        gone=("/gone/g++", "/gone/ninja"),
    )


def test_torch_leaves_a_build_ninja_without_a_cache(tmp_path: Path) -> None:
    """Its log counts; an empty log says nothing."""
    place = "build/temp.linux-x86_64-cpython-311"
    files = {f"{place}/build.ninja": "cxx = c++\nnvcc = /gone/bin/nvcc\n", f"{place}/.ninja_log": "# ninja log v7\n"}
    assert examined(tmp_path, files).build_folders == ()
    found = only(examined(tmp_path, {f"{place}/.ninja_log": LOG.format(7)}))
    assert (found.configured, found.ninja_log, found.cuda_compiler) == (False, 7, "/gone/bin/nvcc")


def test_build_folders_are_found_where_projects_put_them(tmp_path: Path) -> None:
    """build, one below it, _skbuild's, CLion's, and where the environment says."""
    places = ["build", "build/cmake", "_skbuild/linux/cmake-build", "cmake-build-debug", "elsewhere"]
    files = {f"{place}/CMakeCache.txt": cache(tmp_path, here=tmp_path / place) for place in places}
    source = examined(tmp_path, files, {"NVTE_CMAKE_BUILD_DIR": f"{tmp_path}/elsewhere"})
    assert {folder.path for folder in source.build_folders} == {f"{tmp_path}/{place}" for place in places}
    assert not any(folder.moved_from for folder in source.build_folders)


def test_a_copied_tree_is_seen_as_moved(tmp_path: Path) -> None:
    """CMake compares the folder that it wrote down; the same place through a link is the same."""
    (tmp_path / "link").symlink_to(tmp_path)
    there = cache(tmp_path, here=tmp_path / "link" / "build")
    assert only(examined(tmp_path, {"build/CMakeCache.txt": there})).moved_from == ""
    copied = cache(tmp_path, here=Path("/old/build"))
    assert only(examined(tmp_path, {"build/CMakeCache.txt": copied})).moved_from == "/old/build"
    other = cache(Path("/old/source"), here=tmp_path / "build")
    assert only(examined(tmp_path, {"build/CMakeCache.txt": other})).moved_from == "/old/source"


def test_a_folder_configured_for_other_sources_is_known(tmp_path: Path) -> None:
    """Sources that are there, but not this project's; the same ones through a link are this project's."""
    lists = {"CMakeLists.txt": "", "cm/CMakeLists.txt": ""}
    (tmp_path / "link").symlink_to(tmp_path)
    for home, other in (("cm", f"{tmp_path}/cm"), ("", ""), ("link", "")):
        text = cache(tmp_path / home, here=tmp_path / "build")
        assert only(examined(tmp_path, {**lists, "build/CMakeCache.txt": text})).other_source == other


def test_a_cache_that_settles_host_compiler_or_policies_is_known(tmp_path: Path) -> None:
    """From an earlier `cmake -D`."""
    text = cache(tmp_path, CUDA_HOST_COMPILER="/usr/bin/g++-12", POLICY_VERSION_MINIMUM="3.5")
    found = only(examined(tmp_path, {"build/CMakeCache.txt": text}))
    assert (found.host_compiler, found.policy_minimum) == ("/usr/bin/g++-12", "3.5")
    text = cache(tmp_path, CUDA_FLAGS="-O3 -allow-unsupported-compiler")
    assert "allow" in only(examined(tmp_path, {"build/CMakeCache.txt": text})).host_compiler


def test_gates_of_ours_are_known_there_or_gone(tmp_path: Path) -> None:
    """By the mark in their folder, and by their path when that is deleted."""
    overlay = tmp_path / "mine"
    files = {f"mine/{OVERLAY_MARK}": "", "mine/bin/nvcc": ""}
    gone = "/home/me/.cache/builddoctor/overlays/host-0a1b2c3d/bin/ninja"
    text = cache(tmp_path, CUDA_COMPILER=f"{overlay}/bin/nvcc", MAKE_PROGRAM=gone, CXX_COMPILER="/usr/bin/env")
    found = only(examined(tmp_path, {**files, "build/CMakeCache.txt": text}))
    assert (found.overlays, found.gone) == ((f"{overlay}/bin/nvcc", gone), (gone,))


@pytest.mark.parametrize(
    "text", ["", "CMAKE_HOME_DIRECTORY", "\0" * 4096, "CMAKE_CUDA_COMPILER:FILEPATH=\n", "=" * 9999]
)
def test_a_broken_cache_is_an_empty_one(tmp_path: Path, text: str) -> None:
    """Truncated, binary, of something else."""
    assert only(examined(tmp_path, {"build/CMakeCache.txt": text})).gone == ()


@pytest.mark.parametrize("text", ["", "# ninja log v", "# ninja log v99999\nx", "# ninja log v-1\nx", "v7\n", "\0\0"])
def test_a_broken_log_is_no_log(tmp_path: Path, text: str) -> None:
    """Likewise."""
    assert examined(tmp_path, {"build/.ninja_log": text}).build_folders == ()
