"""The options of nvcc, gcc, clang and the programs inside them: one table, and command lines read by it. Pure.

Covers: what each option is for, and whether the next word belongs to it. Options that are not in the table are kept as
they are, alone. Sources: ``nvcc --help`` 13.0, ``gcc --help=common``, GCC's ``gcc/c-family/c.opt``, and command lines
that nvcc 13.0 and gcc 12 were seen to write.
Does *not* cover: what a command line means (``toolchain.command_lines``), files of options (``@file``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from enum import Enum, auto

LINKERS = frozenset(("collect2", "ld", "nvlink", "lto1"))
INNER_COMPILERS = frozenset(("cc1", "cc1plus"))


class Role(Enum):
    """What an option is for."""

    OUTPUT = auto()
    """followed by a file that is written"""
    NAME = auto()
    """followed by a name that is not opened, or not as a file"""
    MODULE_ID = auto()
    """followed by a file that cudafe++ writes and cicc reads"""
    DEPENDENCIES = auto()
    """asks for the list of headers; followed by a file for the inner compilers of gcc, and not for drivers"""
    DEPENDENCY_FILE = auto()
    DEPENDENCY_TARGET = auto()
    INCLUDE = auto()
    """followed by a folder of headers"""
    PREINCLUDE = auto()
    """a header that is read first"""
    MACRO = auto()
    LANGUAGE = auto()
    TUNING = auto()
    PASS_ON = auto()
    """followed by options for another program"""
    LIBRARY = auto()
    ARCH = auto()
    THREADS = auto()
    HOST_COMPILER = auto()
    OPTION_FILE = auto()
    KEEP = auto()
    """temporary files are kept, or put elsewhere"""
    TIMING = auto()
    VERBOSE = auto()
    MESSAGES = auto()
    """what is printed, and nothing else"""
    COMPILE = auto()
    """no link"""
    STAGE = auto()
    """stops at a stage of the device code: no link either"""


_WITH_VALUE: dict[Role, tuple[str, ...]] = {
    Role.OUTPUT: (
        *("-o", "--output-file", "--gen_c_file_name", "--gen_device_file_name", "--stub_file_name"),
        *("--embedded-fatbin", "--include_file_name", "-olto"),
    ),
    Role.NAME: (
        *("--orig_src_file_name", "--orig_src_path_name", "-dumpbase", "-dumpdir", "-dumpbase-ext"),
        *("-auxbase", "-auxbase-strip"),
    ),
    Role.MODULE_ID: ("--module_id_file_name",),
    Role.DEPENDENCY_FILE: ("-MF", "--dependency-output"),
    Role.DEPENDENCY_TARGET: ("-MT", "-MQ"),
    Role.INCLUDE: (
        *("-I", "-isystem", "-iquote", "-idirafter", "-imultiarch", "-isysroot", "-iprefix", "-iwithprefix"),
        *("-iwithprefixbefore", "--include-path", "--system-include"),
    ),
    Role.PREINCLUDE: ("-include", "-imacros", "--pre-include"),
    Role.MACRO: ("-D", "-U", "-A"),
    Role.LANGUAGE: ("-x", "-std", "--std"),
    Role.TUNING: ("--param", "-maxrregcount"),
    Role.PASS_ON: ("-Xptxas", "-Xcompiler", "-Xcicc", "-Xcudafe", "-Xlinker"),
    Role.LIBRARY: ("-l", "-L"),
    Role.ARCH: (*("-arch", "--gpu-architecture", "-gencode", "--generate-code", "-code", "--gpu-code", "--gpu-name"),),
    Role.THREADS: ("--threads", "-t"),
    Role.HOST_COMPILER: ("-ccbin", "--compiler-bindir"),
    Role.OPTION_FILE: ("--options-file", "-optf"),
    Role.KEEP: ("--keep-dir", "-keep-dir", "--output-directory", "-odir"),
    Role.TIMING: ("--time", "-time", "-fdevice-time-trace"),
}
_ALONE: dict[Role, tuple[str, ...]] = {
    Role.DEPENDENCIES: (
        *("-M", "-MM", "-MD", "-MMD", "-MG", "-MP", "--generate-dependencies-with-compile"),
        "--generate-nonsystem-dependencies-with-compile",
    ),
    Role.PREINCLUDE: ("-fpch-preprocess",),
    Role.KEEP: ("--keep", "-keep", "-objtemp", "--objdir-as-tempdir"),
    Role.VERBOSE: ("-v", "--verbose", "-version", "-H"),
    Role.MESSAGES: ("-pipe", "-Wall", "-Wextra", "-w"),
    Role.COMPILE: ("-c", "--compile", "-dc", "--device-c", "-dw", "--device-w"),
    Role.STAGE: ("-ptx", "--ptx", "-cubin", "--cubin", "-fatbin", "--fatbin", "-ltoir", "--ltoir"),
}
_ROLES = {name: role for table in (_WITH_VALUE, _ALONE) for role, names in table.items() for name in names}
_TAKES_VALUE = frozenset(name for names in _WITH_VALUE.values() for name in names)
_TAKES_VALUE_INSIDE_GCC = _TAKES_VALUE | {"-MD", "-MMD"}


def role_of(word: str) -> Role | None:
    """The role of an option, written as ``-o``, ``-o=value`` or ``-t4``; None for any other word."""
    if not word.startswith("-"):
        return None
    name = word.partition("=")[0]
    if name.startswith("-t") and name[2:].isdigit():
        return Role.THREADS
    return _ROLES.get(name)


def names_of(*roles: Role) -> frozenset[str]:
    """All options of these roles."""
    return frozenset(name for name, role in _ROLES.items() if role in roles)


def read_words(argv: Sequence[str], *, inner: bool = False) -> Iterator[tuple[int, str, str | None]]:
    """(index, word, its value) for each word that is no value of the one before. ``inner``: of a program inside gcc.

    The value is the next word, for options that take one; None for others, and at the end of the line.
    """
    takes_value = _TAKES_VALUE_INSIDE_GCC if inner else _TAKES_VALUE
    index, end = 0, len(argv)
    while index < end:
        word = argv[index]
        if word in takes_value and index + 1 < end:
            yield index, word, argv[index + 1]
            index += 2
        else:
            yield index, word, None
            index += 1


def without(
    argv: Sequence[str], roles: Collection[Role], *, inner: bool = False, prefixes: tuple[str, ...] = ()
) -> list[str]:
    """The words without options of these roles and their values, and without words that begin so."""
    kept: list[str] = []
    for _, word, value in read_words(argv, inner=inner):
        if role_of(word) not in roles and not word.startswith(prefixes):
            kept += [word] if value is None else [word, value]
    return kept


def first_value(argv: Sequence[str], *options: str) -> str:
    """The first value of the first of these options that has one; empty without any."""
    return next((value for option in options for value in all_values(argv, option)), "")


def all_values(argv: Sequence[str], option: str) -> Iterator[str]:
    """All values of an option, as ``-o value`` or ``-o=value``."""
    joined = option + "="
    for index, word in enumerate(argv):
        if word == option and index + 1 < len(argv):
            yield argv[index + 1]
        elif word.startswith(joined):
            yield word[len(joined) :]
