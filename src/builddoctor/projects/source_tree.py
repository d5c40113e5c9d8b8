"""A project's source tree as facts: files are read with bounds, nothing is run, nothing is written, nothing raises.

Covers: what the build files say as text (submodules that they name or fetch, CUDA and its host compiler, torch,
sccache, ``cmake_minimum_required``, ``[build-system]``), submodules, and folders that were built in. What stops a build
has to stand outside of conditions, in the project's own CMakeLists.txt or setup.py; for the rest, what stands under an
``if`` counts as said. Paths of submodules are found as they are, in pieces (``"a" / "b"``, ``join("a", "b")``) and
behind variables. One pass over each text finds the last part of any path, and what stands before it is compared: the
time does not grow with the number of paths.
Does *not* cover: judging what is found (``doctor.source_checks``); other files that the build files read.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from builddoctor.core.project import BuildFiles, Source, Submodule
from builddoctor.projects.cmake import CMakeFacts, first_minimum, read_cmake, without_comments
from builddoctor.projects.configured_folders import build_folders
from builddoctor.projects.git_checkout import checkout_of, submodules_of
from builddoctor.projects.metadata import read_pyproject
from builddoctor.projects.setup_py import UNKNOWN, SetupPy, read_setup
from builddoctor.system.source_files import MOST_BYTES, MOST_BYTES_TOGETHER, build_files, exists, text_of

MOST_PLACES = 500
"""of one word in all files: what stands around it is looked at"""
_BEFORE, _BEHIND = 400, 80

MOST_HITS = 20_000
"""in all texts together: what stands before so many words is looked at"""

_WORD = re.compile(r"[\w.+@~-]+")
_QUOTES = "\"'"
_BLANK = " \t\r\n"
_MOST_BLANKS = 200

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


def examine_source(folder: Path, env: Mapping[str, str]) -> Source:
    """What the folder of a project holds. An empty or missing folder gives an empty answer."""
    folder = Path(os.path.abspath(folder))
    checkout = checkout_of(folder)
    top = checkout if checkout is not None and exists(checkout / ".gitmodules") else folder
    prefix = "" if top == folder else folder.relative_to(top).as_posix()
    files, submodules = _read_build_files(folder, prefix, submodules_of(top))
    watched = ("setup.py", "pyproject.toml", "CMakeLists.txt", ".gitmodules")
    return Source(
        folder=str(folder),
        checkout=str(checkout) if checkout is not None else "",
        python=exists(folder / "setup.py") or exists(folder / "pyproject.toml"),
        cmake=exists(folder / "CMakeLists.txt"),
        submodules=submodules,
        files=files,
        build_folders=tuple(build_folders(folder, env)),
        unread=tuple(
            str(folder / name) for name in watched if exists(folder / name) and text_of(folder / name, 1) is None
        ),
    )


def _read_build_files(
    folder: Path, prefix: str, submodules: Sequence[Submodule]
) -> tuple[BuildFiles, tuple[Submodule, ...]]:
    """What they say, and ``submodules`` with the first build file that names each.

    ``prefix``: the folder's own path from the top of its checkout, empty when it is the top.
    """
    inside = {below(module.path, prefix) for module in submodules} - {None}
    found = build_files(folder, {path for path in inside if path})
    raw, truncated = _texts(folder, found.paths)
    texts = {path: _without_comments(path, text) for path, text in raw.items()}
    pyproject = read_pyproject(raw.get("pyproject.toml", ""))
    backend, requires = pyproject.backend, pyproject.requires
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
        imports_torch=setup.imports_torch,
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
    """The build runs cmake. A CMakeLists.txt deep in the tree says nothing: xformers has some that are never read; nor
    does one at its top beside a setup.py of which no part speaks of cmake (torch-cluster's is for its C++ library)."""
    if backend.startswith(("scikit_build", "skbuild")):
        return True
    if "CMakeLists.txt" in texts:
        by_setup = "setup.py" in texts and (not backend or backend.startswith("setuptools"))
        if not by_setup or any("cmake" in text.lower() for file, text in texts.items() if file.endswith(".py")):
            return True
    setup = re.search(r"""["'](?:cmake|-DCMAKE_)|\bCMAKE_|cmake_bin|CMakeExtension""", texts.get("setup.py", ""))
    return setup is not None or any(re.match(r"(?:cmake|scikit-build)\b", text) for text in requires)


def _first(texts: Mapping[str, str], pattern: re.Pattern[str]) -> str:
    return next((file for file, text in texts.items() if pattern.search(text)), "")


def first_naming(
    texts: Mapping[str, str], spellings: Mapping[str, Iterable[str]], *, prefix: str = ""
) -> dict[str, str]:
    """For each key of ``spellings`` the first of the ``texts`` (by their paths) that names one of its spellings.

    A spelling also counts as seen from where the file stands; ``prefix``: the path of the texts' own folder.
    """
    by_last: dict[str, list[str]] = {}
    odd: list[str] = []
    for key, paths in spellings.items():
        for last in {path.rpartition("/")[2] for path in paths}:
            if _WORD.fullmatch(last) and not last.endswith("."):
                by_last.setdefault(last, []).append(key)
            else:
                odd.append(key)
    found: dict[str, str] = {}
    left = MOST_HITS
    for file, text in texts.items():
        here = "/".join(filter(None, (prefix, *file.split("/")[:-1])))
        spelled = {key: _seen_from(here, paths) for key, paths in spellings.items() if key not in found}
        found |= {key: file for key in odd if any(_holds(text, path) for path in spelled.get(key, ()))}
        for key, end in _ends(text, by_last):
            if key in found:
                continue
            left -= 1
            if left < 0:
                return found
            if any(_named_at(text, end, path.split("/")) for path in spelled[key]):
                found[key] = file
    return found


def _ends(text: str, by_last: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, int]]:
    """(key, where the word ends) for each word that is the last part of one of its paths."""
    for word in _WORD.finditer(text) if by_last else ():
        last = word[0].rstrip(".")
        for key in by_last.get(last, ()):
            yield key, word.start() + len(last)


def leads_to(written: str, path: str, prefix: str, unknown: re.Pattern[str]) -> bool:
    """``written``, as a file in the folder at ``prefix`` says it, is ``path`` or lies below it, for certain.

    ``unknown``: what stands for a variable; before the path it is taken for the folder, or the top of the checkout.
    """
    parts = re.sub(r"/+", "/", written).split("/")
    count, behind_variable = 0, False
    while count < len(parts) and (parts[count] in ("", ".", "..") or unknown.search(parts[count])):
        behind_variable = behind_variable or bool(unknown.search(parts[count]))
        count += 1
    ups = [part for part in parts[:count] if part == ".."]
    rest = "/".join([*ups, *parts[count:]])
    if not parts[count:] or ("/" not in path and count == 0 and len(parts) < 2):
        return False
    places = {posixpath.normpath(posixpath.join(prefix, rest))}
    if behind_variable and not ups:
        places.add(posixpath.normpath(rest))
    return any(place == path or place.startswith(f"{path}/") for place in places)


def below(path: str, prefix: str) -> str | None:
    """``path`` as seen from ``prefix``; None when it is not below."""
    if not prefix:
        return path
    return path[len(prefix) + 1 :] if path.startswith(f"{prefix}/") else None


def _seen_from(here: str, paths: Iterable[str]) -> set[str]:
    listed = list(paths)
    return {*listed, *(seen for path in listed if (seen := below(path, here)))}


def _holds(text: str, path: str) -> bool:
    """As it is, for a path that ends in no word."""
    place = text.find(path)
    if place < 0:
        return False
    end = place + len(path)
    if "/" not in path:
        return _looks_like_a_path(text, place, end)
    return not re.match(r"[\w-]", text[end : end + 1]) and not re.match(r"[\w.-]", text[max(0, place - 1) : place])


def _named_at(text: str, end: int, parts: Sequence[str]) -> bool:
    """The last part ends at ``end``: the others stand before it."""
    start = end - len(parts[-1])
    if text[start:end] != parts[-1] or re.match(r"[\w-]", text[end : end + 1]):
        return False
    if len(parts) == 1:
        return _looks_like_a_path(text, start, end)
    for part in reversed(parts[:-1]):
        before = _before_separator(text, start)
        if before is None or not text.endswith(part, 0, before):
            return False
        start = before - len(part)
    return start == 0 or re.match(r"[\w.-]", text[start - 1]) is None


def _before_separator(text: str, place: int) -> int | None:
    """Where the part before this one ends: a slash or a comma between them, with quotes and blanks; else None."""
    place = _skip(text, place, _QUOTES, 1)
    place = _skip(text, place, _BLANK, _MOST_BLANKS)
    if place == 0 or text[place - 1] not in "/,":
        return None
    place = _skip(text, place - 1, _BLANK, _MOST_BLANKS)
    return _skip(text, place, _QUOTES, 1)


def _skip(text: str, place: int, what: str, most: int) -> int:
    stop = max(0, place - most)
    while place > stop and text[place - 1] in what:
        place -= 1
    return place


def _looks_like_a_path(text: str, start: int, end: int) -> bool:
    """One word says little by itself."""
    before, after = text[max(0, start - 1) : start], text[end : end + 2]
    if before and before in "/\"'" and after[:1] and after[0] in "/\"'":
        return True
    if re.match(r"/[\w.]", after) and not re.match(r"[\w.-]", before):
        return True
    opened = re.search(r"add_subdirectory\(\s*\Z", text[max(0, start - 60) : start])
    return opened is not None and re.match(r"[)\s]", after) is not None
