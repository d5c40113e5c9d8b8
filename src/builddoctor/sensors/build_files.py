"""What a project's build files say, as text: nothing in them is run, and TOML and CMake are read by pattern.

Covers: which submodules they name, whether they fetch them themselves, torch, sccache, ``cmake_minimum_required``,
``[build-system]``. Does *not* cover: conditions: what stands under an ``if`` counts as said.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from builddoctor.model.source import BuildFiles, Submodule
from builddoctor.sensors.source_files import MOST_BYTES, MOST_BYTES_TOGETHER, build_files, text_of

MOST_REQUIRES = 100

_HASH_COMMENT = re.compile(r"(?m)^[ \t]*#.*$")
_SELF_FETCH = re.compile(
    r"""["']git["']\s*,[^\]\n]{0,120}?["']submodule["']\s*,\s*["']update["']"""
    r"""|(?:system|run|call|check_call|check_output|Popen)\(\s*f?["']+git (?:-C \S+ )?submodule update"""
    r"""|COMMAND\s+"?(?:git|\$\{GIT_EXECUTABLE\})"?\s+"?submodule"?\s+"?update"""
)
_TORCH = re.compile(
    r"""^[ \t]*(?:from|import)[ \t]+torch\b|torch\.utils\.cpp_extension|find_package\(\s*Torch\b""", re.MULTILINE
)
_TORCH_AT_TOP = re.compile(r"^(?:from|import)[ \t]+torch\b", re.MULTILINE)
_CMAKE_MINIMUM = re.compile(r"(?i)\bcmake_minimum_required\s*\(\s*VERSION\s+(?P<version>[\d.]+)")
_BUILD_SYSTEM = re.compile(r"^\[build-system\][ \t]*(?:#.*)?$(?P<body>.*?)(?=^\[|\Z)", re.MULTILINE | re.DOTALL)
_BACKEND = re.compile(r"""^build-backend\s*=\s*["'](?P<name>[\w.:]+)["']""", re.MULTILINE)
_BACKEND_PATH = re.compile(r"^backend-path\s*=", re.MULTILINE)
_REQUIRES = re.compile(r"^requires\s*=\s*\[", re.MULTILINE)
_IN_LIST = re.compile(r""""(?P<double>[^"\n]*)"|'(?P<single>[^'\n]*)'|#[^\n]*|(?P<end>\])""")
_BETWEEN = r"""["']?\s*[/,]\s*["']?"""


def read_build_files(
    folder: Path, prefix: str, submodules: Sequence[Submodule]
) -> tuple[BuildFiles, tuple[Submodule, ...]]:
    """What they say, and ``submodules`` with the first build file that names each.

    ``prefix``: the folder's own path from the top of its checkout, empty when it is the top.
    """
    inside = {_below(module.path, prefix) for module in submodules} - {None}
    found = build_files(folder, {path for path in inside if path})
    texts, truncated = _texts(folder, found.paths)
    backend, requires = parse_build_system(texts.get("pyproject.toml", ""))
    facts = BuildFiles(
        read=len(texts),
        truncated=truncated or found.truncated,
        backend=backend,
        requires=requires,
        cmake_minimum=_cmake_minimum(texts),
        uses_torch=_first(texts, _TORCH),
        imports_torch=bool(_TORCH_AT_TOP.search(texts.get("setup.py", ""))),
        fetches_submodules=_first(texts, _SELF_FETCH),
        uses_cmake=_uses_cmake(texts, backend, requires),
        uses_sccache=_first(texts, re.compile(r"\bsccache\b")),
    )
    named = [
        module if module.present else msgspec.structs.replace(module, named_in=_names(texts, module.path, prefix))
        for module in submodules
    ]
    return facts, tuple(named)


def _texts(folder: Path, paths: Sequence[str]) -> tuple[dict[str, str], bool]:
    """Path to text without comments, and whether some of it was too long to be read."""
    texts: dict[str, str] = {}
    left, truncated = MOST_BYTES_TOGETHER, False
    for path in paths:
        text = text_of(folder / path, min(left, MOST_BYTES))
        if text is not None:
            left = max(0, left - len(text))
            truncated = truncated or len(text) >= MOST_BYTES or not left
            texts[path] = _HASH_COMMENT.sub("", text)
    return texts, truncated


def parse_build_system(pyproject: str) -> tuple[str, tuple[str, ...]]:
    """``build-backend`` and ``requires`` of a pyproject.toml; empty where it does not say.

    A backend that lies in the project itself (``backend-path``) counts as not said: it cannot be missing.
    """
    section = _BUILD_SYSTEM.search(pyproject)
    if section is None:
        return "", ()
    body = section["body"]
    backend, start = None if _BACKEND_PATH.search(body) else _BACKEND.search(body), _REQUIRES.search(body)
    requires: list[str] = []
    for token in _IN_LIST.finditer(body, start.end()) if start else ():
        if token["end"]:
            break
        requires += [text for text in (token["double"], token["single"]) if text]
    return backend["name"] if backend else "", tuple(requires[:MOST_REQUIRES])


def names_path(text: str, path: str) -> bool:
    """``text`` names the path: as it is, in pieces (``"a" / "b"``, ``join("a", "b")``), or behind a variable."""
    parts = [re.escape(part) for part in path.split("/")]
    if len(parts) > 1:
        return re.search(rf"(?<![\w.-]){_BETWEEN.join(parts)}(?![\w-])", text) is not None
    # One word says little by itself: it has to look like a path or a folder.
    word = parts[0]
    pattern = rf"""[/"']{word}(?=[/"'])|add_subdirectory\(\s*{word}\s*[)\s]|(?<![\w.-]){word}/(?=[\w.])"""
    return re.search(pattern, text) is not None


def _names(texts: Mapping[str, str], path: str, prefix: str) -> str:
    for file, text in texts.items():
        here = "/".join(filter(None, (prefix, *file.split("/")[:-1])))
        if path.rpartition("/")[2] not in text:
            continue
        spellings = {path, _below(path, prefix) or path, _below(path, here) or path}
        if any(names_path(text, spelling) for spelling in spellings):
            return file
    return ""


def _below(path: str, prefix: str) -> str | None:
    """``path`` as seen from ``prefix``; None when it is not below."""
    if not prefix:
        return path
    return path[len(prefix) + 1 :] if path.startswith(f"{prefix}/") else None


def _cmake_minimum(texts: Mapping[str, str]) -> str:
    """Of the outermost CMakeLists.txt; the highest where there are several at one depth."""
    by_depth: dict[int, list[str]] = {}
    for file, text in texts.items():
        match = _CMAKE_MINIMUM.search(text) if file.split("/")[-1] == "CMakeLists.txt" else None
        if match is not None:
            by_depth.setdefault(file.count("/"), []).append(match["version"].strip("."))
    if not by_depth:
        return ""
    return max(by_depth[min(by_depth)], key=_as_numbers)


def _as_numbers(version: str) -> tuple[int, ...]:
    # "3.5...3.29": the first is the minimum.
    return tuple(int(part) for part in version.partition("...")[0].split(".") if part.isdigit() and len(part) < 9)


def _uses_cmake(texts: Mapping[str, str], backend: str, requires: Sequence[str]) -> bool:
    """The build runs cmake. A CMakeLists.txt deep in the tree says nothing: xformers has some that nobody reads."""
    if "CMakeLists.txt" in texts or backend.startswith(("scikit_build", "skbuild")):
        return True
    setup = re.search(r"""["'](?:cmake|-DCMAKE_)|\bCMAKE_|cmake_bin|CMakeExtension""", texts.get("setup.py", ""))
    return setup is not None or any(re.match(r"(?:cmake|scikit-build)\b", text) for text in requires)


def _first(texts: Mapping[str, str], pattern: re.Pattern[str]) -> str:
    return next((file for file, text in texts.items() if pattern.search(text)), "")
