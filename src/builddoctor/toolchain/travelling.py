"""Phases that another machine can run: their files, and their command without this machine's paths. Pure.

Covers: cudafe++, cicc and ptxas, which read and write the files that their command line names and nothing else (seen by
strace with nvcc 13.0), and write the same bytes in any folder; gcc's cc1 and cc1plus, once their source is preprocessed
here, as distcc sends it, but with macros left as they are (``-fdirectives-only``), so that warnings are the same too;
whether a command that came from elsewhere keeps to its folder.
Does *not* cover: reading files, or sending them (``cluster``).

What cannot be sent: debug information (``-g``, ``-G``), which names the folder and the options of the compiler; options
of gcc that are not known to leave the file at that; any word that names a path and is neither a file that is read nor
one that is written; files of the same name in two folders. Texts that were written may name the folder they were
written in, so it is put back (``as_if_in``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence

import msgspec

from builddoctor.core.cluster import FOLDER
from builddoctor.toolchain.options import INNER_COMPILERS, Role, read_words, role_of, without
from builddoctor.toolchain.phase_commands import input_paths, preprocesses, source_path

CUDA_TRAVELLERS = frozenset(("cudafe++", "cicc", "ptxas"))
TRAVELLERS = CUDA_TRAVELLERS | INNER_COMPILERS
TEXTS = (".c", ".cpp", ".ptx", ".gpu", ".module_id")
"""Files that may name the folder in which they were written."""

_DEBUG = frozenset(("-g", "-G", "--device-debug", "--debug_mode"))
_WRITES_NOTHING = frozenset(("--include_file_name",))
"""The name that an ``#include`` gets; nothing is opened."""

_UNREAD = "--gen_device_file_name"
"""cicc writes it, and no later step reads it: 165 MB in one report."""

_TEMPORARY = "tmpxft_"
_PATHS_AS_NAMES = frozenset(("--orig_src_file_name", "--orig_src_path_name"))

_DEPENDENCIES = (Role.DEPENDENCIES, Role.DEPENDENCY_FILE, Role.DEPENDENCY_TARGET)
_OF_PREPROCESSING = frozenset((*_DEPENDENCIES, Role.INCLUDE, Role.PREINCLUDE, Role.MACRO))
_FLAGS_OF_PREPROCESSING = ("-I", "-D", "-U", "-isystem", "-iquote", "-idirafter", "-include", "-dumpdir")
_HARMLESS = re.compile(
    r"-(O\w*|f(?!plugin|dump|profile|test-coverage|stack-usage|callgraph|lto|module|save|auto-profile|pch|branch-prob"
    r"|sanitize-|instrument-functions-exclude|opt-info|record)[\w=,.+-]+|m[\w=,.+-]+|W(?!p,|a,|l,)[\w=,.+-]*|w|quiet"
    r"|std=[\w+:]+|pedantic[\w-]*|ansi|version|v|dumpbase(-ext)?|param|-param)"
)
"""Options of cc1 and cc1plus after which they still read one file and write one, without the folder's name in it."""


class FileOfPhase(msgspec.Struct, frozen=True, kw_only=True):
    """A file by its name on its way, and by its path here."""

    name: str
    path: str


class Travelling(msgspec.Struct, frozen=True, kw_only=True):
    """A phase that can be sent."""

    tool: str
    words: tuple[str, ...]
    inputs: tuple[FileOfPhase, ...]
    outputs: tuple[FileOfPhase, ...]
    needed: str
    """the output without which it did nothing"""


def travelling(tool: str, argv: Sequence[str], is_file: Callable[[str], bool]) -> Travelling | None:
    """The phase as it can be sent; None for one that has to stay. ``is_file``: a word that names one there is."""
    if tool not in CUDA_TRAVELLERS or not _DEBUG.isdisjoint(argv):
        return None
    inputs = input_paths(tool, argv, is_file)
    written = [(option, value) for option, value in _written(tool, argv) if value]
    outputs = [value for option, value in written if option != _UNREAD or not _is_temporary(value)]
    names = {path: os.path.basename(path) for path in [*inputs, *(value for _, value in written)]}
    needed = next((value for option, value in written if option in _needed(tool)), "")
    if not inputs or not needed or len(set(names.values())) < len(names):
        return None
    words = tuple(f"{FOLDER}/{names[word]}" if word in names else word for word in argv)
    if not keeps_to_folder(tool, words):
        return None
    return Travelling(
        tool=tool,
        words=words,
        inputs=tuple(FileOfPhase(name=names[path], path=path) for path in inputs),
        outputs=tuple(FileOfPhase(name=names[path], path=path) for path in outputs),
        needed=names[needed],
    )


class TravellingSource(msgspec.Struct, frozen=True, kw_only=True):
    """A compile of gcc that can be sent once ``before`` has run here."""

    before: tuple[str, ...]
    """the arguments with which the same program preprocesses the source, and writes what names its headers"""
    preprocessed: str
    """what that writes"""
    phase: Travelling


def travelling_source(
    tool: str, argv: Sequence[str], is_file: Callable[[str], bool], *, preprocessed: str
) -> TravellingSource | None:
    """The compile as it can be sent; None for one that has to stay. ``preprocessed``: path for that file."""
    source = source_path(tool, argv, is_file)
    outputs = [value for _, option, value in read_words(argv, inner=True) if option == "-o" and value is not None]
    if not source or len(outputs) != 1 or outputs[0] in ("-", "/dev/null") or preprocesses(argv):
        return None
    written = outputs[0]
    name, result = os.path.basename(preprocessed), os.path.basename(written)
    words = ["-fpreprocessed", "-fdirectives-only"]
    for _, word, value in read_words(
        without(argv, _OF_PREPROCESSING, inner=True, prefixes=_FLAGS_OF_PREPROCESSING), inner=True
    ):
        if word == source and value is None:
            words.append(f"{FOLDER}/{name}")
        elif word == "-o":
            words += [word, f"{FOLDER}/{result}"]
        elif word == "-imultiarch":
            continue
        elif _HARMLESS.fullmatch(word) is None:
            return None
        else:
            words += [word] if value is None else [word, value]
    if name == result or not keeps_to_folder(tool, words):
        return None
    file = FileOfPhase(name=result, path=written)
    return TravellingSource(
        before=("-E", "-fdirectives-only", *without(argv, {Role.OUTPUT}, inner=True), "-o", preprocessed),
        preprocessed=preprocessed,
        phase=Travelling(
            tool=tool,
            words=tuple(words),
            inputs=(FileOfPhase(name=name, path=preprocessed),),
            outputs=(file,),
            needed=result,
        ),
    )


def keeps_to_folder(tool: str, words: Sequence[str]) -> bool:
    """Nothing in this command names a file outside ``FOLDER``: asked where it was written, and where it is to run."""
    if tool not in TRAVELLERS:
        return False
    before = ""
    for word in words:
        head, _, name = word.partition("/")
        ours = head == FOLDER and is_plain_name(name)
        named = before in _PATHS_AS_NAMES
        if not (ours or named) and (word.startswith("@") or "/" in word or "\0" in word or ".." in word):
            return False
        before = word
    return True


def is_plain_name(name: str) -> bool:
    """It names a file in the folder that one is in."""
    return bool(name) and name not in (".", "..") and "/" not in name and "\0" not in name


def as_if_in(text: bytes, folder: str, paths: Sequence[FileOfPhase]) -> bytes:
    """A text that was written in ``folder``, as it would have been written here."""
    there = os.fsencode(folder) + b"/"
    if there not in text:
        return text
    for file in sorted(paths, key=lambda each: len(each.name), reverse=True):
        text = text.replace(there + os.fsencode(file.name), os.fsencode(file.path))
    return text


def _written(tool: str, argv: Sequence[str]) -> list[tuple[str, str]]:
    """(option, path) of files that it may write. cudafe++ names the stub, and does not write it."""
    found: list[tuple[str, str]] = []
    for _, option, value in read_words(argv):
        role = role_of(option)
        stub = tool == "cudafe++" and option == "--stub_file_name"
        module = role is Role.MODULE_ID and "--gen_module_id_file" in argv
        if value is not None and not stub and option not in _WRITES_NOTHING and (role is Role.OUTPUT or module):
            found.append((option, value))
    return found


def _needed(tool: str) -> tuple[str, ...]:
    return ("--gen_c_file_name",) if tool == "cudafe++" else ("-o", "--output-file")


def _is_temporary(path: str) -> bool:
    """nvcc removes it: nobody looks for it."""
    return os.path.basename(path).startswith(_TEMPORARY)
