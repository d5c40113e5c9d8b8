"""Which nvcc a Makefile calls by its own path: the one above ``$(CUDA_HOME)/bin/nvcc``, where it is a certain one.

Covers: the makefiles that make reads in its folder, or else those below it; variables of these files, of make's own
arguments and of the environment, as make ranks them.
Does *not* cover: what make computes (``$(shell …)``, conditionals), folders that CMake wrote (``gates.fronts``).

Nothing is run: asking make (``-n``, ``-p``) makes the files that it includes, and some Makefiles compile for that.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path

from builddoctor.system.source_files import text_of
from builddoctor.toolchain.discover import is_overlay

_NAMES = ("GNUmakefile", "makefile", "Makefile")
_WORD = r"(?:[\w./+@~-]|\$\([\w.-]+\)|\$\{[\w.-]+\})"
_NVCC = re.compile(rf"(?:/|\$\([\w.-]+\)|\$\{{[\w.-]+\}}){_WORD}*(?<![\w.-])nvcc(?![\w./-])")
_SET = re.compile(
    r"^[ \t]*(?:(?:export|override)[ \t]+)*(?P<name>[\w.-]+)[ \t]*(?P<how>:{0,3}=|\?=)[ \t]*(?P<value>[^#\n]*)",
    re.MULTILINE,
)
_USED = re.compile(r"\$\((?P<round>[\w.-]+)\)|\$\{(?P<curly>[\w.-]+)\}")
_INCLUDED = re.compile(r"^[ \t]*(?:-|s)?include[ \t]+(?P<files>[^#\n]+)", re.MULTILINE)
_LOOKED_FOR = re.compile(r"\$[({]wildcard\s(?:[^(){}\n]|\$\([\w.-]+\)|\$\{[\w.-]+\})*[)}]")
_SCCACHE = re.compile(r"\bsccache\b[^\n]*nvcc")
_ARGUMENT = re.compile(r"(?P<name>[\w.-]+):{0,3}=(?P<value>.*)", re.DOTALL)
_LONGEST_WORD = 1024
_MOST_READ_BYTES = 256 * 1024
_MOST_FILES = 64
_MOST_FOLDERS = 256
_LEVELS = 2
"""below make's folder: NCCL's top Makefile has all in ``src`` and ``makefiles``"""
_MOST_VALUES = 16
_MOST_STEPS = 8
_MOST_INCLUDED = 256
"""by one file"""


def nvcc_by_path(argv: Sequence[str], folder: Path, env: Mapping[str, str]) -> Path | None:
    """The one nvcc that a make with these arguments calls there by its own path. None: by name, one of ours, one of
    several, or none that is there. None also behind sccache (``fronts.configured_nvcc``)."""
    said = {match["name"]: match["value"].strip() for word in argv if (match := _ARGUMENT.fullmatch(word))}
    own = _Makefiles(said, env)
    own.read(_named(argv, folder), folder)
    if not own.texts:
        return None
    found = own.nvccs()
    if not found:
        below = _Makefiles(said, env)
        below.read(_below(folder), None)
        found = below.nvccs()
    return found[0] if len({os.path.realpath(each) for each in found}) == 1 else None


class _Makefiles:
    """Makefiles, and what their variables may be: make's arguments come before its files, those before the environment,
    and that before what is only set where nothing is (``?=``)."""

    def __init__(self, said: Mapping[str, str], env: Mapping[str, str]) -> None:
        self.texts: list[str] = []
        self._said, self._env = said, env
        self._set: dict[str, list[str]] = {}
        self._if_not_set: dict[str, list[str]] = {}

    def read(self, files: Sequence[Path], make_folder: Path | None) -> None:
        """These files and what they include. ``make_folder``: what they include lies from there; None: from each."""
        seen: set[str] = set()
        waiting = list(files)
        while waiting and len(seen) < _MOST_FILES:
            file = waiting.pop(0)
            place = os.path.normpath(file)
            if place in seen or not (text := text_of(file, _MOST_READ_BYTES)):
                continue
            seen.add(place)
            self.texts.append(text)
            for match in _SET.finditer(text):
                kept = self._if_not_set if match["how"] == "?=" else self._set
                kept.setdefault(match["name"], []).append(match["value"].strip(" \t\r\"'"))
            # By what is set so far, as make does it.
            named = (each for match in _INCLUDED.finditer(text) for each in match["files"].split())
            included = islice((path for each in named for path in self._expanded(each)), _MOST_INCLUDED)
            waiting += (Path(make_folder or file.parent, path) for path in included)

    def nvccs(self) -> list[Path]:
        """Those that they call by a path, and that are there."""
        if any(map(_SCCACHE.search, (*self.texts, *self._said.values()))):
            return []
        # `make NVCC=/usr/local/cuda/bin/nvcc` leaves nothing to look for.
        called = _called(self._said.values()) or _called(self.texts)
        paths = sorted({path for each in called for path in self._expanded(each)})
        return [Path(path) for path in paths if path[:1] == "/" and os.path.isfile(path) and not is_overlay(Path(path))]

    def _expanded(self, text: str) -> list[str]:
        """All that the text may be; empty where a variable has no value, or is its own."""
        texts = [text]
        for _ in range(_MOST_STEPS):
            texts = [each for one in texts for each in self._first_expanded(one)][:_MOST_VALUES]
        return [each for each in texts if not _USED.search(each)]

    def _first_expanded(self, text: str) -> list[str]:
        match = _USED.search(text)
        if match is None:
            return [text]
        return [text[: match.start()] + value + text[match.end() :] for value in self._of(match[1] or match[2])]

    def _of(self, name: str) -> list[str]:
        if name in self._said:
            return [self._said[name]]
        if name in self._set:
            return self._set[name][:_MOST_VALUES]
        return [self._env[name]] if name in self._env else self._if_not_set.get(name, [])[:_MOST_VALUES]


def _called(texts: Iterable[str]) -> set[str]:
    # Word by word: the pattern looks back from each place of a word. What is only looked for is not called.
    texts = (_LOOKED_FOR.sub(" ", text) for text in texts)
    words = {word[:_LONGEST_WORD] for text in texts for word in text.split() if "nvcc" in word}
    return {match[0] for word in words for match in _NVCC.finditer(word)}


def _named(argv: Sequence[str], folder: Path) -> list[Path]:
    """The files that make begins with."""
    named = [argv[at + 1] for at, word in enumerate(argv[:-1]) if word in ("-f", "--file", "--makefile")]
    named += [word[2:] for word in argv if word.startswith("-f") and word != "-f"]
    named += [word.partition("=")[2] for word in argv if word.startswith(("--file=", "--makefile="))]
    usual = (folder / name for name in _NAMES if (folder / name).is_file())
    return [folder / each for each in named] or [*usual][:1]


def _below(folder: Path) -> list[Path]:
    """Other makefiles of the project, the nearest first."""
    found: list[Path] = []
    folders = [folder]
    for _ in range(_LEVELS + 1):
        inner: list[Path] = []
        for each in folders:
            for name, is_folder in _listed(each):
                if is_folder:
                    inner.append(each / name)
                elif name in _NAMES or name.endswith(".mk"):
                    found.append(each / name)
        folders = inner[:_MOST_FOLDERS]
    return found[:_MOST_FILES]


def _listed(folder: Path) -> list[tuple[str, bool]]:
    """Names, and whether each is a folder."""
    try:
        with os.scandir(folder) as entries:
            return sorted((each.name, each.is_dir(follow_symlinks=False)) for each in entries if each.name[0] != ".")
    except OSError:
        return []
