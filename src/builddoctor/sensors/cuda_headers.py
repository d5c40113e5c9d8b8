"""What CUDA's headers and library files say of themselves: versions, accepted host compilers, clashes. Pure parsing.

Shapes seen: crt/host_config.h and crt/math_functions.h of 12.8.93, 13.0.88 and 13.2.86, older ones from issues that
quote them. Anything else gives None or an empty version, never a guess.
Does *not* cover: where these files are (``sensors.cuda_libraries``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from builddoctor.model.toolchain import HostLimits

MACROS = {
    "cudart": ("CUDART_VERSION",),
    "cublas": ("CUBLAS_VER_MAJOR", "CUBLAS_VER_MINOR", "CUBLAS_VER_PATCH"),
    "cudnn": ("CUDNN_MAJOR", "CUDNN_MINOR", "CUDNN_PATCHLEVEL"),
    "nccl": ("NCCL_MAJOR", "NCCL_MINOR", "NCCL_PATCH"),
    "curand": ("CURAND_VER_MAJOR", "CURAND_VER_MINOR", "CURAND_VER_PATCH"),
    "cusparse": ("CUSPARSE_VER_MAJOR", "CUSPARSE_VER_MINOR", "CUSPARSE_VER_PATCH"),
    "cusolver": ("CUSOLVER_VER_MAJOR", "CUSOLVER_VER_MINOR", "CUSOLVER_VER_PATCH"),
}
"""Library to the macros that give its version. nvrtc and nvml have none."""

CLASHES = {"cospi": (2, 41), "sinpi": (2, 41), "rsqrt": (2, 42)}
"""Function to the first glibc that declares it too, with ``noexcept``: nvcc then refuses every source. CUDA declares
the first two right since 13.0 (cuda-samples#378), the last since 13.2 (llama.cpp#19100, llvm-project#185701)."""

_ERROR = re.compile(r"^#\s*error -- unsupported (?P<kind>GNU|clang) version!", re.MULTILINE)
_CONDITION = re.compile(r"^#\s*if\b(?P<text>.*)$", re.MULTILINE)
_GNU_ABOVE = re.compile(r"__GNUC__ > (\d{1,3})")
_CLANG_FROM = re.compile(r"__clang_major__ (>=|>) (\d{1,3})")
_CLANG_BELOW = re.compile(r"__clang_major__ < (\d{1,3})")


def library_version(name: str, text: str) -> str:
    """``13.0`` or ``9.13.0`` from the header of ``name``; empty when it does not say."""
    parts = [_macro(macro, text) for macro in MACROS.get(name, ())]
    if not parts or parts[0] is None:
        return ""
    if name == "cudart":
        # 12080 is 12.8.
        return f"{parts[0] // 1000}.{parts[0] % 1000 // 10}"
    return ".".join(str(part) for part in parts if part is not None)


def host_limits(text: str) -> HostLimits:
    """The host compilers that a ``crt/host_config.h`` accepts."""
    gnu_newest = clang_newest = clang_oldest = None
    for error in _ERROR.finditer(text):
        conditions = list(_CONDITION.finditer(text, max(0, error.start() - 2000), error.start()))
        if not conditions:
            continue
        condition = conditions[-1]["text"]
        if error["kind"] == "GNU":
            above = _GNU_ABOVE.search(condition)
            gnu_newest = int(above[1]) if above else gnu_newest
        else:
            first = _CLANG_FROM.search(condition)
            if first is not None:
                clang_newest = int(first[2]) - (1 if first[1] == ">=" else 0)
            below = _CLANG_BELOW.search(condition)
            clang_oldest = int(below[1]) if below else clang_oldest
    return HostLimits(gnu_newest=gnu_newest, clang_newest=clang_newest, clang_oldest=clang_oldest)


def bare_functions(text: str) -> tuple[str, ...] | None:
    """Functions of CLASHES that a ``crt/math_functions.h`` declares bare; None when it declares none of them at all.

    A header that somebody has patched is told apart from one that nobody has: the declaration itself is read.
    """
    bare: list[str] = []
    seen = False
    for name in CLASHES:
        declared = re.search(
            rf"^extern\b[^;\n]*\bdouble\s+{name}\s*\(\s*double\s+\w+\s*\)([^;\n]*);", text, re.MULTILINE
        )
        if declared is None:
            continue
        seen = True
        if not declared[1].strip():
            bare.append(name)
    return tuple(bare) if seen else None


class LibraryFiles(msgspec.Struct, frozen=True):
    """What a folder holds of one library."""

    file: str
    """name of the one that says most of its version"""
    version: str
    linkable: bool


def library_files(name: str, names: Iterable[str]) -> LibraryFiles | None:
    """``lib<name>`` among the names of a folder's files; None when it is not there."""
    pattern = re.compile(rf"\Alib{re.escape(name)}(?:\.so(?:\.(?P<version>\d{{1,6}}(?:\.\d{{1,6}})*))?|_static\.a)\Z")
    found = [(match["version"] or "", file) for file in names if (match := pattern.match(file))]
    if not found:
        return None
    version, file = max(found, key=lambda one: (_numbers(one[0]), one[1].endswith(".so")))
    return LibraryFiles(file, version, any(not version for version, _ in found))


def agree(one: str, other: str) -> bool:
    """The two versions say the same as far as both say anything: ``9`` and ``9.13.0`` do."""
    return all(left == right for left, right in zip(_numbers(one), _numbers(other), strict=False))


class Preprocessed(msgspec.Struct, frozen=True):
    """What a compiler's predefined macros say of it."""

    kind: str
    version: str
    glibc: str


def predefined(text: str) -> Preprocessed:
    """Kind, version and C library from the output of ``-dM -E``; empty where it does not say."""
    clang = [_macro(f"__clang_{part}__", text) for part in ("major", "minor", "patchlevel")]
    gnu = [_macro(f"__GNUC{part}__", text) for part in ("", "_MINOR", "_PATCHLEVEL")]
    libc = [_macro(macro, text) for macro in ("__GLIBC__", "__GLIBC_MINOR__")]
    # clang also claims to be gcc 4.2.
    kind, parts = ("clang", clang) if clang[0] is not None else ("gnu", gnu)
    version = ".".join(str(part) for part in parts if part is not None)
    glibc = ".".join(str(part) for part in libc if part is not None) if libc[0] is not None else ""
    return Preprocessed(kind if version else "", version, glibc)


def _macro(name: str, text: str) -> int | None:
    match = re.search(rf"^[ \t]*#[ \t]*define[ \t]+{re.escape(name)}[ \t]+(\d{{1,9}})\b", text, re.MULTILINE | re.ASCII)
    return int(match[1]) if match else None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
