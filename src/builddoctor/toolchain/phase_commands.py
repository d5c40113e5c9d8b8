"""The command of one phase: found among its driver's steps, and written anew beside copies of what it reads. Pure.

Covers: the steps of ``nvcc --dryrun`` and ``gcc -###``, which of them is a phase's and which make its input; files that
a phase reads and writes, for cudafe++, cicc, ptxas, fatbinary, gcc's inner compilers (cc1, cc1plus), and roughly any
other. Of linkers (collect2, ld, nvlink) no input is copied: their objects are the build's.
Does *not* cover: running a step or looking at files (``gates.phase_replay``): whether a word names a file is asked for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from builddoctor.toolchain.command_lines import phase_facts
from builddoctor.toolchain.nvcc import Step, parse_step
from builddoctor.toolchain.options import INNER_COMPILERS, LINKERS, Role, names_of, read_words, role_of, without

_CUDA_TOOLS = frozenset(("cudafe++", "cicc", "ptxas", "fatbinary", "nvlink", "bin2c"))
_NO_FILES = ("-", "/dev/null")
_TEMPORARY = re.compile(r"tmpxft_[0-9a-f]+_[0-9a-f]+-\d+_(?=.)")
"""How nvcc begins the names of its temporary files."""

_DEPENDENCY_ROLES = frozenset((Role.DEPENDENCIES, Role.DEPENDENCY_FILE, Role.DEPENDENCY_TARGET))
_LEFT_OUT_OF_DRIVER = frozenset(
    (*_DEPENDENCY_ROLES, Role.OUTPUT, Role.THREADS, Role.TIMING, Role.KEEP, Role.VERBOSE),
)
_LEFT_OUT_OF_PREPROCESSING = frozenset((*_DEPENDENCY_ROLES, Role.OUTPUT, Role.VERBOSE))
_LEFT_OUT_OF_PREPROCESSED = frozenset(
    (*_DEPENDENCY_ROLES, Role.INCLUDE, Role.PREINCLUDE, Role.MACRO, Role.NAME, Role.VERBOSE)
)
"""They say nothing once the source is preprocessed."""

_PREFIXES_OF_PREPROCESSING = ("-I", "-D", "-U", "-isystem", "-iquote", "-idirafter", "-include")
_WRITTEN = frozenset((Role.OUTPUT, Role.DEPENDENCY_FILE))
_NAMES = frozenset((Role.NAME, Role.DEPENDENCY_TARGET))
_OUTPUT_OPTIONS = names_of(Role.OUTPUT)

# -- a driver's steps --------------------------------------------------------------------------------------------------


def is_nvcc(tool: str) -> bool:
    """The driver is nvcc; all others are taken for a gcc."""
    return os.path.basename(tool) == "nvcc"


def bare_arguments(argv: Sequence[str], *, output: str) -> list[str]:
    """A driver's arguments that write nothing but ``output``: no dependency files, nothing kept or timed."""
    return [*without(argv, _LEFT_OUT_OF_DRIVER), "-o", output]


def parse_inner_steps(text: str) -> tuple[Step, ...]:
    """What ``gcc -###`` printed: its programs on lines that begin with a blank."""
    lines = (line.strip() for line in text.splitlines() if line.startswith(" "))
    return tuple(step for line in lines if (step := parse_step(line)))


def find_step(steps: Sequence[Step], *, tool: str, kind: str, arch: str) -> int | None:
    """The place of the step that is, or contains, a phase; None when there is none.

    ``tool``: cc1plus and cc1 are found in the gcc that calls them. Of several alike the last: it is the host's.
    """
    found: int | None = None
    for place, step in enumerate(steps):
        if tool in _CUDA_TOOLS:
            if step.name == tool and (not arch or _arch_of(step) in (arch, "")):
                return place
        elif step.name not in _CUDA_TOOLS and tool in (step.name, "cc1plus", "cc1", "collect2"):
            inner = phase_facts("cc1plus", step.words[1:], {}).kind
            if inner.value == kind and (not arch or arch.removeprefix("sm_") in _macro_archs(step)):
                found = place
    return found


def steps_before(steps: Sequence[Step], place: int) -> list[int]:
    """Places of the steps that make what the step at ``place`` reads, in order.

    A temporary file is made by the first step that names it. A host compilation includes files that its command line
    does not name: it needs all steps before it.
    """
    if steps[place].name not in _CUDA_TOOLS:
        return list(range(place)) if "-E" not in steps[place].words else []
    makers: dict[str, int] = {}
    for index, step in enumerate(steps[: place + 1]):
        for path in _paths(step):
            makers.setdefault(path, index)
    needed: set[int] = set()
    pending = [place]
    while pending:
        at = pending.pop()
        for path in _paths(steps[at]):
            if (maker := makers[path]) < at and maker not in needed:
                needed.add(maker)
                pending.append(maker)
    return sorted(needed)


def _paths(step: Step) -> list[str]:
    """Absolute paths in its words; behind ``=`` too."""
    ends = (word.rpartition("=")[2] for word in step.words[1:])
    return [end for end in ends if end.startswith("/")]


def _arch_of(step: Step) -> str:
    return phase_facts(step.name, step.words[1:], {}).arch if step.name in ("cicc", "ptxas", "nvlink") else ""


def _macro_archs(step: Step) -> list[str]:
    """``90`` of ``-D__CUDA_ARCH__=900``."""
    marks = [word.rpartition("=")[2] for word in step.words if word.startswith("-D__CUDA_ARCH__=")]
    return [mark.removesuffix("0") for mark in marks]


# -- a phase's files ---------------------------------------------------------------------------------------------------


def short_name(path: str) -> str:
    """``/tmp/tmpxft_00005389_00000000-8_gelu.cpp1.ii`` is ``gelu.cpp1.ii``."""
    return _TEMPORARY.sub("", os.path.basename(path)) or "input"


def input_paths(name: str, argv: Sequence[str], is_file: Callable[[str], bool]) -> list[str]:
    """What the program ``name`` reads, as its command line calls it. ``is_file``: a word that names one there is."""
    if name in LINKERS:
        return []
    found: list[str] = []
    for path in _words_read(name, argv):
        if path not in found and not path.endswith((".so", "/")) and is_file(path):
            found.append(path)
    return found


def source_path(name: str, argv: Sequence[str], is_file: Callable[[str], bool]) -> str:
    """The one source of an inner compiler of gcc; empty when there is none, or more than one."""
    if name not in INNER_COMPILERS:
        return ""
    plain = (word for _, word, value in read_words(argv, inner=True) if value is None and not word.startswith("-"))
    sources = [path for path in plain if is_file(path)]
    return sources[0] if len(sources) == 1 else ""


def preprocesses(argv: Sequence[str]) -> bool:
    """It only preprocesses: what it takes is the source and every header."""
    return "-E" in argv


def preprocessing(argv: Sequence[str], output: str) -> list[str]:
    """The arguments with which an inner compiler writes its preprocessed source to ``output``."""
    return ["-E", *without(argv, _LEFT_OUT_OF_PREPROCESSING, inner=True), "-o", output]


def beside(
    argv: Sequence[str], names: Mapping[str, str], *, preprocessed: bool = False, elsewhere: str = ""
) -> list[str]:
    """The command as it runs in a folder with copies. ``names``: of each input path, its copy's.

    What it writes goes into that folder too. ``preprocessed``: an inner compiler's source is, and needs no headers.
    ``elsewhere``: the folder in which its other files are, where it needs some.
    """
    local = dict(names)
    taken = set(names.values())
    for option, value in _file_options(argv):
        if value not in local:
            name_here = value if value in _NO_FILES else short_name(value)
            local[value] = f"out-{name_here}" if role_of(option) in _WRITTEN and name_here in taken else name_here
    words = [_renamed(word, local) for word in argv]
    if elsewhere:
        same = zip(words, argv, strict=True)
        words = [_absolute(word, elsewhere) if word == before else word for word, before in same]
    if preprocessed:
        words = without(words, _LEFT_OUT_OF_PREPROCESSED, inner=True, prefixes=_PREFIXES_OF_PREPROCESSING)
        place = words.index("-o") if "-o" in words[:-1] else None
        if place is not None and words[place + 1] not in _NO_FILES:
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


def _file_options(argv: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(option, value) of options whose value is a file that is written, or a name."""
    for _, word, value in read_words(argv):
        if role_of(word) in (*_WRITTEN, *_NAMES, Role.MODULE_ID):
            option, equals, joined = word.partition("=")
            if value is not None or equals:
                yield option, joined if value is None else value


def _words_read(name: str, argv: Sequence[str]) -> Iterator[str]:
    """Words, and ends of words, that may name a file that is read."""
    inner = name in INNER_COMPILERS
    # cudafe++ writes the module's id, cicc reads it.
    written = {*_WRITTEN, *_NAMES, *([Role.MODULE_ID] if "--gen_module_id_file" in argv else [])}
    for _, word, value in read_words(argv, inner=inner):
        role = role_of(word)
        if value is not None:
            if role not in written and role is not Role.DEPENDENCIES and not value.startswith("-"):
                yield value
        elif not word.startswith("-"):
            yield word
        elif "=" in word and word.partition("=")[0] not in _OUTPUT_OPTIONS:
            yield word.rpartition("=")[2]
