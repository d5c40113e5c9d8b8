"""A digest of the options of a compiler driver that matter for memory. Pure.

Covers: what is left out, so that the same compile has the same digest in another folder, in another build: paths,
include folders, outputs, dependency files, architectures (named by the unit itself), libraries, how many threads,
what is printed.
Does *not* cover: reading files of options (``@file``, ``--options-file``): they hold include folders in practice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

_WITH_VALUE = frozenset(
    (
        "-o",
        "-I",
        "-L",
        "-l",
        "-isystem",
        "-iquote",
        "-idirafter",
        "-isysroot",
        "-MF",
        "-MT",
        "-MQ",
        "-ccbin",
        "--compiler-bindir",
        "-gencode",
        "-arch",
        "-code",
        "--generate-code",
        "--gpu-architecture",
        "--gpu-code",
        "--threads",
        "-t",
        "--output-file",
        "--dependency-output",
        "--options-file",
        "-optf",
        "--keep-dir",
        "--include-path",
        "--system-include",
        "--output-directory",
        "-odir",
    )
)
"""Left out with the word that follows."""

_ALONE = frozenset(
    (
        "-c",
        "--compile",
        "-dc",
        "--device-c",
        "-M",
        "-MM",
        "-MG",
        "-MP",
        "-v",
        "--verbose",
        "-pipe",
        "-Wall",
        "-Wextra",
        "-w",
        "--keep",
        "-objtemp",
        "-H",
        "--time",
    )
)
_PREFIXES = (
    "-I",
    "-L",
    "-l",
    "-isystem",
    "-M",
    "-W",
    "-fdiagnostics",
    "-ffile-prefix-map",
    "-fdebug-prefix-map",
    "-fmacro-prefix-map",
    "--generate-dependencies",
    "@",
)
_KEPT = frozenset(("-lineinfo",))
"""Though it looks like a library."""

_TAKES_VALUE = frozenset(
    (
        "-D",
        "-U",
        "-x",
        "-std",
        "--std",
        "-Xptxas",
        "-Xcompiler",
        "-Xcicc",
        "-Xcudafe",
        "-Xlinker",
        "--param",
        "-maxrregcount",
    )
)


def options_digest(argv: Sequence[str]) -> str:
    """16 hexadecimal digits; the same for the same options in any order."""
    return hashlib.sha256("\0".join(sorted(_that_matter(argv))).encode(errors="replace")).hexdigest()[:16]


def _that_matter(argv: Sequence[str]) -> Iterator[str]:
    words = iter(argv)
    for word in words:
        if word in _TAKES_VALUE:
            yield from _value_of(word, next(words, ""))
        elif word in _WITH_VALUE:
            next(words, "")
        elif word in _KEPT or (word.startswith("-") and word not in _ALONE and not word.startswith(_PREFIXES)):
            name, _, value = word.partition("=")
            if name not in _WITH_VALUE:
                yield name if "/" in value else word


def _value_of(option: str, value: str) -> Iterator[str]:
    """Of several values with commas (``-Xcompiler -fPIC,-O3``) those that matter."""
    if option == "-Xlinker":
        return
    parts = value.split(",") if option.startswith("-X") else [value]
    for part in parts:
        name, _, what = part.partition("=")
        if not part.startswith(_PREFIXES):
            yield f"{option} {name if '/' in what else part}"
