"""Read the command lines of compilers: what a phase does, to which source, for which arch. Pure.

Covers: cudafe++, cicc, ptxas, nvlink, gcc's inner programs, clang, and the drivers nvcc and gcc as units.
Does *not* cover: running them, or looking at their files; sizes are handed in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

import msgspec

from builddoctor.model.phase import PhaseKind, Unit
from builddoctor.units import MIB, printable, whole_number

_SOURCE_SUFFIXES = frozenset((".cu", ".cpp", ".cc", ".cxx", ".c++", ".c", ".C", ".cppm", ".hip", ".m", ".mm"))
_INPUT_SUFFIXES = _SOURCE_SUFFIXES | {".ii", ".i", ".s", ".S", ".ptx", ".gpu", ".cubin", ".o", ".a", ".h", ".hpp"}
_TAKES_VALUE = frozenset(
    [
        "-o",
        "-include",
        "-imacros",
        "-isystem",
        "-iquote",
        "-idirafter",
        "-I",
        "-D",
        "-U",
        "-MF",
        "-MT",
        "-MQ",
        "-x",
        "-dumpbase",
        "-dumpdir",
        "-dumpbase-ext",
        "-auxbase",
        "-auxbase-strip",
        "-imultiarch",
        "-isysroot",
        "-ccbin",
        "--compiler-bindir",
        "-Xcompiler",
        "-Xptxas",
        "-Xcicc",
        "-Xlinker",
        "-gencode",
        "-arch",
        "-code",
        "--generate-code",
        "--gpu-architecture",
        "--gpu-code",
        "--threads",
        "-t",
        "--dependency-output",
        "--output-file",
        "-l",
        "-L",
        "-MMD",
        "--options-file",
        "-optf",
        "--std",
        "-std",
        "--keep-dir",
        "--pre-include",
        "--system-include",
        "--include-path",
    ]
)
_MMD_OF_CC1 = frozenset(("-MD", "-MMD"))
_COMPILE_ONLY = frozenset(
    [
        "-c",
        "--compile",
        "-dc",
        "--device-c",
        "-dw",
        "--device-w",
        "-ptx",
        "--ptx",
        "-cubin",
        "--cubin",
        "-fatbin",
        "--fatbin",
        "-ltoir",
        "--ltoir",
    ]
)
_ARCH_OPTIONS = ("-arch", "--gpu-architecture", "-gencode", "--generate-code", "-code", "--gpu-code")
_ARCH = re.compile(r"(?:sm|compute|lto)_(\d+[af]?)")
_TMPXFT = re.compile(
    r"tmpxft_[0-9a-f]+_[0-9a-f]+-\d+_(?P<stem>.+?)"
    r"(?:\.(?:compute|sm)_\w+)?(?:\.(?:cpp|cudafe)\d*)?\.(?:ptx|ii|gpu|cpp)\Z"
)
_SCRATCH = re.compile(r"/(?:CMakeScratch|CMakeTmp|CompilerId\w+)/|/CMakeFiles/\d+\.\d+")
"""Where CMake tries a compiler out."""


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
        source = _value(argv, "--orig_src_path_name") or _value(argv, "--orig_src_file_name")
        arch = _arch(argv) if kind is PhaseKind.CICC else ""
        return _facts(kind, source or _stem(argv, sizes, (".ii",)), arch, sizes, argv, (".ii", ".gpu"))
    if name == "nvlink":
        return _facts(PhaseKind.NVLINK, _output(argv), _arch(argv), sizes, argv, (".o", ".a", ".cubin"))
    if name in ("collect2", "lto1"):
        return _facts(PhaseKind.LINK, _output(argv), "", sizes, argv, (".o", ".a"))
    return _host_facts(argv, sizes)


def nvcc_unit(unit_id: str, argv: Sequence[str], cwd: str) -> Unit:
    """The unit of one nvcc call (arguments without nvcc itself)."""
    sources = _sources(argv)
    words = " ".join(value for option in _ARCH_OPTIONS for value in _values(argv, option))
    archs = sorted({f"sm_{arch}" for arch in _ARCH.findall(words)})
    threads = _value(argv, "--threads") or _value(argv, "-t") or _attached(argv, "-t") or "1"
    return _unit(unit_id, argv, cwd, sources, tuple(archs), 1 if (count := whole_number(threads)) is None else count)


def driver_unit(unit_id: str, argv: Sequence[str], cwd: str) -> Unit:
    """The unit of one host compiler call."""
    return _unit(unit_id, argv, cwd, _sources(argv), (), 1)


def parse_sizes(text: str) -> dict[int, int]:
    """``index=bytes,…`` as a gate sends it; anything else in it is passed over."""
    sizes: dict[int, int] = {}
    for part in text.split(","):
        index, _, size = part.partition("=")
        place, count = whole_number(index), whole_number(size)
        if place is not None and count is not None:
            sizes[place] = count
    return sizes


def _unit(
    unit_id: str, argv: Sequence[str], cwd: str, sources: list[str], archs: tuple[str, ...], threads: int
) -> Unit:
    source = sources[0] if sources else ""
    compiles = not _COMPILE_ONLY.isdisjoint(argv)
    scratch = _SCRATCH.search(f"{cwd}/{source}") is not None
    counted = bool(source) and compiles and not scratch
    return Unit(
        unit_id=unit_id,
        source=printable(source),
        output=printable(_output(argv)),
        archs=archs,
        threads=threads,
        counted=counted,
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


def _value(argv: Sequence[str], option: str) -> str:
    """The first value of an option; empty without one."""
    return next(_values(argv, option), "")


def _values(argv: Sequence[str], option: str) -> Iterator[str]:
    """All values of an option, as ``-o value`` or ``-o=value``."""
    joined = option + "="
    for index, word in enumerate(argv):
        if word == option and index + 1 < len(argv):
            yield argv[index + 1]
        elif word.startswith(joined):
            yield word[len(joined) :]


def _attached(argv: Sequence[str], option: str) -> str:
    """The number right behind a short option, as in ``-t4``; empty without one."""
    return next((rest for word in argv if word.startswith(option) and (rest := word[len(option) :]).isdigit()), "")


def _arch(argv: Sequence[str]) -> str:
    found = _ARCH.search(_value(argv, "-arch") or _value(argv, "--gpu-name") or "")
    return f"sm_{found[1]}" if found else ""


def _output(argv: Sequence[str]) -> str:
    return _value(argv, "-o") or _value(argv, "--output-file")


def _stem(argv: Sequence[str], sizes: Mapping[int, int], suffixes: tuple[str, ...]) -> str:
    for index in sizes:
        if index < len(argv) and argv[index].endswith(suffixes):
            match = _TMPXFT.search(argv[index])
            return match["stem"] if match else argv[index]
    return ""


def _input_indexes(argv: Sequence[str]) -> list[int]:
    indexes: list[int] = []
    skip = False
    inner = "-quiet" in argv
    for index, word in enumerate(argv):
        if skip:
            skip = False
        elif word in _TAKES_VALUE or (inner and word in _MMD_OF_CC1):
            # The inner programs of gcc take the file of -MD as the next word; drivers do not.
            skip = word != "-MMD" or inner
        elif not word.startswith("-") and PurePosixPath(word).suffix in _INPUT_SUFFIXES:
            indexes.append(index)
    return indexes


def _sources(argv: Sequence[str]) -> list[str]:
    return [argv[index] for index in _input_indexes(argv) if PurePosixPath(argv[index]).suffix in _SOURCE_SUFFIXES]
