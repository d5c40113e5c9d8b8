"""Command lines of compilers: what a phase does, to which source, for which arch; which unit a driver builds. Pure.

Covers: cudafe++, cicc, ptxas, nvlink, gcc's inner programs, clang, and the drivers nvcc and gcc as units; a digest of
the options that matter for memory, the same for the same compile in another folder and another build.
Does *not* cover: running them, or looking at their files: sizes are handed in.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

import msgspec

from builddoctor.core.phase import PhaseKind, Unit
from builddoctor.core.units import MIB, printable, whole_number
from builddoctor.toolchain.options import Role, all_values, first_value, names_of, read_words, role_of

_SOURCE_SUFFIXES = frozenset((".cu", ".cpp", ".cc", ".cxx", ".c++", ".c", ".C", ".cppm", ".hip", ".m", ".mm"))
_INPUT_SUFFIXES = _SOURCE_SUFFIXES | {".ii", ".i", ".s", ".S", ".ptx", ".gpu", ".cubin", ".o", ".a", ".h", ".hpp"}
_COMPILE_ONLY = names_of(Role.COMPILE, Role.STAGE)
_COMPILES_NOTHING = frozenset(
    [
        "-M",
        "-MM",
        "-E",
        "-dlink",
        "-lib",
        "-dryrun",
        "--dryrun",
        "--generate-dependencies",
        "--generate-nonsystem-dependencies",
        "--preprocess",
        "--device-link",
        "--lib",
    ]
)
_ARCH_OPTIONS = sorted(names_of(Role.ARCH))
_ARCH = re.compile(r"(?:sm|compute|lto)_(\d+[af]?)")
_TMPXFT = re.compile(
    r"tmpxft_[0-9a-f]+_[0-9a-f]+-\d+_(?P<stem>.+?)"
    r"(?:\.(?:compute|sm)_\w+)?(?:\.(?:cpp|cudafe)\d*)?\.(?:ptx|ii|gpu|cpp)\Z"
)
_TRIED_OUT = re.compile(
    r"/(?:CMakeScratch|CMakeTmp|TryCompile-\w+|CompilerId\w*|meson-private)/|/CMakeFiles/\d+\.\d+|/(?:cmTC_|conftest|_configtest)[^/]*\Z"
)
"""Where CMake, meson, autoconf and distutils try a compiler out."""
_TRIALS_OUTPUT = re.compile(r"(?:cmTC_|conftest|_configtest).*|a\.out")
_MADE_FOLDER = re.compile(r".*/tmp[a-z0-9_]{8}")
"""A folder by Python's ``tempfile.mkdtemp``."""

_LEFT_OUT_OF_DIGEST = frozenset(
    (
        *(Role.OUTPUT, Role.NAME, Role.DEPENDENCIES, Role.DEPENDENCY_FILE, Role.DEPENDENCY_TARGET, Role.INCLUDE),
        *(Role.LIBRARY, Role.ARCH, Role.THREADS, Role.HOST_COMPILER, Role.OPTION_FILE, Role.KEEP, Role.TIMING),
        *(Role.VERBOSE, Role.MESSAGES, Role.COMPILE),
    )
)
"""Paths, dependency files, libraries, threads, what is printed; architectures, which the unit itself names. Files of
options hold include folders in practice."""

_VALUE_IN_DIGEST = frozenset((Role.MACRO, Role.LANGUAGE, Role.TUNING, Role.PASS_ON))
_PREFIXES_LEFT_OUT = (
    *("-I", "-L", "-l", "-isystem", "-M", "-W", "-fdiagnostics", "-ffile-prefix-map", "-fdebug-prefix-map"),
    *("-fmacro-prefix-map", "--generate-dependencies", "@"),
)
_LINE_INFO = "-lineinfo"
"""Not a library, though it looks like one."""


class PhaseFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a phase's command line tells."""

    kind: PhaseKind
    source: str
    arch: str
    input_mib: float


def phase_facts(name: str, argv: Sequence[str], sizes: Mapping[int, int]) -> PhaseFacts:
    """Facts of one phase. ``sizes``: bytes of those arguments that are files, by index."""
    if name == "ptxas":
        return _facts(PhaseKind.PTXAS, _stem(argv, sizes, (".ptx",)), _arch(argv), sizes, argv, (".ptx",))
    if name in ("cudafe++", "cicc"):
        kind = PhaseKind.CICC if name == "cicc" else PhaseKind.CUDAFE
        source = first_value(argv, "--orig_src_path_name", "--orig_src_file_name")
        arch = _arch(argv) if kind is PhaseKind.CICC else ""
        return _facts(kind, source or _stem(argv, sizes, (".ii",)), arch, sizes, argv, (".ii", ".gpu"))
    if name == "nvlink":
        return _facts(PhaseKind.NVLINK, _output(argv), _arch(argv), sizes, argv, (".o", ".a", ".cubin"))
    if name in ("collect2", "lto1"):
        return _facts(PhaseKind.LINK, _output(argv), "", sizes, argv, (".o", ".a"))
    return _host_facts(argv, sizes)


def parse_sizes(text: str) -> dict[int, int]:
    """``index=bytes,…`` as a gate sends it; anything else in it is skipped."""
    sizes: dict[int, int] = {}
    for part in text.split(","):
        index, _, size = part.partition("=")
        place, count = whole_number(index), whole_number(size)
        if place is not None and count is not None:
            sizes[place] = count
    return sizes


def nvcc_unit(unit_id: str, argv: Sequence[str], cwd: str) -> Unit:
    """The unit of one nvcc call (arguments without nvcc itself)."""
    words = " ".join(value for option in _ARCH_OPTIONS for value in all_values(argv, option))
    archs = sorted({f"sm_{arch}" for arch in _ARCH.findall(words)})
    attached = (word[2:] for word in argv if word.startswith("-t") and word[2:].isdigit())
    threads = whole_number(first_value(argv, "--threads", "-t") or next(attached, "") or "1")
    # A program from one source, compiled and linked at once, as Makefiles that were written by hand have it.
    at_once = _COMPILES_NOTHING.isdisjoint(argv) and len(_sources(argv)) == 1
    return _unit(unit_id, argv, cwd, archs=tuple(archs), threads=1 if threads is None else threads, at_once=at_once)


def driver_unit(unit_id: str, argv: Sequence[str], cwd: str) -> Unit:
    """The unit of one host compiler call."""
    return _unit(unit_id, argv, cwd, archs=(), threads=1)


def tried_out(source: str, output: str, cwd: str) -> bool:
    """A configure step compiles it to see whether it can: by the names that CMake, autoconf and distutils give, or in a
    folder that a setup.py made for it alone (DeepSpeed's ``/tmp/tmpa1b2c3d4/test.c``)."""
    folder = posixpath.dirname(posixpath.join(cwd, source))
    apart = _MADE_FOLDER.fullmatch(folder) is not None and not f"{cwd}/".startswith(f"{folder}/")
    # CMake's own sources lie elsewhere, and are compiled in such a folder.
    return apart or bool(_TRIED_OUT.search(f"{cwd}/{source}") or _TRIALS_OUTPUT.fullmatch(posixpath.basename(output)))


def options_digest(argv: Sequence[str]) -> str:
    """16 hexadecimal digits; the same for the same options in any order."""
    return hashlib.sha256("\0".join(sorted(_digested(argv))).encode(errors="replace")).hexdigest()[:16]


def _sources(argv: Sequence[str]) -> list[str]:
    words = (argv[index] for index in _input_indexes(argv))
    return [word for word in words if PurePosixPath(word).suffix in _SOURCE_SUFFIXES]


def _unit(
    unit_id: str, argv: Sequence[str], cwd: str, *, archs: tuple[str, ...], threads: int, at_once: bool = False
) -> Unit:
    source = next(iter(_sources(argv)), "")
    compiles = at_once or not _COMPILE_ONLY.isdisjoint(argv)
    output = _output(argv)
    return Unit(
        unit_id=unit_id,
        source=printable(source),
        output=printable(output),
        archs=archs,
        threads=threads,
        counted=bool(source) and compiles and not tried_out(source, output, cwd),
    )


def _host_facts(argv: Sequence[str], sizes: Mapping[int, int]) -> PhaseFacts:
    inputs = [index for index in _input_indexes(argv) if index in sizes]
    source = argv[inputs[0]] if inputs else ""
    stem = _TMPXFT.search(source)
    if "-E" in argv:
        kind = PhaseKind.PREPROCESS
    elif "-quiet" in argv or not _COMPILE_ONLY.isdisjoint(argv) or "-S" in argv:
        kind = PhaseKind.HOST
    else:
        kind = PhaseKind.LINK
    input_mib = sum(sizes[index] for index in inputs[:1]) / MIB
    return PhaseFacts(kind=kind, source=printable(stem["stem"] if stem else source), arch="", input_mib=input_mib)


def _facts(
    kind: PhaseKind,
    source: str,
    arch: str,
    sizes: Mapping[int, int],
    argv: Sequence[str],
    suffixes: tuple[str, ...],
) -> PhaseFacts:
    size = sum(size for index, size in sizes.items() if index < len(argv) and argv[index].endswith(suffixes))
    return PhaseFacts(kind=kind, source=printable(source), arch=arch, input_mib=size / MIB)


def _arch(argv: Sequence[str]) -> str:
    found = _ARCH.search(first_value(argv, "-arch", "--gpu-name"))
    return f"sm_{found[1]}" if found else ""


def _output(argv: Sequence[str]) -> str:
    return first_value(argv, "-o", "--output-file")


def _stem(argv: Sequence[str], sizes: Mapping[int, int], suffixes: tuple[str, ...]) -> str:
    for index in sizes:
        if index < len(argv) and argv[index].endswith(suffixes):
            match = _TMPXFT.search(argv[index])
            return match["stem"] if match else argv[index]
    return ""


def _input_indexes(argv: Sequence[str]) -> Iterator[int]:
    """Places of words that name an input, by their suffix. ``-quiet``: a program inside gcc."""
    for index, word, value in read_words(argv, inner="-quiet" in argv):
        if value is None and not word.startswith("-") and PurePosixPath(word).suffix in _INPUT_SUFFIXES:
            yield index


def _digested(argv: Sequence[str]) -> Iterator[str]:
    """What of the options the digest is made from."""
    for _, word, value in read_words(argv):
        role = role_of(word)
        if value is not None and role in _VALUE_IN_DIGEST:
            yield from _values_digested(word, value)
        elif word == _LINE_INFO:
            yield word
        elif word.startswith("-") and role not in _LEFT_OUT_OF_DIGEST and not word.startswith(_PREFIXES_LEFT_OUT):
            name, _, joined = word.partition("=")
            yield name if "/" in joined else word


def _values_digested(option: str, value: str) -> Iterator[str]:
    """Of several values with commas (``-Xcompiler -fPIC,-O3``) those that matter."""
    if option == "-Xlinker":
        return
    parts = value.split(",") if role_of(option) is Role.PASS_ON else [value]
    for part in parts:
        name, _, what = part.partition("=")
        if not part.startswith(_PREFIXES_LEFT_OUT):
            yield f"{option} {name if '/' in what else part}"
