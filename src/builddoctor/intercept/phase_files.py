"""Files in a phase's command line: what it reads, what it writes, and the same command beside copies of them. Pure.

Covers: cudafe++, cicc, ptxas, fatbinary, gcc's inner compilers (cc1, cc1plus), and roughly any other. Of linkers
(collect2, ld, nvlink) no input is copied: their objects are the build's.
Does *not* cover: looking at files (``intercept.phase_inputs``): whether a word names one is asked for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

LINKERS = frozenset(("collect2", "ld", "nvlink", "lto1"))
INNER_COMPILERS = frozenset(("cc1", "cc1plus"))

_TEMPORARY = re.compile(r"tmpxft_[0-9a-f]+_[0-9a-f]+-\d+_(?=.)")
"""How nvcc begins the names of its temporary files."""

_WRITTEN = frozenset(
    (
        "-o",
        "--output-file",
        "--gen_c_file_name",
        "--gen_device_file_name",
        "--stub_file_name",
        "--embedded-fatbin",
        "--include_file_name",
        "-MF",
    )
)
_NAMES = frozenset(
    ("--orig_src_file_name", "--orig_src_path_name", "-dumpbase", "-dumpdir", "-dumpbase-ext", "-auxbase", "-MT", "-MQ")
)
"""Followed by a name that is not opened, or not as a file."""

_OF_INCLUDES = frozenset(
    (
        *("-I", "-isystem", "-iquote", "-idirafter", "-imultiarch", "-isysroot", "-iprefix", "-iwithprefix"),
        *("-iwithprefixbefore", "-include", "-imacros", "-D", "-U", "-A", "-dumpbase", "-dumpdir", "-dumpbase-ext"),
        *("-auxbase", "-auxbase-strip", "-MF", "-MT", "-MQ", "-MD", "-MMD"),
    )
)
"""Options of cc1plus that have a word of their own, and say nothing once the source is preprocessed. The inner
compilers take the file of ``-MD`` as the next word; drivers do not."""

_ALONE = ("-MP", "-MG", "-M", "-MM", "-fpch-preprocess", "-v", "-version")
_ATTACHED = ("-I", "-D", "-U", "-isystem", "-iquote", "-idirafter", "-include")


def short_name(path: str) -> str:
    """``/tmp/tmpxft_00005389_00000000-8_gelu.cpp1.ii`` is ``gelu.cpp1.ii``."""
    return _TEMPORARY.sub("", os.path.basename(path)) or "input"


def input_paths(name: str, argv: Sequence[str], is_file: Callable[[str], bool]) -> list[str]:
    """What the program ``name`` reads, as its command line calls it. ``is_file``: a word that names one there is."""
    if name in LINKERS:
        return []
    found: list[str] = []
    for path in _read_words(name, argv):
        if path not in found and not path.endswith((".so", "/")) and is_file(path):
            found.append(path)
    return found


def source_path(name: str, argv: Sequence[str], is_file: Callable[[str], bool]) -> str:
    """The one source of an inner compiler of gcc; empty when there is none, or more than one."""
    sources = [path for path in _plain_words(argv) if is_file(path)] if name in INNER_COMPILERS else []
    return sources[0] if len(sources) == 1 else ""


def preprocesses(argv: Sequence[str]) -> bool:
    """It only preprocesses: what it takes is the source and every header."""
    return "-E" in argv


def preprocessing(argv: Sequence[str], output: str) -> list[str]:
    """The arguments with which an inner compiler writes its preprocessed source to ``output``."""
    words: list[str] = []
    skip = False
    for word in argv:
        if skip:
            skip = False
        elif word in ("-o", "-MF", "-MT", "-MQ", "-MD", "-MMD"):
            skip = True
        elif word not in ("-version", "-MP", "-MG"):
            words.append(word)
    return ["-E", *words, "-o", output]


def beside(
    argv: Sequence[str], names: Mapping[str, str], *, preprocessed: bool = False, elsewhere: str = ""
) -> list[str]:
    """The command as it runs in a folder with copies. ``names``: of each input path, its copy's.

    What it writes goes into that folder too. ``preprocessed``: an inner compiler's source is, and needs no headers.
    ``elsewhere``: the folder in which its other files are, where it needs some.
    """
    local = dict(names)
    taken = set(names.values())
    for option, value in _valued(argv):
        if value not in local and (option in _WRITTEN or option in _NAMES or option == "--module_id_file_name"):
            name_here = value if value in ("-", "/dev/null") else short_name(value)
            local[value] = f"out-{name_here}" if option in _WRITTEN and name_here in taken else name_here
    words = [_renamed(word, local) for word in argv]
    if elsewhere:
        same = zip(words, argv, strict=True)
        words = [_absolute(word, elsewhere) if word == before else word for word, before in same]
    if preprocessed:
        words = _without_includes(words)
        place = words.index("-o") if "-o" in words[:-1] else None
        if place is not None and words[place + 1] not in ("-", "/dev/null"):
            words[place + 1] = "out.s"
        words = ["-fpreprocessed", *words, *([] if place is not None else ["-o", "/dev/null"])]
    return words


def _renamed(word: str, local: Mapping[str, str]) -> str:
    if word in local:
        return local[word]
    head, equals, value = word.rpartition("=")
    # As in --image3=kind=elf,sm=90,file=/tmp/a.cubin.
    return f"{head}{equals}{local[value]}" if equals and value in local else word


def _absolute(word: str, folder: str) -> str:
    """A relative path, or one behind -I or -L, below ``folder``."""
    for option in ("-I", "-L"):
        if word.startswith(option) and len(word) > len(option):
            return option + os.path.normpath(os.path.join(folder, word[len(option) :]))
    relative = not word.startswith("-") and ("/" in word or word.endswith((".o", ".a", ".so", ".cubin")))
    return os.path.normpath(os.path.join(folder, word)) if relative else word


def _without_includes(argv: Sequence[str]) -> list[str]:
    words: list[str] = []
    skip = False
    for word in argv:
        if skip:
            skip = False
        elif word in _OF_INCLUDES:
            skip = True
        elif word not in _ALONE and not word.startswith(_ATTACHED):
            words.append(word)
    return words


def _valued(argv: Sequence[str]) -> Iterator[tuple[str, str]]:
    for index, word in enumerate(argv):
        if word in _WRITTEN or word in _NAMES or word == "--module_id_file_name":
            if index + 1 < len(argv):
                yield word, argv[index + 1]
        elif word.startswith("--") and "=" in word:
            option, _, value = word.partition("=")
            yield option, value


def _read_words(name: str, argv: Sequence[str]) -> Iterator[str]:
    """Words, and ends of words, that may name a file that is read."""
    previous = ""
    # cudafe++ writes the module's id, cicc reads it.
    writes_id = "--gen_module_id_file" in argv
    inner = name in INNER_COMPILERS
    for word in argv:
        option, previous = previous, word
        if option in _WRITTEN or option in _NAMES or (inner and option in ("-MD", "-MMD")):
            continue
        if option == "--module_id_file_name" and writes_id:
            continue
        if not word.startswith("-"):
            yield word
        elif "=" in word and word.partition("=")[0] not in _WRITTEN:
            yield word.rpartition("=")[2]


def _plain_words(argv: Sequence[str]) -> Iterator[str]:
    """Words of an inner compiler's command line that are no options, nor their values."""
    skip = False
    for word in argv:
        if skip:
            skip = False
        elif word in _OF_INCLUDES or word in ("-o", "-x", "-quiet"):
            skip = word != "-quiet"
        elif not word.startswith("-"):
            yield word
