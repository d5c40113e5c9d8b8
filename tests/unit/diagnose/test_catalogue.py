"""The catalogue of texts: every entry finds what it says it finds, and nothing else in the catalogue finds it too."""

from __future__ import annotations

import re

import msgspec
import pytest

from builddoctor.core.verdict import Fix, Verdict, Weight
from builddoctor.diagnose.catalogue import Entry, Layer, check, load_catalogue, load_groups
from builddoctor.diagnose.log_scanner import Scanner
from support.patterns import needs_one_of, runs_away

CATALOGUE = load_catalogue()
BY_NAME = {entry.name: entry for entry in CATALOGUE}

SMALL = Entry(
    name="a-text",
    verdict=Verdict.PARALLEL,
    weight=Weight.SAYS,
    pattern=r"^gone: (?P<what>\w{1,20})",
    triggers=("gone: ",),
    versions="all",
    cause="It went.",
    source="measured",
    example="gone: there",
    group="here",
)

BEFORE = {
    "extension-source-not-here": "gcc -pthread -fPIC -I/usr/lib/torch/include -c src/ops_api.cpp -o ops_api.o\n",
    "setup-reads-no-cuda-version": '    cuda = "".join(os.environ.get("CUDA_VERSION", default).split("."))\n',
    "uv-concludes": "frobnicator==1.2 depends on torchvision>=0.26.0\nand vllm,\n\n",
    "setup-splits-no-flags": "    flag for flag in opt.split() if flag != '-Wstrict-prototypes'\n",
    "no-gpu-while-built": 'File "/x/torch/utils/cpp_extension.py", line 1325, in _get_cuda_arch_flags\n',
    "cmake-package-not-whole": "CMake Error at /home/x/pytorch/build/Caffe2Config.cmake:14 (include):\n",
    "distributions-pip-too-old": '  File "/usr/lib/python3/dist-packages/pip/_vendor/pkg_resources/__init__.py"\n',
    "cmake-of-build-does-not-run": '  File "/tmp/pip-build-env-1/overlay/lib/skbuild/cmaker.py", line 95\n',
    "print-of-python-2": "    print 'Found compiler'\n",
    "pip-download-killed": "  Downloading https://x/torch-2.0.0-cp310-cp310-linux_x86_64.whl (1826.1 MB)\n",
    "torch-not-in-build": '  File "/tmp/pip-build-env-1/overlay/lib/setuptools/build_meta.py", line 317\n',
    "no-gpu-for-torch-of-build": '  File "/tmp/pip-build-env-1/overlay/lib/setuptools/build_meta.py", line 317\n',
    "torch-not-in-uvs-build": '  File "/home/u/.cache/uv/builds-v0/.tmp1/lib/setuptools/build_meta.py", line 331\n',
    "cmake-message-not-found": "CMake Error at CMakeLists.txt:12 (message):\n",
    "cmake-message-asks-for-variable": "CMake Error at CMakeLists.txt:12 (message):\n",
    "cmake-setting-requires-header": "CMake Error at CMakeLists.txt:12 (message):\n",
    "setup-raised": '  File "setup.py", line 16, in parse_keyword\n',
    "program-of-build-ext-missing": "running build_ext\n",
    "cython-file-missing": "building 'tools._mask' extension\n",
    "zig-links-no-libc": "   zig build-exe x Debug native\n",
    "built-part-missing": '  File "/x/setup.py", line 528, in <module>\n',
    "source-package-incomplete": '  File "setup.py", line 352, in get_and_set_info\n',
    "r-loads-undefined-symbol": "error: unable to load shared object '/x/foo.so':\n",
    "build-script-finds-nothing": "a thread panicked at build.rs:71:13:\n",
    "windows-header-in-capitals": "x86_64-w64-mingw32-gcc -c src/opt.c\n",
    "torch-abi-differs-below": "ImportError: /x/roll_cuda.cpython-37m-x86_64-linux-gnu.so:\n",
    "brew-formula-lacks-file": "Error: An exception occurred within a child process:\n",
    "conda-recipe-unparsed": "(Failed to parse recipe)\n",
    "cgo-library-not-built": "ld: /tmp/go-link-1/19.o: in function `_cgo_d85a20fb2d9c_Cfunc_model_quantize':\n",
    "ninja-only-asked-for-its-version": "1.10.2.git.kitware.jobserver-1\n",
    "torch-is-for-cpus-alone": '  File "/x/torch/utils/cpp_extension.py", line 404, in _check_cuda_version\n',
    "package-folder-none": '  File "/usr/lib/python3.9/importlib/_common.py", line 18, in fallback_resources\n',
    "start-file-prints": "g++ -shared -L/opt/lib -o foo.so foo.o Welcome to R!\n",
    "cudarc-knows-no-such-cuda": "(/x/cudarc-0.19.2/build.rs:138:5:\n",
}
"""lines that must stand before others, where it is not a command of nvcc's"""
BELOW = {
    "cuda-driver-wanted-in-build": "\n(said by make: *** [Makefile:12: heron-docs] Error 127)",
    "conda-builds-not-found": "\n  - pyzmq==19.0.2=py39hb69f2a1_2",
    "declared-and-defined-differ": "\n  Hint on symbols that are defined and could potentially match:",
    "cmake-target-of-package-missing": "\n  absl::low_level_hash",
    "library-header-missing": "\n    3 | #include <foo/bar.h>",
    "ld-said": "\n(linker command failed)",
    "zig-imports-no-libc": "\n./x.zig:1:1: note: libc headers not available; compilation does not link against libc",
    "configure-words-broken": "\n(configure: error: for",
    "waf-compiler-missing": "\nThe configuration failed",
    "cmake-template-missing": "\n  configure_file Problem configuring file",
    "torch-type-in-dispatch-broken": '\n"const at::DeprecatedTypeProperties"',
    "windows-command-missing": '\nCommand "clang-cl.exe"',
    "pip-too-old-for-editable": '\n(A "pyproject.toml" file was found, but editable mode currently requires a x.py)',
    "go-too-old-for-option": "\nRun 'go help build' for details.",
    "gem-library-missing": "\n*** extconf.rb failed ***",
    "cmake-module-not-found": "\n(A required package was not found)",
    "emscripten-symbol-undefined": "\nwarning: _popen may need to be added to EXPORTED_FUNCTIONS",
    "r-object-missing": "\n(lazy loading failed)",
    "platformio-script-failed": '\nFile "/x/.platformio/penv/lib/main.py", line 177:',
    "glibc-too-new-for-nvcc": '\n(specification is incompatible with that of previous function "rsqrt"',
    "cuda-arguments-refused": "\n  if (cuCtxCreate_v4(&ctx, 0, device) != CUDA_SUCCESS)",
    "libcudacxx-type-incomplete": "\n  ::cuda::std::tuple<int&> operator()(int3& key) const",
    "windows-macro-is-a-name": "\n  Segment(cudaStream_t s, bool small, size_t sz)",
    "nvcc-drops-typename": "\n  133 |     using RealIdT = typename Reals::ItemIdT;",
    "meson-dependency-too-old": "\n(ERROR: Subproject libplacebo)",
}
"""lines that must stand after others"""

each_group = pytest.mark.parametrize(
    "entries", [entries for _, entries in load_groups()], ids=[title for title, _ in load_groups()]
)
"""a case for each file of texts: each of its hundreds of entries takes less than a case does"""


def found_in(text: str) -> list[str]:
    scanner = Scanner(CATALOGUE)
    scanner.feed(text.encode() + b"\n")
    return [finding.entry for finding in scanner.finish().findings]


def named(name: str) -> Entry:
    return BY_NAME[name]


def test_there_are_as_many_texts_as_promised_and_each_group_has_some() -> None:
    """At least 75, in at least ten groups with a title of their own."""
    groups = load_groups()
    assert sum(len(entries) for _, entries in groups) == len(CATALOGUE) >= 75
    assert len({title for title, _ in groups}) == len(groups) >= 10
    assert all(entries for _, entries in groups)


def found_beside(name: str, line: str) -> list[str]:
    """Entries that find the line where what must stand around it does."""
    before = BEFORE.get(name, "nvcc -c x.cu\n") if named(name).after else ""
    found = found_in(before + line + BELOW.get(name, ""))
    return [each for each in found if each == name or named(each).layer is not Layer.SCRIPT or not before]


@each_group
def test_every_example_is_found_by_its_own_entry_and_no_other(entries: tuple[Entry, ...]) -> None:
    """Two entries for one line would be two causes for one failure."""
    lines = [(entry.name, line) for entry in entries for line in (entry.example, *entry.also)]
    found = [(name, line, found_beside(name, line)) for name, line in lines]
    assert [each for each in found if each[2] != [each[0]]] == []


@each_group
def test_every_entry_can_be_relied_upon(entries: tuple[Entry, ...]) -> None:
    """Its own examples are found, by its triggers as well, and what only looks like it is not."""
    for entry in entries:
        check(entry)


@each_group
def test_a_text_that_a_pattern_finds_holds_one_of_its_triggers(entries: tuple[Entry, ...]) -> None:
    """Proven from the pattern: otherwise a long log would hide what a short one shows."""
    assert [entry.name for entry in entries if not needs_one_of(entry.pattern, entry.triggers)] == []


@each_group
def test_no_pattern_can_run_away(entries: tuple[Entry, ...]) -> None:
    """No repeat without a bound inside another or beside one that takes the same characters."""
    patterns = [(entry.name, each) for entry in entries for each in (entry.pattern, entry.after, entry.below)]
    assert [(name, away) for name, each in patterns if (away := runs_away(each)) is not None] == []


@each_group
def test_an_entry_says_what_a_person_needs(entries: tuple[Entry, ...]) -> None:
    """A cause in one sentence, versions, a source; a fix for all that has a cause."""
    for entry in entries:
        assert entry.cause.endswith("."), entry.name
        assert entry.cause.count(". ") == 0, entry.name
        assert entry.versions, entry.name
        assert entry.source, entry.name
        assert entry.fixes or entry.verdict is None, entry.name
        for fix in entry.fixes:
            assert fix.text, entry.name
            assert fix.text[0].islower(), entry.name
            assert not fix.text.endswith("."), entry.name


@each_group
def test_fixes_that_change_nothing_come_first(entries: tuple[Entry, ...]) -> None:
    """What changes the binary is never advised before what does not, other than where nothing else is left."""
    for entry in entries:
        changes = [fix.changes_binary for fix in entry.fixes]
        if entry.verdict in (Verdict.PARALLEL, Verdict.RLIMIT, Verdict.DISK_FULL, Verdict.SCHEDULER_KILL, Verdict.OOMD):
            assert changes == sorted(changes), entry.name


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"name": "A text"}, "a name is"),
        ({"verdict": None}, "has no verdict"),
        ({"weight": Weight.TRAILS}, "has no verdict"),
        ({"pattern": "^gone: ("}, "no pattern"),
        ({"pattern": "^lost"}, "does not find"),
        ({"pattern": "(?i)^gone: "}, "case is told apart"),
        ({"triggers": ()}, "a trigger is"),
        ({"triggers": ("go",)}, "a trigger is"),
        ({"triggers": ("lost",)}, "no trigger is in"),
        ({"also": ("lost: there",)}, "does not find"),
        ({"unlike": ("gone: away",)}, "its pattern finds"),
    ],
)
def test_an_entry_that_cannot_be_relied_upon_is_refused(changes: dict[str, object], why: str) -> None:
    """Loading says which entry, and why."""
    check(SMALL)
    with pytest.raises(ValueError, match=re.escape("here: ")) as caught:
        check(msgspec.structs.replace(SMALL, **changes))
    assert why in str(caught.value)


@pytest.mark.parametrize(
    "line",
    [
        # Words of sources, options, file names and documents.
        "[3/9] nvcc -c src/oom_killer.cu -o oom_killer.o",
        "tests/test_out_of_memory.py::test_killed PASSED",
        "g++ -Wno-error=deprecated -Werror=return-type -c x.cpp",
        "x.cpp:3:1: warning: 'out of memory' is not handled [-Wunused]",
        "   12 |   throw std::bad_alloc(); // out of memory: Killed",
        "If the build is Killed, the machine ran out of memory: lower MAX_JOBS.",
        "-- Looking for pthread_create in pthreads - not found",
        "-- Could NOT find MPI (missing: MPI_C_FOUND)",
        "-- Check for working CUDA compiler: /usr/local/cuda/bin/nvcc - skipped",
        "Submodule path 'third_party/cutlass': checked out '76c96b0be35cb263debe3e3d8418b80911a544ab'",
        "fatal: not a git repository (or any of the parent directories): .git",
        # What looks like a cause and is none.
        "slurmstepd: error: Step 12.0 hit memory limit at least once during execution. This may or may not",
        "slurmstepd: error: Exceeded job memory limit at some point.",
        "nvcc warning : incompatible redefinition for option 'threads', the last value of this option was used",
        "ptxas info    : Used 240 registers, 576 bytes cmem[0]",
        "ptxas warning : Stack size for entry function cannot be statically determined",
        '            "OOMKilled": false,',
        "earlyoom: mem avail: 21790 of 23909 MiB (91.14%), swap free: 0 of 0 MiB (0.00%)",
        "error_handling.cpp.o",
        "[100%] Built target error",
    ],
)
def test_ordinary_lines_are_in_no_entry(line: str) -> None:
    """Words alone say nothing."""
    assert found_in(line) == []


EACH_FILE = """\
[7/60] /usr/local/cuda/bin/nvcc -forward-unknown-to-host-compiler -I/src/third_party/cutlass/include -isystem \
/usr/lib/python3/dist-packages/torch/include/torch/csrc/api/include -O3 -std=c++17 --generate-code=arch=compute_90,\
code=[compute_90,sm_90] -Xcompiler=-fPIC --threads 4 -MD -x cu -c /src/csrc/a.cu -o CMakeFiles/k.dir/a.cu.o
x86_64-linux-gnu-g++ -pthread -Wno-unused-result -DTORCH_API_INCLUDE_EXTENSION_H -DTORCH_EXTENSION_NAME=_C -DNDEBUG \
-D_GLIBCXX_USE_CXX11_ABI=1 -I/usr/local/cuda/include/ -I/usr/include/python3.11 -O2 -Wall -c csrc/api.cpp -o api.o
/opt/conda/bin/x86_64-conda-linux-gnu-c++ -DONNX_NAMESPACE=onnx -D__CUDA_NO_HALF_OPERATORS__ -c /src/b.cc
[ 12%] Building CUDA object CMakeFiles/k.dir/a.cu.o
[13/60] Building CXX object csrc/CMakeFiles/k.dir/b.cpp.o
/usr/bin/cc -fPIC -O2 -MF a.d -o a.o -c a.c
ptxas info    : Compiling entry function '_Z1kPf' for 'sm_90'
ptxas info    : Used 40 registers, 0 bytes spill stores, 380 bytes cmem[0]
src/a.cu(12): warning #177-D: variable "x" was declared but never referenced
"""
"""What a healthy build prints for each of its files."""


@pytest.mark.parametrize("line", EACH_FILE.splitlines())
def test_what_is_printed_for_each_file_holds_no_trigger(line: str) -> None:
    """Each line with one is taken apart: a trigger in all of nvcc's took a third of the time of a log of 37 MB."""
    assert [(entry.name, trigger) for entry in load_catalogue() for trigger in entry.triggers if trigger in line] == []


def test_a_bare_word_of_the_shell_says_more_after_a_compile_line() -> None:
    """dash prints only Killed: after a line of nvcc's it was a phase of it, otherwise anything."""
    assert found_in("/usr/local/cuda/bin/nvcc -c x.cu -o x.o\nKilled") == ["nvcc-step-killed"]
    assert found_in("./run-tests.sh\nKilled") == ["shell-killed"]
    assert found_in("nvcc -c x.cu\n" + "ok\n" * 9 + "Killed") == ["shell-killed"]


def test_fixes_may_be_shared() -> None:
    """An entry that names another has its fixes."""
    assert named("cudafe-killed").fixes == named("nvcc-phase-killed").fixes != ()
    assert all(isinstance(fix, Fix) for entry in CATALOGUE for fix in entry.fixes)


def test_entries_that_say_the_cause_come_before_those_that_hint_at_it() -> None:
    """The first that finds a line has it."""
    weights = [entry.weight for entry in CATALOGUE]
    assert weights == sorted(weights, key=list(Weight).index)
