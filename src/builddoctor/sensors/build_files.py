"""What a project's build files say, as text: nothing in them is run.

Covers: which submodules they name, whether they fetch them themselves, CUDA and its host compiler, torch, sccache,
``cmake_minimum_required``, ``[build-system]``. What stops a build has to stand outside of conditions, in the project's
own CMakeLists.txt or setup.py; for the rest, what stands under an ``if`` counts as said.
Does *not* cover: other files that these read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from builddoctor.model.source import BuildFiles, Submodule
from builddoctor.sensors.build_system import parse_build_system
from builddoctor.sensors.cmake_facts import CMakeFacts, first_minimum, read_cmake
from builddoctor.sensors.cmake_text import without_comments
from builddoctor.sensors.path_names import below, first_naming, leads_to
from builddoctor.sensors.setup_py import UNKNOWN, SetupPy, read_setup
from builddoctor.sensors.source_files import MOST_BYTES, MOST_BYTES_TOGETHER, build_files, text_of

MOST_PLACES = 500
"""of one word in all files: what stands around it is looked at"""
_BEFORE, _BEHIND = 400, 80

_HASH_COMMENT = re.compile(r"(?m)^[ \t]*#.*$")
_SELF_FETCH = re.compile(
    # ["git", "-C", there, "submodule", "update"], over any number of lines
    r"""["']git["']\s*,[^\]]{0,300}?["']submodule["']\s*,\s*["']update["']"""
    # os.system(f"cd x && git -C {there} submodule update")
    r"""|\b(?:system|popen|run|call|check_call|check_output|Popen|getoutput|getstatusoutput|split|execute\w*)"""
    r"""\(\s*[rbfRBF]{0,2}["']{1,3}(?:[^"'\n]{0,200}?[\s;&(])?git\s(?:[^"'\n]{0,200}?\s)?submodule\s+update"""
    # command = "git submodule update"
    r"""|=\s*[rbfRBF]{0,2}["']{1,3}git\s(?:[^"'\n]{0,200}?\s)?submodule\s+update"""
    # COMMAND ${GIT_EXECUTABLE} -C ${PROJECT_SOURCE_DIR} submodule update
    r"""|\bCOMMAND\s+"?(?:git|\$\{\w*[Gg][Ii][Tt]\w*\})"?\s+(?:[^\s()]+\s+){0,6}?"?submodule"?\s+"?update"""
    # a line of a Makefile
    r"""|^\t[-@+]*(?:[^"'\n]{0,200}?[\s;&])?(?:git|\$[({]GIT[)}])\s(?:[^"'\n]{0,200}?\s)?submodule\s+update""",
    re.MULTILINE,
)
_TORCH = re.compile(
    r"""^[ \t]*(?:from|import)[ \t]+torch\b|torch\.utils\.cpp_extension|find_package\(\s{0,80}Torch\b""", re.MULTILINE
)
_TORCH_AT_TOP = re.compile(r"^(?:from|import)[ \t]+torch\b", re.MULTILINE)
_CUDA_LANGUAGE = re.compile(
    r"(?i)\b(?:project|enable_language|find_package|check_language)\s*\([^()]*\bCUDA\Z|\bcuda_add_\Z"
)
_CUDA_IN_PYTHON = re.compile(r"\bCUDAExtension\b|\bCUDA_Extension\b")
_CUDA_AT_ALL = re.compile(r"(?i)cuda|nvcc")
_HOST_COMPILER = re.compile(
    r"(?i)CUDA_HOST_COMPILER|CUDAHOSTCXX|ccbin\b|compiler-bindir|allow-unsupported|NVCC_PREPEND_FLAGS"
    r"|NVCC_APPEND_FLAGS|CMAKE_TOOLCHAIN_FILE"
)
_SCCACHE = re.compile(r"\bsccache\b")
_CMAKE_VARIABLE = re.compile(r"\$")
_PYTHON_UNKNOWN = re.compile(UNKNOWN)


def read_build_files(
    folder: Path, prefix: str, submodules: Sequence[Submodule]
) -> tuple[BuildFiles, tuple[Submodule, ...]]:
    """What they say, and ``submodules`` with the first build file that names each.

    ``prefix``: the folder's own path from the top of its checkout, empty when it is the top.
    """
    inside = {below(module.path, prefix) for module in submodules} - {None}
    found = build_files(folder, {path for path in inside if path})
    raw, truncated = _texts(folder, found.paths)
    texts = {path: _without_comments(path, text) for path, text in raw.items()}
    backend, requires = parse_build_system(raw.get("pyproject.toml", ""))
    setup, cmake = read_setup(raw.get("setup.py", "")), read_cmake(raw.get("CMakeLists.txt", ""))
    if ("setup.py" in raw or "pyproject.toml" in raw) and not backend.startswith(("scikit_build", "skbuild")):
        # pip may never read it.
        cmake = msgspec.structs.replace(cmake, paths=(), cuda=False)
    minimum = (cmake.minimum, cmake.minimum_certain)
    if "CMakeLists.txt" not in raw:
        minimum = (_outermost_minimum(raw), False)
    facts = BuildFiles(
        read=len(texts),
        truncated=truncated or found.truncated,
        backend=backend,
        requires=requires,
        cmake_minimum=minimum[0],
        cmake_minimum_certain=minimum[1],
        cuda=_cuda(texts, found.cuda_source),
        cuda_certain=setup.cuda_extension or cmake.cuda,
        host_compiler=_first(texts, _HOST_COMPILER),
        uses_torch=_first(texts, _TORCH),
        imports_torch=bool(_TORCH_AT_TOP.search(texts.get("setup.py", ""))),
        fetches_submodules=_fetching(texts),
        uses_cmake=_uses_cmake(texts, backend, requires),
        uses_sccache=_first(texts, _SCCACHE),
    )
    return facts, tuple(_named(submodules, texts, prefix, setup, cmake))


def _texts(folder: Path, paths: Sequence[str]) -> tuple[dict[str, str], bool]:
    """Path to text, and whether some of it was too long to be read."""
    texts: dict[str, str] = {}
    left, truncated = MOST_BYTES_TOGETHER, False
    for path in paths:
        text = text_of(folder / path, min(left, MOST_BYTES))
        if text is not None:
            left = max(0, left - len(text))
            truncated = truncated or len(text) >= MOST_BYTES or not left
            texts[path] = text
    return texts, truncated


def _without_comments(path: str, text: str) -> str:
    if path.endswith((".txt", ".cmake")):
        return without_comments(text)
    return "\n".join(
        _without_trailing(line) if "#" in line else line for line in _HASH_COMMENT.sub("", text).split("\n")
    )


def _without_trailing(line: str) -> str:
    """A ``#`` that no quote follows."""
    place = line.find(" #", max(line.rfind('"'), line.rfind("'")) + 1)
    return line[:place] if place >= 0 else line


def _named(
    submodules: Sequence[Submodule], texts: Mapping[str, str], prefix: str, setup: SetupPy, cmake: CMakeFacts
) -> Iterator[Submodule]:
    # What is there need not be looked for.
    wanted = {module.path: {module.path, below(module.path, prefix) or module.path} for module in submodules}
    wanted = {module.path: wanted[module.path] for module in submodules if not module.present}
    first = first_naming(texts, wanted, prefix=prefix) if wanted else {}
    for module in submodules:
        if module.present:
            yield module
        elif any(leads_to(written, module.path, prefix, _CMAKE_VARIABLE) for written in cmake.paths):
            yield msgspec.structs.replace(module, named_in="CMakeLists.txt", certain=True)
        elif any(leads_to(written, module.path, prefix, _PYTHON_UNKNOWN) for written in setup.paths):
            yield msgspec.structs.replace(module, named_in="setup.py", certain=True)
        else:
            yield msgspec.structs.replace(module, named_in=first.get(module.path, ""))


def _around(texts: Mapping[str, str], word: str, behind: int = _BEHIND) -> Iterator[tuple[str, str]]:
    """(file, text around it) for each place of a word; less of a file that is full of it."""
    left = MOST_PLACES
    for file, text in texts.items():
        place = text.find(word)
        for _ in range(min(left, MOST_PLACES // 5)):
            if place < 0:
                break
            left -= 1
            yield file, text[max(0, place - _BEFORE) : place + len(word) + behind]
            place = text.find(word, place + len(word))


def _fetching(texts: Mapping[str, str]) -> str:
    return next((file for file, text in _around(texts, "submodule") if _SELF_FETCH.search(text)), "")


def _cuda(texts: Mapping[str, str], cuda_source: str) -> str:
    """A file that has CUDA code compiled; where there is such code, one that speaks of CUDA at all."""
    in_python = _first(texts, _CUDA_IN_PYTHON)
    if in_python:
        return in_python
    for word in ("CUDA", "cuda_add_"):
        for file, text in _around(texts, word, 0):
            if _CUDA_LANGUAGE.search(text):
                return file
    return _first(texts, _CUDA_AT_ALL) if cuda_source else ""


def _outermost_minimum(raw: Mapping[str, str]) -> str:
    files = [file for file in raw if file.split("/")[-1] == "CMakeLists.txt"]
    outermost = [file for file in files if file.count("/") == min(each.count("/") for each in files)]
    return first_minimum(minimum for file in outermost if (minimum := read_cmake(raw[file]).minimum))


def _uses_cmake(texts: Mapping[str, str], backend: str, requires: Sequence[str]) -> bool:
    """The build runs cmake. A CMakeLists.txt deep in the tree says nothing: xformers has some that nobody reads."""
    if "CMakeLists.txt" in texts or backend.startswith(("scikit_build", "skbuild")):
        return True
    setup = re.search(r"""["'](?:cmake|-DCMAKE_)|\bCMAKE_|cmake_bin|CMakeExtension""", texts.get("setup.py", ""))
    return setup is not None or any(re.match(r"(?:cmake|scikit-build)\b", text) for text in requires)


def _first(texts: Mapping[str, str], pattern: re.Pattern[str]) -> str:
    return next((file for file, text in texts.items() if pattern.search(text)), "")
