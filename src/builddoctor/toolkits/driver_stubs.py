"""Stub libraries of the driver: what ``-lcuda`` and ``-lnvidia-ml`` link with where there is no driver.

NVIDIA's packages for python have none. They are made from the functions that ``cuda.h`` and ``nvml.h`` declare, for
either processor, without a compiler; each function answers that this is a stub. A program that was linked with one
loads the driver's own (``libcuda.so.1``) at run time: they lie in ``lib/stubs``, where no loader looks.
The file is written here: 64 bit, little endian; headers, .hash, .dynsym, .dynstr and .text in one segment, .dynamic in
a second one. Source: System V ABI, ELF-64 object file format.
Does *not* cover: functions that a header does not declare; versions of symbols, relocations, debug data.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from pathlib import Path

import msgspec

_MACHINES = {"x86_64": 62, "aarch64": 183}
_PAGE = 0x10000
"""of the largest kernels on ARM"""
_NOTHING, _PROGBITS, _STRTAB, _HASH, _DYNAMIC, _DYNSYM = 0, 1, 3, 5, 6, 11
_WRITE, _ALLOC, _EXEC = 1, 2, 4


class Stub(msgspec.Struct, frozen=True, kw_only=True):
    """One library of the driver."""

    file: str
    soname: str
    headers: tuple[str, ...]
    prefix: str
    declares: str
    """what stands before the name in a declaration"""
    answer: int


STUBS = (
    Stub(
        file="libcuda.so",
        soname="libcuda.so.1",
        headers=("cuda.h", "cudaProfiler.h", "cudaGL.h", "cudaEGL.h", "cudaVDPAU.h"),
        prefix="cu",
        declares=r"CUresult\s+CUDAAPI",
        answer=34,  # CUDA_ERROR_STUB_LIBRARY
    ),
    Stub(
        file="libnvidia-ml.so",
        soname="libnvidia-ml.so.1",
        headers=("nvml.h",),
        prefix="nvml",
        declares=r"nvmlReturn_t\s+DECLDIR|const\s+DECLDIR\s+char\s*\*|const\s+char\s*\*\s*DECLDIR",
        answer=12,  # NVML_ERROR_LIBRARY_NOT_FOUND
    ),
)


def add_stubs(target: Path, arch: str) -> None:
    """Into ``lib/stubs`` of ``target``, from its headers; none for a library whose header is not there. OSError."""
    folder = target / "lib" / "stubs"
    for stub in STUBS:
        texts = [
            path.read_text(errors="replace") for name in stub.headers if (path := target / "include" / name).exists()
        ]
        names = sorted({name for text in texts for name in function_names(text, stub)})
        if names and not (folder / stub.file).exists():
            folder.mkdir(parents=True, exist_ok=True)
            library = folder / stub.file
            library.write_bytes(shared_library(names, soname=stub.soname, arch=arch, answer=stub.answer))
            library.chmod(0o755)


def function_names(header: str, stub: Stub) -> set[str]:
    """The functions of a header, and those that its macros call them (``#define cuInit cuInit_v2``)."""
    word = rf"{stub.prefix}[A-Z]\w*"
    names = set(re.findall(rf"(?:{stub.declares})\s*({word})\s*\(", header))
    for name, target in re.findall(rf"^\s*#\s*define\s+({word})\s+({word})\s*$", header, re.MULTILINE):
        if name in names:
            names.add(target)
    for kind, name in re.findall(rf"__CUDA_API_PT(SZ|DS)\(({word})\)", header):
        # The same functions for the thread's own default stream.
        names |= {name, f"{name}_pt{kind.lower()}"}
    return names


def shared_library(names: Sequence[str], *, soname: str, arch: str, answer: int) -> bytes:
    """``names``: the functions, sorted. ``answer``: what each returns, below 128."""
    strings = b"\0" + soname.encode() + b"\0"
    offsets = []
    for name in names:
        offsets.append(len(strings))
        strings += name.encode() + b"\0"
    text = _code(arch, answer)
    hashes = _hash_table(names)
    at_hash = _round(64 + 3 * 56, 8)
    at_symbols = _round(at_hash + len(hashes), 8)
    at_strings = at_symbols + 24 * (len(names) + 1)
    at_text = _round(at_strings + len(strings), 16)
    at_dynamic = _round(at_text + len(text), _PAGE)
    symbols = bytes(24) + b"".join(struct.pack("<IBBHQQ", at, 0x12, 0, 4, at_text, len(text)) for at in offsets)
    tags = ((14, 1), (4, at_hash), (5, at_strings), (6, at_symbols), (10, len(strings)), (11, 24), (0, 0))
    dynamic = b"".join(struct.pack("<QQ", *tag) for tag in tags)
    section_names = b"\0.hash\0.dynsym\0.dynstr\0.text\0.dynamic\0.shstrtab\0"
    at_names = at_dynamic + len(dynamic)
    at_sections = _round(at_names + len(section_names), 8)
    sections = (
        (".hash", _HASH, _ALLOC, at_hash, len(hashes), 2, 0, 8, 4),
        (".dynsym", _DYNSYM, _ALLOC, at_symbols, len(symbols), 3, 1, 8, 24),
        (".dynstr", _STRTAB, _ALLOC, at_strings, len(strings), 0, 0, 1, 0),
        (".text", _PROGBITS, _ALLOC | _EXEC, at_text, len(text), 0, 0, 16, 0),
        (".dynamic", _DYNAMIC, _ALLOC | _WRITE, at_dynamic, len(dynamic), 3, 0, 8, 16),
        (".shstrtab", _STRTAB, 0, at_names, len(section_names), 0, 0, 1, 0),
    )
    table = bytes(64)
    for name, kind, flags, at, size, link, info, align, entry in sections:
        named = section_names.index(b"\0" + name.encode() + b"\0") + 1
        address = at if flags & _ALLOC else _NOTHING
        table += struct.pack("<IIQQQQIIQQ", named, kind, flags, address, at, size, link, info, align, entry)
    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", 3, _MACHINES[arch], 1, 0, 64, at_sections, 0, 64, 56, 3, 64, 7, 6)
    end_of_text = at_text + len(text)
    segments = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, end_of_text, end_of_text, _PAGE)
    for kind, align in ((1, _PAGE), (2, 8)):
        size = len(dynamic)
        segments += struct.pack("<IIQQQQQQ", kind, 6, at_dynamic, at_dynamic, at_dynamic, size, size, align)
    parts = (
        (0, head + segments),
        (at_hash, hashes),
        (at_symbols, symbols),
        (at_strings, strings),
        (at_text, text),
        (at_dynamic, dynamic),
        (at_names, section_names),
        (at_sections, table),
    )
    image = bytearray(at_sections + len(table))
    for at, part in parts:
        image[at : at + len(part)] = part
    return bytes(image)


def _code(arch: str, answer: int) -> bytes:
    if arch == "x86_64":
        return b"\xb8" + struct.pack("<I", answer) + b"\xc3"  # mov eax, answer; ret
    return struct.pack("<II", 0x52800000 | answer << 5, 0xD65F03C0)  # mov w0, answer; ret


def _hash_table(names: Sequence[str]) -> bytes:
    """The System V hash table; symbol 0 is none."""
    count = max(1, len(names) // 2)
    buckets, chains = [0] * count, [0] * (len(names) + 1)
    for number, name in enumerate(names, 1):
        bucket = _hash(name) % count
        chains[number], buckets[bucket] = buckets[bucket], number
    return struct.pack(f"<II{count}I{len(chains)}I", count, len(chains), *buckets, *chains)


def _hash(name: str) -> int:
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ high >> 24) & ~high & 0xFFFFFFFF
    return value


def _round(size: int, step: int) -> int:
    return -(-size // step) * step
