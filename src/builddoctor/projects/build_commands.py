"""Commands as they are typed: does one certainly build the project of the folder that it is started in. Pure.

Covers: ninja, make, cmake, pip, uv, ``python -m pip``, ``python -m build`` and ``python setup.py``, also behind env,
nice, time, stdbuf and nohup. What is not known for certain does not build: a shell's script, a target of its own
(`make submodules`), another project (`pip install numpy`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

_WRAPPERS = {
    "env": frozenset(("-u", "--unset")),
    "nice": frozenset(("-n", "--adjustment")),
    "time": frozenset(("-f", "-o", "--format", "--output")),
    "stdbuf": frozenset(("-i", "-o", "-e", "--input", "--output", "--error")),
    "nohup": frozenset[str](),
}
"""Programs that start what follows, with their options that take a word."""

_ASSIGNMENT = re.compile(r"\A\w+=")
_PYTHON = re.compile(r"\Apython(?:\d(?:\.\d+)?t?)?\Z")
_PIP = re.compile(r"\Apip(?:\d(?:\.\d+)?)?\Z")
_TARGETS = frozenset(("all", "install", "wheel"))
_SETUP_VERBS = frozenset(
    ("build", "build_ext", "build_clib", "install", "develop", "bdist_wheel", "bdist", "bdist_egg", "editable_wheel")
)
_QUESTIONS = frozenset(("--version", "--help", "-h", "-V", "-v", "-n", "--dry-run", "--just-print", "-q", "-t"))
_MAKE_TAKES = frozenset(("-j", "-l", "-k", "-w", "-d", "-o", "-W", "-I"))
_CMAKE_ASKS = ("-E", "-P", "-N", "-L", "--version", "-version", "--help", "-h", "--install", "--open", "--find-package")
_CMAKE_TAKES = frozenset(("-D", "-G", "-A", "-T", "-U", "-C", "--preset", "--toolchain", "--install-prefix"))
_PIP_TAKES = frozenset(
    ("-w", "--wheel-dir", "-c", "--constraint", "-t", "--target", "-i", "--index-url", "--extra-index-url", "-f")
) | frozenset(
    (
        *("--find-links", "--prefix", "--root", "-C", "--config-setting", "--config-settings", "--global-option"),
        *("--build-option", "--log", "--cache-dir", "--python", "-p", "-o", "--out-dir", "--outdir", "--no-binary"),
        "--only-binary",
    )
)


def builds_folder(command: Sequence[str], cwd: str) -> bool:
    """It builds the project in ``cwd``; False when in doubt."""
    words = _unwrapped(list(command))
    if not words:
        return False
    name, args = os.path.basename(words[0]), words[1:]
    if name in ("ninja", "make", "gmake"):
        return _by_make(args, cwd)
    if name == "cmake":
        return _by_cmake(args, cwd)
    if _PIP.match(name):
        return _by_pip(args, cwd)
    if name == "uv":
        return _by_uv(args, cwd)
    return bool(_PYTHON.match(name)) and _by_python(args, cwd)


def _unwrapped(words: list[str]) -> list[str]:
    while words and os.path.basename(words[0]) in _WRAPPERS:
        takes = _WRAPPERS[os.path.basename(words.pop(0))]
        while words and (words[0].startswith("-") or _ASSIGNMENT.match(words[0])):
            option = words.pop(0)
            if option.startswith(("-C", "-S", "--chdir", "--split", "--help", "--version")):
                # Another folder, or another command.
                return []
            if option in takes:
                words[:1] = []
    return words


def _by_make(args: Sequence[str], cwd: str) -> bool:
    skip = False
    for place, word in enumerate(args):
        if skip:
            skip = False
        elif word in ("-C", "--directory"):
            if not _inside(args[place + 1 : place + 2], cwd):
                return False
            skip = True
        elif word.startswith(("-C", "--directory=")):
            if not _inside([word.removeprefix("--directory=").removeprefix("-C")], cwd):
                return False
        elif word in _QUESTIONS - {"-v"} or word.startswith(("-f", "--file", "--makefile")):
            return False
        elif word in _MAKE_TAKES:
            skip = args[place + 1 : place + 2] != [] and args[place + 1].isdigit()
        elif not word.startswith("-") and not _ASSIGNMENT.match(word) and word not in _TARGETS:
            return False
    return True


def _by_cmake(args: Sequence[str], cwd: str) -> bool:
    if not args or any(word.startswith(_CMAKE_ASKS) and not word.startswith("--install-prefix") for word in args):
        return False
    if args[0] == "--build":
        targets = [args[place + 1] for place, word in enumerate(args[:-1]) if word in ("-t", "--target")]
        return _inside(args[1:2], cwd) and all(target in _TARGETS for target in targets)
    folders: list[str] = []
    sources: list[str] = []
    skip = ""
    for word in args:
        if skip:
            sources += [word] if skip == "-S" else []
            folders += [word] if skip == "-B" else []
            skip = ""
        elif word in ("-S", "-B") or word in _CMAKE_TAKES:
            skip = word
        elif word.startswith("-S"):
            sources.append(word[2:])
        elif word.startswith("-B"):
            folders.append(word[2:])
        elif not word.startswith("-"):
            sources.append(word)
    if sources:
        return all(_is_here(source, cwd) for source in sources)
    return bool(folders)


def _by_pip(args: Sequence[str], cwd: str) -> bool:
    words = _verb(args)
    if not words or words[0] not in ("install", "wheel") or {"-h", "--help", "--dry-run"} & set(words):
        return False
    skip = False
    for word in words[1:]:
        if skip:
            skip = False
        elif word in _PIP_TAKES:
            skip = True
        elif not word.startswith("-") and _is_here(re.sub(r"\[[^\]]*\]\Z", "", word), cwd):
            return True
        elif word.startswith(("-e.", "--editable=.")):
            return _is_here(word.removeprefix("--editable=").removeprefix("-e"), cwd)
    return False


def _by_uv(args: Sequence[str], cwd: str) -> bool:
    words = _verb(args)
    if words[:1] == ["pip"]:
        return _by_pip(words[1:], cwd)
    return words[:1] == ["build"] and _by_build(words[1:], cwd)


def _by_python(args: Sequence[str], cwd: str) -> bool:
    rest = list(args)
    while rest and rest[0].startswith("-") and rest[0] != "-m":
        option = rest.pop(0)
        if option in ("-c", "-h", "--help", "-V", "--version"):
            return False
        if option in ("-X", "-W"):
            rest[:1] = []
    if rest[:1] == ["-m"]:
        if rest[1:2] == ["pip"]:
            return _by_pip(rest[2:], cwd)
        return rest[1:2] == ["build"] and _by_build(rest[2:], cwd)
    if not rest or os.path.basename(rest[0]) != "setup.py" or not _is_here(os.path.dirname(rest[0]) or ".", cwd):
        return False
    return bool(_SETUP_VERBS & set(rest[1:])) and not {"--help", "-h", "clean"} & set(rest[1:])


def _by_build(args: Sequence[str], cwd: str) -> bool:
    """`python -m build` and `uv build`: a wheel, or a source distribution alone, which needs less."""
    if {"-h", "--help", "--version", "-V", "-s", "--sdist", "--package", "--all-packages"} & set(args):
        return False
    named, skip = list[str](), False
    for word in args:
        if not skip and not word.startswith("-"):
            named.append(word)
        skip = word in _PIP_TAKES
    return all(_is_here(word, cwd) for word in named)


def _verb(args: Sequence[str]) -> list[str]:
    """From the first word on that is no option."""
    return next((list(args[place:]) for place, word in enumerate(args) if not word.startswith("-")), [])


def _is_here(folder: str, cwd: str) -> bool:
    looks_like_a_path = folder in (".", "./") or "/" in folder or folder == ".."
    return looks_like_a_path and os.path.normpath(os.path.join(cwd, folder)) == os.path.normpath(cwd)


def _inside(folders: Sequence[str], cwd: str) -> bool:
    """Below ``cwd``, or ``cwd`` itself."""
    top = os.path.normpath(cwd)
    return bool(folders) and f"{os.path.normpath(os.path.join(cwd, folders[0]))}/".startswith(f"{top}/")
